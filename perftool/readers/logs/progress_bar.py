"""Counts the refreshes of progress bars, because each refresh may make the host wait for the device."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perftool.model.records import LogEvent, LogReading
from perftool.readers.text.log_lines import LogLine

# tqdm, as used by Lightning and Hugging Face: `Training:  3%|▎  | 3/100 [00:01<00:32,  3.01it/s, loss=0.1]`.
# The pattern starts at the percent sign, because a pattern that begins with the name would be tried at every character.
_BAR = re.compile(
    r"%\|[^|]*\|\s*(?P<done>\d{1,12})/(?P<total>\d{1,12}) "
    r"\[[\d:]{1,20}<[^,\]]{0,40},\s*[\d.?]{1,20}\s*(?:s/\w+|\w{1,20}/s)"
)
_APART = re.compile(r"[|%:]")
CORE = "%|"
_DIGITS = re.compile(r"\d+")
_MAX_BARS = 1000
# How far a bar may extend to the left and right of its percent sign.
_BEFORE, _AFTER = 80, 600
_LONGEST_NAME = 61


@dataclass
class _Bar:
    first: LogLine
    total: int
    done: int
    iterations: int = 0
    refreshes: int = 0
    last_line: int = 0


class ProgressScanner:
    """Collects progress bars from the lines of a log, fed in order. A bar that restarts in the next epoch counts as the
    same bar.

    Uses only the differences between refreshes, because the log may begin in the middle of a run.
    """

    def __init__(self) -> None:
        self._bars: dict[tuple[str, int | None], _Bar] = {}

    def feed(self, line: LogLine) -> None:
        """If ``line`` contains a bar, add its progress since its previous line."""
        match = _bar(line.text)
        if match is None:
            return
        name = _DIGITS.sub("#", _name_of(line.text, match.start()))
        key = (name, line.rank)
        if key not in self._bars and len(self._bars) >= _MAX_BARS:
            return
        done = int(match["done"])
        bar = self._bars.setdefault(key, _Bar(line.without_text, int(match["total"]), done))
        if done > bar.done:
            bar.iterations += done - bar.done
            bar.refreshes += 1
        bar.done, bar.last_line = done, line.number

    def reading(self) -> LogReading:
        """Return one ``progress_bar`` event per bar: ``value`` is the iterations per refresh, ``limit`` the bar's
        total.
        """
        events = tuple(
            LogEvent(
                "progress_bar",
                name,
                count=bar.refreshes,
                value=bar.iterations / bar.refreshes,
                limit=bar.total,
                unit="iterations",
                rank=rank,
                line=bar.first.number,
                last_line=bar.last_line,
                time_ns=bar.first.prefix.time_ns,
            )
            for (name, rank), bar in self._bars.items()
            if bar.refreshes
        )
        return LogReading(events=events, kind="runtime_log")


def _bar(text: str) -> re.Match[str] | None:
    """Return the first progress bar in ``text``, starting at its percent sign."""
    at = text.find(CORE)
    while at >= 0:
        if text[at - 1 : at].isdecimal() and (match := _BAR.match(text, at, at + _AFTER)):
            return match
        at = text.find(CORE, at + 1)
    return None


def _name_of(text: str, percent: int) -> str:
    """Return the name before the colon and the number that precede ``percent``, or an empty string if there is no
    colon.
    """
    before, colon, number = text[max(percent - _BEFORE, 0) : percent].rpartition(":")
    if not colon or not number.strip().isdecimal():
        return ""
    return _APART.split(before)[-1][-_LONGEST_NAME:].lstrip("0123456789").strip()
