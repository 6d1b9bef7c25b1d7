"""Parses times of logs and metrics files into integer nanoseconds."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import lru_cache

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
# Stands in for a year that is not stated. It is a leap year, so every date exists.
_UNSTATED_YEAR = 1972
_YEAR_NS, _NEXT_YEAR_NS, _MARCH_NS = (
    int(datetime(year, month, 1, tzinfo=timezone.utc).timestamp()) * SECOND_NS
    for year, month in ((_UNSTATED_YEAR, 1), (_UNSTATED_YEAR + 1, 1), (_UNSTATED_YEAR, 3))
)

_TIME = re.compile(
    r"(?:(?:(?P<year>\d{4})-)?(?P<month>\d\d)-(?P<day>\d\d)[ T])?"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:(?:\.|::)(?P<fraction>\d{1,9})\d*)?\s*$"
)


def parse_time(text: str) -> int | None:
    """Return nanoseconds since 1970 on the writer's clock, or since midnight if ``text`` has no date. Return None if
    ``text`` is not a time.

    The time zone is unknown, so the clock is assumed to be UTC, and only differences are exact. A date without a year
    is one of 1972.
    """
    match = _TIME.match(text.strip())
    if match is None:
        return None
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    fraction_ns = int((match["fraction"] or "").ljust(9, "0"))
    clock_ns = ((hour * 60 + minute) * 60 + second) * SECOND_NS + fraction_ns
    if match["month"] is None:
        return clock_ns
    try:
        day = datetime(
            int(match["year"] or _UNSTATED_YEAR), int(match["month"]), int(match["day"]), tzinfo=timezone.utc
        )
    except ValueError:
        return None
    return int(day.timestamp()) * SECOND_NS + clock_ns


def parse_time_of_day(clock: str, fraction: str) -> int:
    """Return nanoseconds since midnight for a ``clock`` (``HH:MM:SS``) and the digits of its ``fraction``."""
    return _seconds(clock) * SECOND_NS + int(fraction[:9].ljust(9, "0"))


# Cached, because many lines have the same second.
@lru_cache(maxsize=64)
def _seconds(clock: str) -> int:
    hour, minute, second = clock.split(":")
    return (int(hour) * 60 + int(minute)) * 60 + int(second)


def is_dated(time_ns: int) -> bool:
    """Whether ``time_ns`` includes a date. If it does not, it may still include days since the first line of a log."""
    return time_ns >= 365 * DAY_NS


def elapsed(earlier_ns: int, later_ns: int) -> int:
    """Return the time between two lines, negative if they are out of order. If they state no year, the year is that in
    which they are closest: a new one at New Year, and an ordinary one if the 29th of February is in between.
    """
    since_ns = later_ns - earlier_ns
    if not all(_YEAR_NS <= time_ns < _NEXT_YEAR_NS for time_ns in (earlier_ns, later_ns)):
        return since_ns
    half_ns = (_NEXT_YEAR_NS - _YEAR_NS) // 2
    is_next, is_last = since_ns < -half_ns, since_ns > half_ns
    starts_before = is_next or (earlier_ns < _MARCH_NS - DAY_NS and not is_last)
    skips_a_day = starts_before and later_ns >= _MARCH_NS
    return since_ns + 2 * half_ns * (is_next - is_last) - DAY_NS * skips_a_day


def time_of_day(time_ns: int) -> int:
    """Return the time of day of ``time_ns``, in ns since midnight. ``time_ns`` may include a date."""
    return time_ns % DAY_NS
