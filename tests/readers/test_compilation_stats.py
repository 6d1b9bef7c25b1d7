"""Compilation statistics of a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftool.model.records import CompilationRecord
from perftool.readers import text_input
from perftool.readers.metrics import compilation_stats

# Handwritten to match the source code of the writer: three runs of one graph, the second of which is a cache hit.
STATS = """\
[{"000000000": {"shapes": {"0_a": "[2,3]"}, "compilations": \
[{"recipe": 8231904, "scope": "STATIC", "result": "OK"}]}},
{"000000001": {"shapes": {"0_a": "[2,3]"}, "selected recipe": 8231904, "synLaunch time": 512}},
{"000000002": {"shapes": {"0_a": "[2,4]"}, "compilations": \
[{"recipe": 77, "scope": "DYNAMIC"}, {"recipe": 78}]}}
]
"""
EXPECTED = (
    CompilationRecord("compilation_stats", 1, "8231904", None, 0, 0, "new shapes", "STATIC"),
    CompilationRecord("compilation_stats", 1, "77", None, 1, 2, "new shapes", "DYNAMIC"),
    CompilationRecord("compilation_stats", 1, "78", None, 2, 2, "new shapes", None),
)


def test_one_record_per_compilation() -> None:
    reading = compilation_stats.read(STATS.encode())
    assert reading.compilations == EXPECTED
    assert reading.issues == ()
    assert text_input.read(STATS.encode()) == reading


def test_same_shapes_compiled_again() -> None:
    again = STATS.replace('"selected recipe": 8231904', '"compilations": [{"recipe": 79}]')
    assert [(item.step, item.reason) for item in compilation_stats.read(again.encode()).compilations][:2] == [
        (0, "new shapes"),
        (1, "same shapes"),
    ]


@pytest.mark.parametrize(
    ("content", "kept", "problems"),
    [
        (STATS.rstrip().removesuffix("]"), 3, {"unterminated": 1}),
        (STATS[: STATS.index("DYNAMIC")], 1, {"damaged record": 1, "unterminated": 1}),
        (STATS.replace("000000002", "second"), 1, {"not a step": 1}),
        (STATS.replace('[{"recipe": 77', '["recipe", {"recipe": 77'), 3, {}),
        ("", 0, {}),
    ],
    ids=["killed", "half a step", "no step", "odd item", "empty"],
)
def test_damaged_files(content: str, kept: int, problems: dict[str, int]) -> None:
    reading = compilation_stats.read(content.encode())
    assert reading.compilations == EXPECTED[:kept]
    assert {issue.kind: issue.count for issue in reading.issues} == problems


def test_rank_from_the_name(tmp_path: Path) -> None:
    path = tmp_path / "HabanaFusedOpLazy_3_4_18446744073709.json"
    path.write_text(STATS)
    assert compilation_stats.read(path).ranks == (4,)
