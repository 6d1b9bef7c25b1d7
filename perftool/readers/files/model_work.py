"""Checks whether a model runs in a trace: on a device, or in iterations of a server."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cache

from perftool.errors import InputError
from perftool.model.vendors import vendors
from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import ByteStream, reads_once

_ON_DEVICE, _ITERATIONS = {"kernel", "memcpy", "memset"}, {"iteration"}
_ANNOTATION = re.compile(rb'"cat"\s*:\s*"user_annotation"\s*,\s*"name"\s*:\s*"([^"\\]{1,200})"')


def runs_model(path: str) -> bool:
    """Whether the trace has device work or iterations of a server, also if that is unknown."""
    if reads_once(path) or is_url(path):
        return True
    work, iteration = _patterns()
    try:
        with ByteStream(path) as stream:
            return any(
                work.search(block) or any(map(iteration.match, _ANNOTATION.findall(block))) for block in stream.blocks()
            )
    except InputError:
        return True


@cache
def _patterns() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return a pattern for the categories of device work, and one for the names of iterations."""
    names = [name for vendor in vendors() for name in vendor.names]
    work = [re.escape(one.pattern) for one in names if one.subject == "category" and one.role in _ON_DEVICE]
    iterations = [translate(one.pattern) for one in names if one.role in _ITERATIONS]
    return (
        re.compile(rf'(?i)"cat"\s*:\s*"(?:{"|".join(sorted(work))})"'.encode()),
        re.compile("|".join(sorted(iterations)).encode(), re.IGNORECASE),
    )
