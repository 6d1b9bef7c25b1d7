"""What slows a PyTorch run down, what each cause costs, and what to change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Finding", "Report", "Trace", "__version__", "analyze", "open_trace", "profile", "whatif"]

if TYPE_CHECKING:
    from perftool.api import Trace, analyze, open_trace, whatif
    from perftool.integrations.recording import profile
    from perftool.model.report import Finding, Report

_HOMES = {
    "Finding": "perftool.model.report",
    "Report": "perftool.model.report",
    "Trace": "perftool.api",
    "analyze": "perftool.api",
    "open_trace": "perftool.api",
    "profile": "perftool.integrations.recording",
    "whatif": "perftool.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ``--help`` does not pay for DuckDB and pandas."""
    if name not in _HOMES:
        raise AttributeError(f"module 'perftool' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, including those not imported yet."""
    return __all__
