"""Reads all variables in the start-up banner of Gaudi's PyTorch bridge, because their names differ between releases."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perftool.model.records import ConfigEntry, LogReading
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine

TITLES = ("HABANA PT BRIDGE CONFIGURATION", "HABANA SW VERSION", ": System Configuration :")
_VARIABLE = re.compile(r"\s*(?P<key>[A-Z][A-Z0-9_]*) = ?(?P<value>.*)")
_SYSTEM = re.compile(r"\s*(?P<key>Num CPU Cores|CPU RAM)\s*: (?P<value>.*)")
_END = re.compile(r"\s*-{20,}\s*$")
# A banner without an end is assumed to end after this many lines. A complete banner has about twenty.
_MAX_LINES = 60


@dataclass
class BannerScanner:
    """Collects the settings in banners from the lines of a log, fed in order. Skips unrelated lines in between."""

    tally: IssueTally
    _left: dict[int | None, int] = field(default_factory=dict)
    _entries: dict[tuple[str, str, int | None], ConfigEntry] = field(default_factory=dict)

    def feed(self, line: LogLine) -> None:
        """Keep the settings in ``line`` if it belongs to a banner."""
        text = line.text
        if TITLES[0] in text or TITLES[1] in text or TITLES[2] in text:
            self._left[line.rank] = _MAX_LINES
        elif self._left and (left := self._left.get(line.rank)) is not None:
            self._inside(line, left)

    @property
    def in_banner(self) -> bool:
        """Whether the next line may belong to a banner."""
        return bool(self._left)

    def reading(self) -> LogReading:
        """Return one entry per variable, value and rank, in the order of the log."""
        return LogReading(config=tuple(self._entries.values()), kind="runtime_log")

    def _inside(self, line: LogLine, left: int) -> None:
        match = _VARIABLE.match(line.text) or _SYSTEM.match(line.text)
        if match is not None:
            entry = ConfigEntry("banner", match["key"], match["value"].strip(), line.rank, line.number)
            # Keep equal entries only once, because every process prints the banner if the variable RANK is not set.
            kind = entry.key, entry.value, entry.rank
            if kind not in self._entries and self.tally.has_room(len(self._entries), "settings", line.number):
                self._entries[kind] = entry
        elif _END.match(line.text):
            del self._left[line.rank]
        elif left == 0:
            del self._left[line.rank]
            self.tally.note("cut banner", "the start-up banner has no end", line.number)
        else:
            self._left[line.rank] = left - 1
