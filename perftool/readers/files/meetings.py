"""Checks whether two traces share collectives. If so, they belong to one run, even if they do not state their ranks."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cache

from perftool.errors import InputError
from perftool.model.vendors import vendors
from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import ByteStream, reads_once
from perftool.readers.identity import base_ns

_ROLES = {"collective", "host_collective", "process_group"}
_EVENT = re.compile(
    rb'"name"\s*:\s*"([^"\\]{1,200})"[^{}]{0,400}?"ts"\s*:\s*"?(\d{1,19})[\d.]*"?(?:\s*,\s*"dur"\s*:\s*"?(\d{1,15}))?'
)
# Ranks take part in collectives in every step, so the beginning of a recording is enough.
_MOST_BYTES = 64 << 20

# For each name of a collective in a trace: its first start and its last end, in ns since 1970.
Collectives = dict[str, tuple[int, int]]


def met(one: str, other: str) -> bool:
    """Whether both traces contain collectives with the same name at overlapping times."""
    first, second = _collectives(one), _collectives(other)
    return any(
        first[name][0] <= second[name][1] and second[name][0] <= first[name][1] for name in first.keys() & second.keys()
    )


@cache
def _collectives(path: str) -> Collectives:
    if reads_once(path) or is_url(path):
        return {}
    found: Collectives = {}
    pattern, base, size = _pattern(), base_ns(path), 0
    try:
        with ByteStream(path) as stream:
            for block in stream.blocks():
                for name, time, length in _EVENT.findall(block):
                    text = name.decode("utf-8", "replace")
                    if pattern.match(text.lower()):
                        begin = int(time) * 1000 + base
                        end = begin + int(length or 0) * 1000
                        first, last = found.get(text, (begin, end))
                        found[text] = min(first, begin), max(last, end)
                size += len(block)
                if size >= _MOST_BYTES:
                    break
    except InputError:
        # The reader of the trace reports the error.
        return {}
    return found


@cache
def _pattern() -> re.Pattern[str]:
    names = {name.pattern for vendor in vendors() for name in vendor.names if name.role in _ROLES}
    return re.compile("|".join(map(translate, sorted(names))))
