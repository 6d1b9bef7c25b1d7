"""Readable places in the user's code: ``train.py:33 main``."""

from __future__ import annotations

from perftool.model.report import Finding, Source
from perftool.reporters.escape import one_line
from perftool.units import format_ns, format_ratio

_LONGEST = 200


def weighed_source(source: Source) -> str:
    """The line of code with its time and its share of the time that the finding is about."""
    share = format_ratio(source.share)
    return f"{plain_source(source)} ({f'{format_ns(source.ns)}, {share}' if source.ns else share})"


def plain_source(source: Source) -> str:
    """The line of code without its time and share; the start of a long path is cut off."""
    text = one_line(str(source))
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"


def shown_sources(finding: Finding, most: int = 3) -> str:
    """The lines behind ``finding``, heaviest first, with shares if there are several; empty if there are none."""
    places = finding.location.sources[:most]
    return ", ".join(map(weighed_source if len(places) > 1 else plain_source, places))
