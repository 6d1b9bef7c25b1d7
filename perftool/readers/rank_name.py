"""The rank that the name of a file tells."""

from __future__ import annotations

import re
from pathlib import PurePath

# `m-rank3.json`, `m-rank3.json.1`, `rank_3/...`; the last one in the path is the most specific.
_RANK = re.compile(r"(?:^|[/\\_.-])rank[_-]?(\d{1,6})(?![0-9A-Za-z])")
# The bridge logs of several processes lie in `<logs>/<HLS_ID>/<rank>/`.
_BRIDGE_LOGS = ("pytorch_log", "towl_log", "synapse_log", "synapse_runtime", "hcl")


def rank_of(path: str) -> int | None:
    """The rank in ``path``, None when it names none."""
    if ranks := _RANK.findall(path):
        return int(ranks[-1])
    folder = PurePath(path).parent.name
    if PurePath(path).name.startswith(_BRIDGE_LOGS) and folder.isascii() and folder.isdigit() and len(folder) <= 6:
        return int(folder)
    return None
