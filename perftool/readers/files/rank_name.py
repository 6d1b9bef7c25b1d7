"""Finds the rank in the name of a file or of a folder that contains it."""

from __future__ import annotations

import re
from pathlib import PurePath

# Matches `m-rank3.json`, `m-rank3.json.1` and `trace_Rank.3.json`.
_IN_NAME = re.compile(r"(?:^|[_.-])rank[_.-]?(\d{1,6})(?![0-9A-Za-z])", re.IGNORECASE)
# Matches `rank_3/...`, but not other folder names with ranks, such as `two_rank2/`.
_FOLDER = re.compile(r"rank[_.-]?(\d{1,6})", re.IGNORECASE)
# The name that Accelerate gives to the trace of each process.
_OF_ACCELERATE = re.compile(r"profile_(\d{1,6})\.json(?:\.gz|\.zst)?")
# Gaudi's PyTorch bridge writes the logs of several processes to `<logs>/<HLS_ID>/<rank>/`.
_BRIDGE_LOGS = ("pytorch_log", "towl_log", "synapse_log", "synapse_runtime", "hcl")


def rank_of(path: str) -> int | None:
    """Return the last rank in ``path``, or None if it contains none."""
    place = PurePath(path)
    folders = (match[1] for folder in place.parent.parts if (match := _FOLDER.fullmatch(folder)))
    if ranks := [*folders, *_IN_NAME.findall(place.name)]:
        return int(ranks[-1])
    if of_accelerate := _OF_ACCELERATE.fullmatch(place.name):
        return int(of_accelerate[1])
    folder = place.parent.name
    if place.name.startswith(_BRIDGE_LOGS) and folder.isascii() and folder.isdigit() and len(folder) <= 6:
        return int(folder)
    return None
