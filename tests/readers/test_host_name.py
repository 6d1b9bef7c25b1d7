"""The name of the host that recorded a trace."""

from __future__ import annotations

from perftool.readers.files.host_name import hosts_of

HANDLER = "node7_4711.1700000000000000000.pt.trace.json.gz"


def test_sibling_folders_are_hosts() -> None:
    paths = ["run/node0/rank0.json", "run/node0/sub/rank1.json", "run/node1/rank2.json"]
    assert list(hosts_of(paths, {}).values()) == ["node0", "node0", "node1"]


def test_a_shared_or_numbered_folder_is_not_a_host() -> None:
    assert hosts_of(["node0/rank0.json", "node0/rank1.json"], {}) == {}
    assert hosts_of(["rank_0/t.json", "rank_1/t.json", "2/t.json"], {}) == {}
    assert hosts_of(["node0/rank0.json"], {}) == {}


def test_the_name_from_the_handler_contains_the_host() -> None:
    assert hosts_of([f"a/{HANDLER}", f"b/{HANDLER}"], {}) == {f"a/{HANDLER}": "node7", f"b/{HANDLER}": "node7"}
    assert hosts_of(["rank_3.1700000000000000000.pt.trace.json"], {}) == {}


def test_the_host_stated_in_the_trace_takes_precedence() -> None:
    named = {HANDLER: {"distributedInfo": {"rank": 0, "hostname": "pod-3"}}, "b.json": {"hostname": "pod-4"}}
    assert hosts_of([HANDLER, "b.json"], named) == {HANDLER: "pod-3", "b.json": "pod-4"}
