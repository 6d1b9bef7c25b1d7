"""Formats lines of the user's code: ``train.py:33 main``."""

from __future__ import annotations

from perftool.model.report import Finding, Source
from perftool.reporters.escape import one_line
from perftool.units import format_ns, format_ratio

_LONGEST = 200


def weighed_source(source: Source) -> str:
    """Format a line of code with its time and its share of the finding's time."""
    share = format_ratio(source.share)
    return f"{plain_source(source)} ({f'{format_ns(source.ns)}, {share}' if source.ns else share})"


def plain_source(source: Source) -> str:
    """Format a line of code; the start of a long path is cut off."""
    text = one_line(str(source))
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"


def shown_sources(finding: Finding, most: int = 3) -> str:
    """List the lines of code responsible for ``finding``, heaviest first, with their shares if there are several."""
    places = finding.location.sources[:most]
    return ", ".join(map(weighed_source if len(places) > 1 else plain_source, places))
