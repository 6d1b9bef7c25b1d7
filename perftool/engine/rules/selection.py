"""Selects the rules to run. The more specific selector wins, regardless of the order of options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from perftool.errors import RuleError
from perftool.model.rule import Rule

COMMAND_LINE = "the command line"
ALL = "ALL"
# The specificity of a complete code or name. That of a prefix is its length, which is always smaller.
_EXACT = 100


@dataclass(frozen=True)
class Selector:
    """A code, a name, a code prefix, or ALL. ``origin`` says where it was given, or is empty."""

    text: str
    origin: str = COMMAND_LINE

    def specificity(self, rule: Rule) -> int | None:
        """Return how specifically this selects ``rule``: 0 for ALL, the length of a prefix, the maximum for a code or
        name, or None if this does not select it."""
        if self.text == ALL:
            return 0
        if self.text in (rule.code, rule.name):
            return _EXACT
        return len(self.text) if rule.code.startswith(self.text) else None

    def means(self, code: str, name: str) -> bool:
        """Whether this selects the rule with ``code`` and ``name``."""
        return self.text in (ALL, name) or code.startswith(self.text)


@dataclass(frozen=True)
class Redirected:
    """Selectors of current rules, and a warning for each retired code or name that was given."""

    selectors: tuple[Selector, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """The requested rules: those selected by ``select`` but not by ``ignore``."""

    select: tuple[Selector, ...] = (Selector(ALL, "the defaults"),)
    ignore: tuple[Selector, ...] = ()
    preview: bool = False


@dataclass(frozen=True)
class Chosen:
    """The rules to run, in the given order, and warnings for the user."""

    rules: tuple[Rule, ...]
    warnings: tuple[str, ...]


def selectors(values: Iterable[str], origin: str = COMMAND_LINE) -> tuple[Selector, ...]:
    """Parse the selectors in ``values``. Each value may contain several, separated by commas."""
    texts = (text.strip() for value in values for text in value.split(","))
    return tuple(Selector(text, origin) for text in texts if text)


def choose(rules: Sequence[Rule], selection: Selection) -> Chosen:
    """Choose the rules of ``selection``.

    Raise RuleError if a selector matches no rule, or if no rule is left. Rules about lost input and crashed rules
    always run unless their exact code or name is ignored, because a check must not pass just because its input was
    unreadable, truncated or without device work.
    """
    select, ignore = redirect(selection.select, rules), redirect(selection.ignore, rules)
    selection = replace(selection, select=select.selectors, ignore=ignore.selectors)
    for selector in (*selection.select, *selection.ignore):
        require_known(selector, rules)
    chosen = tuple(rule for rule in rules if _is_selected(rule, selection) or _stays(rule, selection))
    if not any(_is_selected(rule, selection) for rule in rules):
        raise RuleError("no rule is left to run: every selected rule is either ignored or in preview")
    return Chosen(chosen, (*select.warnings, *ignore.warnings, *_warnings(rules, selection)))


def successor(text: str, rules: Iterable[Rule]) -> Rule | None:
    """Return the rule that replaced the retired code or name ``text``, or None if there is none."""
    return next((rule for rule in rules if text in rule.retired), None)


def redirect(chosen: Iterable[Selector], rules: Sequence[Rule]) -> Redirected:
    """Replace retired codes and names in ``chosen`` with the codes of their successors."""
    selectors: list[Selector] = []
    warnings: list[str] = []
    for selector in chosen:
        rule = successor(selector.text, rules)
        selectors.append(replace(selector, text=rule.code) if rule else selector)
        if rule:
            warnings.append(f"{selector.text} (from {selector.origin}) is retired; it is now {rule.code} ({rule.name})")
    return Redirected(tuple(selectors), tuple(dict.fromkeys(warnings)))


def require_known(selector: Selector, rules: Sequence[Rule]) -> None:
    """Raise RuleError if ``selector`` matches none of ``rules``."""
    if any(selector.specificity(rule) is not None for rule in rules):
        return
    known = [text for rule in rules for text in (rule.code, rule.name)]
    close = get_close_matches(selector.text, known, n=1) or get_close_matches(selector.text.upper(), known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    what = f"rule selector {selector.text!r} (from {selector.origin})" if selector.origin else f"rule {selector.text!r}"
    raise RuleError(f"unknown {what}{hint}")


def _stays(rule: Rule, selection: Selection) -> bool:
    """Whether ``rule`` runs even if it is not selected."""
    ignored = _strongest(rule, selection.ignore)
    return rule.always and (ignored is None or ignored[0] < _EXACT)


def _is_selected(rule: Rule, selection: Selection) -> bool:
    selected, ignored = _strongest(rule, selection.select), _strongest(rule, selection.ignore)
    if rule.sql is None or selected is None or (ignored is not None and ignored >= selected):
        return False
    if rule.status == "preview":
        return selection.preview
    return rule.status != "deprecated" or selected[0] == _EXACT


def _strongest(rule: Rule, chosen: Iterable[Selector]) -> tuple[int, bool] | None:
    """Return the specificity of the most specific selector of ``rule``, and whether it comes from the command line, or
    None if no selector matches."""
    found = ((selector.specificity(rule), selector.origin == COMMAND_LINE) for selector in chosen)
    return max(((level, flag) for level, flag in found if level is not None), default=None)


def _warnings(rules: Sequence[Rule], selection: Selection) -> Iterable[str]:
    for selector in dict.fromkeys(selection.select):
        for rule in rules:
            if selector.specificity(rule) != _EXACT:
                continue
            if rule.status == "deprecated":
                yield f"{rule.code} ({rule.name}) is deprecated"
            elif rule.status == "preview" and not selection.preview:
                yield f"{rule.code} ({rule.name}) is in preview and needs --preview"
    narrowed = any(selector.origin == COMMAND_LINE for selector in selection.select)
    for selector in dict.fromkeys(selection.ignore):
        # A configuration file applies to all runs, so its ignores may have no effect if fewer rules are selected.
        if narrowed and selector.origin != COMMAND_LINE:
            continue
        if not any(_removes(selector, rule, selection) for rule in rules):
            yield f"ignoring {selector.text} (from {selector.origin}) removes no rule"


def _removes(selector: Selector, rule: Rule, selection: Selection) -> bool:
    """Whether ``rule`` would be selected without ``selector``. Preview rules count even if they are off."""
    level = selector.specificity(rule)
    if level is None or rule.always:
        return level == _EXACT
    selected = _strongest(rule, selection.select)
    return selected is not None and (level, selector.origin == COMMAND_LINE) >= selected
