"""A rule, as declared in its file."""

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
    """Texts by device type, with ``any`` as the fallback, or by variant; the column ``fix_for`` of the rule's query
    selects a variant."""

    texts: tuple[tuple[str, str], ...]

    def text_for(self, device: str | None, variant: str | None = None) -> str:
        """The most specific text: for ``variant`` on ``device`` (key ``slower_cuda``), for the variant, for the device
        (None when unknown), or for ``any``."""
        known = dict(self.texts)
        return next(
            (known[key] for key in (f"{variant}_{device}", variant, device, "any") if key in known), self.texts[0][1]
        )

    @property
    def by_device(self) -> tuple[tuple[str, str], ...]:
        """Each distinct text, with its devices (or its variant)."""
        merged: dict[str, list[str]] = {}
        for key, text in self.texts:
            merged.setdefault(text, []).append(key)
        return tuple((", ".join(keys), text) for text, keys in merged.items())

    @property
    def whole(self) -> str:
        """The complete advice: one text, or a paragraph for each device."""
        texts = self.by_device
        return texts[0][1] if len(texts) == 1 else "\n\n".join(f"For {devices}: {text}" for devices, text in texts)


@dataclass(frozen=True)
class Rule:
    """A rule. ``sql`` is None for rules that the engine itself reports (TRC000, TRC001).

    ``severity``: applies to findings without a gain; to all if it is "error", or if the user set it
    (``severity_is_set``).
    ``scope``: whether the query runs for each rank separately or once over all ranks.
    ``retired``: codes and names of this rule, or of rules merged into it, in earlier versions.
    ``explained_by``: codes, or prefixes of codes, of rules that name causes of this finding; the finding ranks below
    the cause that explains it.
    ``needs_names``: names of host slices, with ``*`` as a wildcard: if none of them occurs, the rule finds nothing, and
    its query does not run.
    ``advice``: false for a rule about the trace instead of the run.
    ``explains``: the causes of idle time (the table gap_causes), or ``exposed_collectives``, that a finding of this
    rule accounts for.
    ``relieves``: the side (host or device) whose work the fix reduces; the timeline then limits the gain (the table
    gain_limits).
    ``whatif``: a query for the changes that the fix makes to the schedule of a rank.
    ``whatif_ranks``: a query for the work that stragglers no longer do.
    ``always``: the rule runs without being selected.
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
    severity_is_set: bool = False
    always: bool = False

    @property
    def shown_severity(self) -> str:
        """The severity for the rule's page: ``by cost`` if the gain of a finding decides it, else the rule's own."""
        by_cost = self.advice and self.severity != "error" and not self.severity_is_set
        return f"by cost ({self.severity} if unknown)" if by_cost and "gain_ns" in (self.sql or "") else self.severity

    def applies_to(self, device: str | None) -> bool:
        """Whether the rule applies to runs on ``device`` (hpu, cuda, rocm, xpu, mtia, cpu; None when unknown).

        All rules apply to inputs that show no device, such as a configuration file.
        """
        if device is None or self.devices == ("any",) or device in self.devices:
            return True
        return "accelerators" in self.devices and device in accelerators()
