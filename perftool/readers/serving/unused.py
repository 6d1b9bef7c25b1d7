"""Finds results of benchmark clients and metrics pages that are not used, although they may be those that count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath

from perftool.model.records import LogReading
from perftool.model.serving import ClientResult, MetricsPage
from perftool.readers.serving.chosen import chosen_result, last_page
from perftool.units import NS_PER_S, format_count

# The client of vLLM adds the end of its run to the name of a file.
_DATE = re.compile(r"(?<![0-9])[0-9]{8}-[0-9]{6}(?![0-9])")
# A printed number has two decimals.
_ROUNDED = 0.005 * (1 + 1e-6)
# Files that are copied together are saved within this time of each other, in any order.
_COPIED_NS = 2 * NS_PER_S


@dataclass(frozen=True)
class Served:
    """A file with its contents. ``saved_ns`` is when it was saved, in ns since 1970; None if that is unknown.
    ``is_named`` says whether the user named it."""

    path: str
    reading: LogReading
    saved_ns: int | None
    is_named: bool


def unused(files: Sequence[Served]) -> list[list[str]]:
    """For each of ``files``, clauses about a result and a page in it that are not used, perhaps wrongly.

    Older results, and pages from before the start of the server, are left out rightly, unless the user named their
    file.
    """
    return [[*results, *pages] for results, pages in zip(_results(files), _pages(files), strict=True)]


def _results(files: Sequence[Served]) -> Iterator[list[str]]:
    chosen = chosen_result([one for file in files for one in file.reading.results])
    if chosen is None:
        yield from ([] for _ in files)
        return
    of_chosen = next(file for file in files if any(one is chosen for one in file.reading.results))
    for file in files:
        left = _results_in_doubt(file, chosen, of_chosen)
        clauses = [
            f"a result of {_requests(one)} is not used: that of {_requests(chosen)} in {of_chosen.path} counts"
            for one in left
        ]
        yield clauses[:1]


def _results_in_doubt(file: Served, chosen: ClientResult, of_chosen: Served) -> list[ClientResult]:
    results = file.reading.results
    used = [at for at, one in enumerate(results) if one is chosen or _is_copy(one, chosen)]
    if used:
        # The results in a file are in the order of their runs.
        return [one for at, one in enumerate(results) if at > used[-1]]
    if file.is_named and file.reading.records == len(results):
        return list(results)
    return [one for one in results if not _is_older(one, file, chosen, of_chosen)]


def _requests(result: ClientResult) -> str:
    return f"{format_count(result.requests)} request{'' if result.requests == 1 else 's'}"


def _is_copy(one: ClientResult, chosen: ClientResult) -> bool:
    """Whether two results are of the same run, one of them perhaps printed."""
    first, second = ({(each.name, each.statistic): each.value for each in result.numbers} for result in (one, chosen))
    shared = first.keys() & second.keys()
    tolerance = 0 if one.exact and chosen.exact else _ROUNDED
    return len(shared) > 1 and all(abs(first[key] - second[key]) <= tolerance for key in shared)


def _is_older(one: ClientResult, file: Served, chosen: ClientResult, of_chosen: Served) -> bool:
    """Whether ``one`` was over before ``chosen`` began, according to the dates of both, or else was saved earlier."""
    ended, last = _end_s(one, file), _end_s(chosen, of_chosen)
    if ended is not None and last is not None:
        return ended <= last - chosen.value("duration_s")
    saved = file.saved_ns, of_chosen.saved_ns
    return None not in saved and (saved[0] or 0) < (saved[1] or 0) - _COPIED_NS


def _end_s(result: ClientResult, file: Served) -> float | None:
    """The date of a result, in the result or in the name of its file."""
    in_name = _DATE.findall(PurePath(file.path).name)
    date = result.date or (in_name[-1] if in_name else "")
    try:
        return datetime.strptime(date, "%Y%m%d-%H%M%S").timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _pages(files: Sequence[Served]) -> Iterator[list[str]]:
    last = last_page(page for file in files for page in file.reading.pages)
    of_last = next((file for file in files if any(page is last for page in file.reading.pages)), None)
    if last is None or of_last is None:
        yield from ([] for _ in files)
        return
    clause = f"a page of another server, or of one that was restarted, is not used: that in {of_last.path} counts"
    for file in files:
        yield [clause] if any(_is_in_doubt(page, file, last, of_last) for page in file.reading.pages) else []


def _is_in_doubt(page: MetricsPage, file: Served, last: MetricsPage, of_last: Served) -> bool:
    if page is last:
        return False
    if page.started != last.started:
        is_before = None not in (last.started, file.saved_ns) and (file.saved_ns or 0) <= (last.started or 0) * NS_PER_S
        return file.is_named or not is_before
    if last.started is not None or None in (file.saved_ns, of_last.saved_ns):
        return False
    # The totals of a server only grow, unless it is restarted.
    is_later = (file.saved_ns or 0) > (of_last.saved_ns or 0) + _COPIED_NS
    return is_later and page.totals != last.totals
