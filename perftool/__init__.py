"""What slows a PyTorch run down, what each cause costs, and what to change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Finding", "Report", "TraceStore", "__version__", "analyze", "open_trace", "profile"]

if TYPE_CHECKING:
    from perftool.api import analyze, open_trace
    from perftool.integrations.recording import profile
    from perftool.model.report import Finding, Report
    from perftool.store.trace_store import TraceStore

_HOMES = {
    "Finding": "perftool.model.report",
    "Report": "perftool.model.report",
    "TraceStore": "perftool.store.trace_store",
    "analyze": "perftool.api",
    "open_trace": "perftool.api",
    "profile": "perftool.integrations.recording",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``--help`` does not pay for DuckDB and pandas."""
    if name not in _HOMES:
        raise AttributeError(f"module 'perftool' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
