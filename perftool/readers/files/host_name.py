"""Finds the host of a trace in its metadata, its name or its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import Any

from perftool.readers.files.rank_name import rank_of

# The default name from PyTorch's TensorBoard handler: `<host>_<pid>.<time>.pt.trace.json`.
_HANDLER_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d+)\.\d{12,}\.pt\.trace\.json(?:\.gz|\.zst)?")
HOST_KEYS = ("hostname", "host_name", "host")
# Folder names that are a number or a rank rather than the name of a host.
_NO_HOST = re.compile(r"(?:rank[_.-]?)?\d+", re.IGNORECASE)
_LONGEST = 100


def hosts_of(paths: Sequence[str], metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the host of each of ``paths``, without those that have no known host. ``metadata`` is keyed by path.

    A folder counts as named after a host if the traces are in several sibling folders: ``node0/...``, ``node1/...``.
    """
    folders = _folders_beside(paths)
    named = {path: stated_host(metadata.get(path, {})) or host_in_name(path) or folders.get(path) for path in paths}
    return {path: host[:_LONGEST] for path, host in named.items() if host}


def stated_host(metadata: Mapping[str, Any]) -> str | None:
    """Return the host that the metadata of a trace states, if any."""
    info = metadata.get("distributedInfo")
    places = [metadata, info] if isinstance(info, dict) else [metadata]
    values = (top.get(key) for top in places for key in HOST_KEYS)
    return next((value for value in values if isinstance(value, str) and value), None)


def process_of(path: str) -> int | None:
    """Return the ID of the process that wrote ``path``, or None unless PyTorch's TensorBoard handler named the file."""
    name = _HANDLER_NAME.fullmatch(PurePath(path).name)
    return int(name["pid"]) if name else None


def host_in_name(path: str) -> str | None:
    """Return the host in the name of ``path``, or None unless PyTorch's TensorBoard handler named the file."""
    name = _HANDLER_NAME.fullmatch(PurePath(path).name)
    return name["host"] if name and rank_of(PurePath(path).name) is None else None


def _folders_beside(paths: Sequence[str]) -> dict[str, str]:
    """Return, for each path, the first folder below the common folder of all paths, unless it is a number or a rank.
    The result is empty if there is only one such folder."""
    parents = {path: PurePath(path).parent.parts for path in paths}
    shared = len(list(takewhile(lambda level: len(set(level)) == 1, zip(*parents.values(), strict=False))))
    below = {path: parts[shared] for path, parts in parents.items() if len(parts) > shared}
    hosts = {path: folder for path, folder in below.items() if not _NO_HOST.fullmatch(folder)}
    return hosts if len(set(hosts.values())) > 1 else {}
