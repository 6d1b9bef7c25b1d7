"""Finds likely passwords and tokens in the metadata of a trace: some launchers write their environment there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import orjson

_NAME = re.compile(
    r"(?:^|[_.\-\s])(?:token|secret|passwd|password|passphrase|credentials?|(?:api|access|private|secret)[_\-]?key)"
    r"(?:$|[_.\-\s])",
    re.IGNORECASE,
)
# Tokens with well-known prefixes of services.
_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|sk-[\w\-]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abpr]-[\w\-]{10,}|eyJ[\w\-]{10,}\.[\w\-]{10,}\.[\w\-]*)"
)
# A shorter secret would match inside other words, and protects nothing.
_SHORTEST = 8
_PLAIN = re.compile(r"[\w+/=.\-~!@#$%^&*:]+")
_DEEPEST = 8
_STAND_IN = b"redacted"


def secrets_in(value: Any, name: str = "", depth: int = 0) -> dict[str, str]:
    """The texts in ``value`` (parsed JSON) that look like secrets, by name: ``env.HF_TOKEN``."""
    if depth > _DEEPEST:
        return {}
    if isinstance(value, str):
        if name and _NAME.search(name.rsplit(".", 1)[-1]) and len(value) >= _SHORTEST and _PLAIN.fullmatch(value):
            return {name: value}
        found = _VALUE.search(value)
        return {name or "text": found[0]} if found else {}
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        parts = ((f"{name}.{key}" if name else str(key), part) for key, part in value.items())
    elif isinstance(value, list):
        parts = ((f"{name}[{at}]", part) for at, part in enumerate(value))
    return {key: text for path, part in parts for key, text in secrets_in(part, path, depth + 1).items()}


def without(blocks: Iterable[bytes], secrets: Collection[str]) -> Iterator[bytes]:
    """``blocks`` of JSON or HTML with all ``secrets`` replaced, even across the boundary of two blocks."""
    written = sorted({orjson.dumps(secret)[1:-1] for secret in secrets}, key=len, reverse=True)
    if not written:
        yield from blocks
        return
    pattern = re.compile(b"|".join(map(re.escape, written)))
    held = b""
    for block in blocks:
        text = pattern.sub(_STAND_IN, held + block)
        cut = max(len(text) - len(written[0]) + 1, 0)
        yield text[:cut]
        held = text[cut:]
    yield held
