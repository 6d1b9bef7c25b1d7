"""Lines of the user's code as people read them: ``train.py:33 main``."""

from __future__ import annotations

from perftool.model.report import Finding, Source
from perftool.reporters.escape import one_line
from perftool.units import format_ratio


def source_name(source: Source) -> str:
    """``file:line function``, which editors and terminals open; a module by its name alone."""
    if source.file is None:
        return one_line(source.function)
    line = f":{source.line}" if source.line else ""
    return one_line(f"{source.file}{line} {source.function}")


def shown_sources(finding: Finding, most: int = 3) -> str:
    """The lines behind ``finding``, the heaviest first, with shares where there are several; empty without any."""
    places = finding.location.sources[:most]
    shares = len(places) > 1
    return ", ".join(source_name(one) + (f" ({format_ratio(one.share)})" if shares else "") for one in places)
