"""Ranks in file names."""

from __future__ import annotations

import pytest

from perftool.readers.files.rank_name import rank_of


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("out/m-rank3.json", 3),
        ("out/m-rank12.json.1", 12),
        ("out/rank_5/console.log", 5),
        ("rank0/m-rank7.json", 7),
        ("logs/HLS_1/4/pytorch_log.txt", 4),
        ("logs/4/other.txt", None),
        ("m.json", None),
        ("frank3.json", None),
        ("rank3abc.json", None),
        ("Rank.3.json", 3),
        ("job_rank7/rank2/t.json", 2),
        ("two_rank2/t.json", None),
        ("rank99999999999999.json", None),
        ("traces/profile_12.json", 12),
        ("traces/profile_12.txt", None),
        ("", None),
        ("-", None),
    ],
)
def test_rank(path: str, rank: int | None) -> None:
    assert rank_of(path) == rank
