"""A rule as its file declares it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perftool.model.choices import Confidence, Severity
from perftool.model.vendors import accelerators

Status = Literal["preview", "stable", "deprecated"]
Scope = Literal["rank", "ranks"]
Side = Literal["host", "device"]

STATUSES: tuple[Status, ...] = ("preview", "stable", "deprecated")
SCOPES: tuple[Scope, ...] = ("rank", "ranks")
SIDES: tuple[Side, ...] = ("host", "device")


@dataclass(frozen=True)
class Param:
    """A threshold of a rule, with the reason for its default."""

    name: str
    value: float | int | str | bool
    unit: str
    why: str


@dataclass(frozen=True)
class Advice:
    """What to change, where it differs by device: a text for each device type, for ``any`` other, or for a variant
    that the rule's query names in its column ``fix_for``."""

    texts: tuple[tuple[str, str], ...]

    def text_for(self, device: str | None, variant: str | None = None) -> str:
        """The text for ``variant`` if there is one, else for ``device`` (None when unknown), else for any."""
        known = dict(self.texts)
        return next((known[key] for key in (variant, device, "any") if key in known), self.texts[0][1])

    @property
    def by_device(self) -> tuple[tuple[str, str], ...]:
        """Each different text once, with the devices (or the variant) it is for."""
        merged: dict[str, list[str]] = {}
        for key, text in self.texts:
            merged.setdefault(text, []).append(key)
        return tuple((", ".join(keys), text) for text, keys in merged.items())

    @property
    def whole(self) -> str:
        """Everything it says: one text, or a paragraph for each device."""
        texts = self.by_device
        return texts[0][1] if len(texts) == 1 else "\n\n".join(f"For {devices}: {text}" for devices, text in texts)


@dataclass(frozen=True)
class Rule:
    """A declared condition. ``sql`` is None for the rules the engine itself reports (TRC000, TRC001).

    ``scope`` says whether it is asked of each rank on its own or once of all of them. ``retired`` are codes and names
    that meant this rule, or what it took over, in earlier versions. ``explained_by`` are codes, or how these
    begin, of rules that name causes of what this one sees; it ranks below the cause that explains it.
    ``needs_names`` are names of host slices, with ``*`` for any text: where none occurs the rule finds nothing, and its
    query is not run. ``advice`` is false for a rule that speaks of the trace instead of the run. ``explains`` are the
    causes of idle time (the table gap_causes), or ``exposed_collectives``, that a finding of this rule accounts for.
    ``relieves`` is the side that the fix takes work from: the schedule then limits the gain (the table gain_limits).
    ``whatif`` is a query for what the fix changes in the schedule of a rank, ``whatif_ranks`` for what ranks that keep
    others waiting do less.
    """

    code: str
    name: str
    summary: str
    severity: Severity
    confidence: Confidence
    status: Status
    since: str
    devices: tuple[str, ...]
    tags: tuple[str, ...]
    needs: tuple[str, ...]
    benchmark: str | None
    params: tuple[Param, ...]
    sql: str | None
    message: str
    why: str
    fix: Advice
    short_fix: Advice
    example: str
    references: tuple[str, ...] = field(default=())
    retired: tuple[str, ...] = field(default=())
    scope: Scope = "rank"
    explained_by: tuple[str, ...] = field(default=())
    needs_names: tuple[str, ...] = field(default=())
    advice: bool = True
    explains: tuple[str, ...] = field(default=())
    relieves: Side | None = None
    whatif: str | None = None
    whatif_ranks: str | None = None

    def applies_to(self, device: str | None) -> bool:
        """Whether the rule is meant for runs on ``device`` (hpu, cuda, rocm, xpu, mtia, cpu; None when unknown).

        A configuration file alone names no device: then nothing speaks against a rule.
        """
        if device is None or self.devices == ("any",) or device in self.devices:
            return True
        return "accelerators" in self.devices and device in accelerators()
