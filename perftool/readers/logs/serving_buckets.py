"""Reads the shapes (buckets) that vLLM on Gaudi prepared before serving, and shapes that had no bucket.

vLLM's plugin for Gaudi logs the batch size, the tokens per request and the blocks of context. The older fork of vLLM
logs only two of these: batch size and tokens for a prompt, batch size and blocks for a decode.
"""

from __future__ import annotations

import re

from perftool.model.records import LogReading
from perftool.model.serving import Bucket, BucketOrigin
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine, own_words

WARMUP = "[Warmup]["
_MISSED, _ADDED, _GENERATED = "was not warmed-up", "Adding new bucket: ", "Generated "
CORES = (WARMUP, _MISSED, _ADDED, " buckets [")

# Matches ('prompt', 4, 1024, 0), (decode, 16, 200), and (0, prompt, 1, 36864, 0), which begins with the rank.
_SHAPE = re.compile(r"(?P<phase>prompt|decode)'?(?P<sizes>(?:, ?\d{1,9}){2,3})\b")
_NEW = re.compile(r"(?P<phase>Prompt|Decode) bucket for .{0,120}: \((?P<sizes>\d{1,9}(?:, ?\d{1,9}){1,2})\)")
_LIST = re.compile(r"Generated \d{1,9} (?P<phase>prompt|decode|spec decode) buckets \[")
_SIZES = re.compile(r"\(\d{1,9}(?:, ?\d{1,9}){1,2}\)")
_WARMED = re.compile(
    r"\[(?:Graph/)?(?P<phase>Prompt|Decode)\]\[\d+/\d+\] batch_size:(?P<batch>\d{1,9})"
    r"(?: (?:query|seq)_len:(?P<query>\d{1,9}))?(?: num_blocks:(?P<blocks>\d{1,9}))?"
)
_DIGITS = re.compile(r"\d+")


class BucketScanner:
    """Collects the distinct buckets from the lines of a log, fed in order."""

    def __init__(self, tally: IssueTally) -> None:
        self._tally = tally
        self._buckets: dict[tuple[object, ...], Bucket] = {}

    def feed(self, line: LogLine) -> None:
        """Keep the shapes in ``line``, and whether they were warmed up, missed or added."""
        text = line.text
        if not any(core in text for core in CORES) or not any(core in own_words(text) for core in CORES):
            return
        if _MISSED in text and (found := _SHAPE.search(text)):
            self._keep(found["phase"], _sizes(found["phase"], found["sizes"]), "missed", line)
        elif _ADDED in text and (found := _NEW.search(text)):
            phase = found["phase"].lower()
            self._keep(phase, _sizes(phase, found["sizes"]), "added", line)
        elif _GENERATED in text and (found := _LIST.search(text)):
            for shape in _SIZES.finditer(text, found.end()):
                self._keep(found["phase"], _sizes(found["phase"], shape[0]), "warmed", line)
        elif WARMUP in text and (found := _WARMED.search(text)):
            query, blocks = (int(found[name]) if found[name] else None for name in ("query", "blocks"))
            self._keep(found["phase"].lower(), (int(found["batch"]), query, blocks), "warmed", line)

    def reading(self) -> LogReading:
        """Return all buckets so far, in the order of the log."""
        return LogReading(buckets=tuple(self._buckets.values()), kind="runtime_log")

    def _keep(self, phase: str, sizes: tuple[int, int | None, int | None], origin: BucketOrigin, line: LogLine) -> None:
        key = (phase, *sizes, origin, line.rank)
        if key not in self._buckets and self._tally.has_room(len(self._buckets), "buckets", line.number):
            self._buckets[key] = Bucket(phase, *sizes, origin, line.rank, line.number)


def _sizes(phase: str, text: str) -> tuple[int, int | None, int | None]:
    """Return the batch size, tokens and blocks in ``text``. If it contains only two numbers, tokens or blocks are None,
    depending on the phase."""
    batch, *others = map(int, _DIGITS.findall(text))
    if len(others) == 2:
        return batch, others[0], others[1]
    return (batch, others[0], None) if phase == "prompt" else (batch, None, others[0])
