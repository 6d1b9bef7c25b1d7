"""Documentation pages that findings and reports link to."""

from __future__ import annotations

from collections.abc import Sequence

# The same URL as in [project.urls] of pyproject.toml; a test compares them.
DOCUMENTATION = "https://habana-perf-tool.readthedocs.io/en/latest/"
IDLE_TIME = f"{DOCUMENTATION}idle-time/"
# The first digit in the code of a third-party rule.
_OTHERS = "9"


def rule_url(code: str, references: Sequence[str] = ()) -> str | None:
    """Return the page of the rule ``code``; for a third-party rule, its first web reference."""
    if code[-3:-2] == _OTHERS:
        return next((link for link in references if link.startswith(("https://", "http://"))), None)
    return f"{DOCUMENTATION}rules/{code}/"


def cause_url(cause: str) -> str:
    """Return the page that explains a cause of idle time."""
    return f"{IDLE_TIME}#{cause}"


def without_query(path: str) -> str:
    """Remove the query from ``path`` if it is a URL, because the query may contain a signature."""
    return path.split("?")[0].split("#")[0] if path.lower().startswith(("http://", "https://")) else path
