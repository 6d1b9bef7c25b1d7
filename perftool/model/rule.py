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
# When the fallback advice applies.
_OTHERS = "any other case"


@dataclass(frozen=True)
class Param:
    """A threshold of a rule, with the reason for its default."""

    name: str
    value: float | int | str | bool
    unit: str
    why: str


@dataclass(frozen=True)
class Advice:
    """Advice by device type, with ``any`` as the fallback, or by variant. The column ``fix_for`` of the rule's query
    selects the variant."""

    texts: tuple[tuple[str, str], ...]

    def text_for(self, device: str | None, variant: str | None = None) -> str:
        """Return the most specific advice that exists: for ``variant`` on ``device`` (key ``slower_cuda``), for the
        variant, for the device (None when unknown), or for ``any``."""
        known = dict(self.texts)
        return next(
            (known[key] for key in (f"{variant}_{device}", variant, device, "any") if key in known), self.texts[0][1]
        )

    @property
    def by_device(self) -> tuple[tuple[str, str], ...]:
        """Each distinct piece of advice with its devices (or variants), joined by commas. The fallback is last."""
        merged: dict[str, list[str]] = {}
        for key, text in self.texts:
            merged.setdefault(text, []).append(key)
        named = [(_OTHERS if "any" in keys else ", ".join(keys), text) for text, keys in merged.items()]
        return tuple(sorted(named, key=lambda one: one[0] == _OTHERS))

    @property
    def whole(self) -> str:
        """The complete advice: one paragraph or, if devices or variants have different advice, a paragraph for each
        piece of advice, which names them."""
        texts = self.by_device
        return texts[0][1] if len(texts) == 1 else "\n\n".join(f"For {devices}: {text}" for devices, text in texts)


@dataclass(frozen=True)
class Rule:
    """A rule. ``sql`` is None for rules that the engine itself reports (TRC000, TRC001).

    ``severity``: the severity of findings without a gain, or of all findings if it is "error" or was set by the user
    (``severity_is_set``).
    ``scope``: whether the query runs once per rank or once over all ranks.
    ``retired``: codes and names of this rule, or of rules merged into it, in earlier versions.
    ``explained_by``: codes, or code prefixes, of rules that report causes of this finding. The finding is ranked below
    the cause that explains it.
    ``needs_names``: names of host slices, with ``*`` as a wildcard. If none of them occurs, the query is skipped, and
    the rule finds nothing.
    ``only_if``: a cheap query. If it returns no row, ``sql`` is skipped, and the rule finds nothing.
    ``advice``: false for a rule about the trace instead of the run.
    ``explains``: the causes of idle time (the table gap_causes), or ``exposed_collectives``, that a finding of this
    rule accounts for.
    ``relieves``: the side (host or device) whose work the fix reduces. The table gain_limits then caps the gain.
    ``whatif``: a query for the changes that the fix makes to the schedule of a rank.
    ``whatif_ranks``: a query for the work that the fix takes away from stragglers.
    ``always``: whether the rule runs even if it is not selected.
    ``changes_results``: whether the fix changes what the program computes, by more than rounding. Its findings are
    ranked below others of about the same gain.
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
    only_if: str | None = None
    advice: bool = True
    explains: tuple[str, ...] = field(default=())
    relieves: Side | None = None
    whatif: str | None = None
    whatif_ranks: str | None = None
    severity_is_set: bool = False
    always: bool = False
    changes_results: bool = False

    @property
    def shown_severity(self) -> str:
        """The severity to show on the rule's page: ``by cost`` if it depends on the gain, otherwise the rule's own."""
        by_cost = self.advice and self.severity != "error" and not self.severity_is_set
        return f"by cost ({self.severity} if unknown)" if by_cost and "gain_ns" in (self.sql or "") else self.severity

    @property
    def device_words(self) -> str:
        """The devices of the rule, for a sentence."""
        return "any device" if self.devices == ("any",) else ", ".join(self.devices)

    def applies_to(self, device: str | None) -> bool:
        """Whether the rule applies to runs on ``device`` (hpu, cuda, rocm, xpu, mtia, cpu; None when unknown).

        All rules apply to inputs that show no device, such as a configuration file.
        """
        if device is None or self.devices == ("any",) or device in self.devices:
            return True
        return "accelerators" in self.devices and device in accelerators()
