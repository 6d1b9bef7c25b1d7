"""Documentation of rules: as text, as Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perftool.model.links import rule_url
from perftool.model.rule import Rule
from perftool.reporters.json import dump


def render_rules_text(rules: Sequence[Rule]) -> bytes:
    """Render a single rule in full, and several as a table of code, status, severity, name and summary."""
    if len(rules) == 1:
        return _page(rules[0]).encode()
    width = max((len(rule.name) for rule in rules), default=0)
    lines = [
        f"{rule.code:7} {rule.status:10} {rule.severity:7} {rule.name:{width}}  {rule.summary}\n" for rule in rules
    ]
    return "".join(lines).encode()


def render_rules_markdown(rules: Sequence[Rule]) -> bytes:
    """Concatenate the pages of all ``rules``."""
    return "\n".join(_page(rule) for rule in rules).encode()


def render_rule_json(rule: Rule) -> bytes:
    """Render a rule as a JSON object."""
    return dump(rule_dict(rule), indent=True)


def render_rules_json(rules: Sequence[Rule]) -> bytes:
    """Render all rules as a JSON array."""
    return dump([rule_dict(rule) for rule in rules], indent=True)


def rule_dict(rule: Rule) -> dict[str, Any]:
    """Convert a rule to plain values."""
    return {
        "name": rule.name, "code": rule.code, "summary": rule.summary, "message": rule.message,
        "explanation": _page(rule), "severity": rule.severity, "confidence": rule.confidence,
        "status": rule.status, "since": rule.since, "devices": list(rule.devices), "needs": list(rule.needs),
        "retired": list(rule.retired),
        "params": [
            {"name": p.name, "default": p.value, "unit": p.unit, "why": " ".join(p.why.split())} for p in rule.params
        ],
        "tags": list(rule.tags), "url": rule_url(rule.code, rule.references),
    }  # fmt: skip


def _page(rule: Rule) -> str:
    facts = (
        f"{rule.status} since {rule.since}, severity {rule.shown_severity}, confidence {rule.confidence}, "
        f"for {rule.device_words}"
    )
    parts = [f"# {rule.name} ({rule.code})", facts, f"{rule.summary}."]
    if rule.retired:
        parts.append(f"Formerly: {', '.join(rule.retired)}.")
    if rule.needs:
        parts.append(f"Needs: {', '.join(rule.needs)}.")
    if rule.params:
        parts.append("## Thresholds\n\n" + "\n".join(_thresholds(rule)))
    parts += [f"## Why\n\n{rule.why}", f"## Fix\n\n{rule.fix.whole}"]
    if rule.example:
        parts.append(f"## Example\n\n```python\n{rule.example}\n```")
    if rule.references:
        parts.append("## References\n\n" + "\n".join(f"- {link}" for link in rule.references))
    return "\n\n".join(parts) + "\n"


def _thresholds(rule: Rule) -> list[str]:
    return [
        f"- `{param.name}` = {param.value} {param.unit} (key `rules.{rule.code}.{param.name}`): "
        + " ".join(param.why.split())
        for param in rule.params
    ]
