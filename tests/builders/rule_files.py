"""A valid rule file, and variants of it."""

from __future__ import annotations

from pathlib import Path

from perftool.engine.rules.pack import load_rule
from perftool.model.rule import Rule

TEXT = """
code = "USR901"
name = "a-rule"
summary = "Something"
severity = "warning"
confidence = "high"
status = "stable"
since = "0.1"
devices = "any"
needs = ["steps"]

[params.limit]
value = 2
unit = "steps"
why = "because"

[find]
sql = "SELECT 'all' AS subject, 1 AS n"

[text]
message = "{subject}: {n}"
why = "why"
fix = "fix"
"""


def write(folder: Path, *changes: tuple[str, str], name: str = "USR901.toml") -> Path:
    """Write the rule file with each old string replaced by the new one."""
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def rule(folder: Path, sql: str | None = None, message: str | None = None, **keys: str) -> Rule:
    """Load a rule with another query or message, or with other values of ``keys`` (as TOML)."""
    changes = [] if sql is None else [("SELECT 'all' AS subject, 1 AS n", sql)]
    changes += [] if message is None else [("{subject}: {n}", message)]
    for key, value in keys.items():
        line = next(line for line in TEXT.splitlines() if line.startswith(f"{key} = "))
        changes.append((line, f"{key} = {value}"))
    code = keys.get("code", '"USR901"').strip('"')
    return load_rule(write(folder, *changes, name=f"{code}.toml"))
