"""Finds logs of servers, benchmark results and metrics pages that are not used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perftool.model.records import LogReading
from perftool.model.serving import ClientResult, MetricsPage
from perftool.readers.files.companions import is_rotated
from perftool.readers.serving.chosen import chosen_result, first_and_last
from perftool.readers.text.log_time import is_dated
from perftool.units import NS_PER_S, format_count

# A printed number has two decimals.
_ROUNDED = 0.005 * (1 + 1e-6)
# Files that are copied together are saved within this time of each other, in any order.
_COPIED_NS = 2 * NS_PER_S
# Servers print statistics every ten seconds.
_INTERVAL_NS = 10 * NS_PER_S


@dataclass(frozen=True)
class Served:
    """A file with its contents. ``saved_ns`` is the time when the file was saved, in ns since 1970; None if unknown."""

    path: str
    reading: LogReading
    saved_ns: int | None


def unused(files: Sequence[Served]) -> list[list[str]]:
    """Return, for each file, a clause about its first unused result and one about an unused page.

    Copies of the used result, and results before it in its file (warm-ups), are not mentioned.
    """
    return [[*results, *pages] for results, pages in zip(_results(files), _pages(files), strict=True)]


def older_logs(logs: Sequence[tuple[str, LogReading]]) -> list[str | None]:
    """Return, for each of ``logs`` (a path and its contents), a clause if it comes from an earlier run of the server
    and is not used. The statistics of replicas overlap in time with those of the newest log; those of older parts of a
    rotated log do not. Logs without dates are used.
    """
    times = [[one.time_ns for one in log.intervals if one.time_ns and is_dated(one.time_ns)] for _, log in logs]
    dated = [(max(found), path, min(found)) for (path, _), found in zip(logs, times, strict=True) if found]
    _, newest, first = max(dated, default=(0, "", 0))
    clause = f"the log of another run of the server is not used, because the newest one, {newest}, is used"
    apart = [0 if is_rotated(path) else _INTERVAL_NS for path, _ in logs]
    return [
        clause if found and max(found) < first - interval else None
        for found, interval in zip(times, apart, strict=True)
    ]


def _results(files: Sequence[Served]) -> Iterator[list[str]]:
    chosen = chosen_result([one for file in files for one in file.reading.results])
    if chosen is None:
        yield from ([] for _ in files)
        return
    of_chosen = next(file for file in files if any(one is chosen for one in file.reading.results))
    for file in files:
        results = file.reading.results
        # Damage may have removed the numbers that differ.
        is_whole = not file.reading.issues
        used = [at for at, one in enumerate(results) if one is chosen or (is_whole and _is_copy(one, chosen))]
        # The results in a file are in the order of their runs.
        left = results[used[-1] + 1 :] if used else results
        clauses = [
            f"a result for {_requests(one)} is not used, because the one for {_requests(chosen)} in {of_chosen.path} is"
            for one in left
        ]
        yield clauses[:1]


def _requests(result: ClientResult) -> str:
    return f"{format_count(result.requests)} request{'' if result.requests == 1 else 's'}"


def _is_copy(one: ClientResult, chosen: ClientResult) -> bool:
    """Whether two results come from the same run. One of them may be printed, with rounded numbers. Two runs may have
    the same numbers of requests and tokens, but not the same times."""
    first, second = ({(each.name, each.statistic): each.value for each in result.numbers} for result in (one, chosen))
    shared = first.keys() & second.keys()
    tolerance = 0 if one.exact and chosen.exact else _ROUNDED
    # Counts are totals; means, percentiles, rates and the duration are measured.
    is_measured = any(statistic != "total" for _, statistic in shared)
    return len(shared) > 1 and is_measured and all(abs(first[key] - second[key]) <= tolerance for key in shared)


def _pages(files: Sequence[Served]) -> Iterator[list[str]]:
    used = first_and_last(page for file in files for page in file.reading.pages)
    if used is None:
        yield from ([] for _ in files)
        return
    first, last = used
    of_first, of_last = (
        next(file for file in files if any(one is page for one in file.reading.pages)) for page in used
    )
    other = "of another server, or from before or after a restart,"
    clause = f"a metrics page {other} is not used, because that in {of_last.path} is used"
    lacking = f"a metrics page is not used, because that in {of_last.path} lacks one of its counters"
    between = f"a metrics page is not used, because it was saved between those in {of_first.path} and {of_last.path}"
    for file in files:
        pages = file.reading.pages
        if any(page.totals.keys() - last.totals.keys() for page in pages):
            yield [lacking]
        elif any(_is_of_another(page, file, last, of_last) for page in pages):
            yield [clause]
        else:
            # Copies of a used page add nothing.
            yield [between] if any(page.totals not in (first.totals, last.totals) for page in pages) else []


def _is_of_another(page: MetricsPage, file: Served, last: MetricsPage, of_last: Served) -> bool:
    """Whether ``page`` comes from a different server than ``last``, or the server was restarted between them."""
    if page is last:
        return False
    if not page.may_precede(last):
        return True
    if last.starts or None in (file.saved_ns, of_last.saved_ns):
        return False
    # The totals of a server only grow, unless it is restarted.
    is_later = (file.saved_ns or 0) > (of_last.saved_ns or 0) + _COPIED_NS
    return is_later and page.totals != last.totals
