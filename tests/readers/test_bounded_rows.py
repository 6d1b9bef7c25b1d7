"""If an input contains millions of short rows, readers keep a limited number of them and report the rest."""

from __future__ import annotations

import json

import pytest

from perftool.model.records import LogReading
from perftool.readers import text_input
from perftool.readers.nodes import analyzed_nodes, post_graph
from perftool.readers.text import issue_tally

_MOST, _MORE = 1000, 1010


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue_tally, "MOST_ROWS", _MOST)


def _banners() -> str:
    title = "== HABANA PT BRIDGE CONFIGURATION ==\n"
    return "".join(f"{title if at % 50 == 0 else ''}A{at} = 1\n" for at in range(_MORE))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("advice", "".join(f"[LOW ][a] {at}\n" for at in range(_MORE))),
        ("config", "".join(f"PT_{at}=\n" for at in range(_MORE))),
        ("config", _banners()),
        ("fallbacks", "CPU Fallback stats:\n" + "".join(f"1 a::a{at}\n" for at in range(_MORE))),
        ("compilations", '[{"000000000":{"compilations":[' + ",".join(['{"recipe": 1}'] * _MORE) + "]}}\n]"),
    ],
)
def test_only_the_first_rows_of_a_text_are_kept(field: str, text: str) -> None:
    reading = text_input.read(text.encode())
    assert isinstance(reading, LogReading)
    assert len(getattr(reading, field)) == _MOST
    (issue,) = (issue for issue in reading.issues if issue.kind.startswith("too many "))
    assert (issue.count, issue.message.startswith("only the first 1,000 ")) == (10, True)


def test_known_variables_may_change_after_the_limit() -> None:
    text = "".join(f"PT_{at}=\n" for at in range(_MORE)) + "PT_0=last\n"
    reading = text_input.read(text.encode())
    assert isinstance(reading, LogReading)
    assert reading.config[0].value == "last"


def test_a_table_of_nodes_has_a_limited_number_of_rows_for_its_size() -> None:
    header = "Unit,Node Name,Op Type,Duration,Active\n"
    reading = analyzed_nodes.read_csv((header + "T,n,,1\n" * 60_000).encode())
    assert len(reading.nodes) == 13_000
    (issue,) = reading.issues
    assert (issue.kind, issue.count) == ("too many nodes", 47_000)
    # All rows of a real table are kept.
    row = f"MME,encoder/layer_0/attention/self/matmul_{'0' * 20},batch_gemm,1,0.5\n"
    assert len(analyzed_nodes.read_csv((header + row * 30_000).encode()).nodes) == 30_000


def test_a_file_of_graphs_has_a_limited_number_of_nodes_for_its_size() -> None:
    for padding in ("", "x" * 200):
        nodes = [{"name": "a", "engine": "TPC", "x": padding}] * 40_000
        data = json.dumps({"graphs": [{"recipe_debug_id": 1, "nodes": nodes}]}).encode()
        reading = post_graph.read(data, None, "graph.json")
        assert len(reading.graph_nodes) == (40_000 if padding else 10_000 + len(data) // 200)
        assert [issue.kind for issue in reading.issues] == ([] if padding else ["too many nodes"])
