"""Pages of the documentation that findings and reports point to."""

from __future__ import annotations

from collections.abc import Sequence

# The same as in [project.urls] of pyproject.toml; a test holds them together.
DOCUMENTATION = "https://habana-perf-tool.readthedocs.io/en/latest/"
IDLE_TIME = f"{DOCUMENTATION}idle-time/"
# The first digit of the codes of other people's rules.
_OTHERS = "9"


def rule_url(code: str, references: Sequence[str] = ()) -> str | None:
    """The page of the rule ``code``; of a rule that does not come with the program, its first reference."""
    if code[3:4] == _OTHERS:
        return references[0] if references else None
    return f"{DOCUMENTATION}rules/{code}/"


def cause_url(cause: str) -> str:
    """Where a cause of idle time is explained."""
    return f"{IDLE_TIME}#{cause}"
