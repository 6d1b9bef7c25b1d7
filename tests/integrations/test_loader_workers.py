"""``record`` samples the workers of data loaders, and a finding names the line where they spend their time."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from mmap import PAGESIZE, mmap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from recorded_script import run
from stores import findings_of

from perftool.engine.rules.pack import shipped_rules
from perftool.integrations.record import loader_workers
from perftool.integrations.record.loader_workers import Call, LoaderWorkers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks workers by default")

SCRIPT = """
import json, time, torch
class Texts(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, index):
        until = time.monotonic() + 0.02
        while time.monotonic() < until: json.dumps(list(range(1000)))
        return torch.ones(4)
if __name__ == "__main__":
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(Texts(), batch_size=5, num_workers=1, multiprocessing_context="fork")
    for batch in loader:
        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
"""


def test_a_finding_names_the_line_where_workers_spend_their_time(tmp_path: Path) -> None:
    run(tmp_path, SCRIPT, "--active", "4")
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    calls = json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]["loader_calls"]
    assert [calls[0][name] for name in ("file", "line", "function")] == ["script.py", 7, "__getitem__"]
    assert {call["fetching"] for call in calls} == {sum(call["samples"] for call in calls)}
    rules = [rule for rule in shipped_rules() if rule.code == "GAP102"]
    (finding,) = findings_of([str(trace)], rules)
    assert "of their CPU time at script.py:7 (__getitem__)" in finding.message


# Fetches from two loaders in each step.
OTHER = 'torch.utils.data.DataLoader(Texts(), batch_size=5, num_workers=1, multiprocessing_context="fork")'
TWO_LOADERS = SCRIPT.replace("for batch in loader", f"for batch, _ in zip(loader, {OTHER})")
# Does what is only possible with a single thread, and starts a process.
ALONE = (
    SCRIPT.replace(
        "loader = ",
        """
    def initialised(number):
        assert len(os.listdir("/proc/self/task")) == 1
        child = os.fork()
        if not child:
            time.sleep(0.3)
            os._exit(len(os.listdir("/proc/self/task")) - 1)
        assert os.waitpid(child, 0)[1] == 0
    loader = """,
    )
    .replace("import json", "import json, os")
    .replace("num_workers=1", "num_workers=1, worker_init_fn=initialised")
)


def test_lines_of_several_loaders_are_not_mixed(tmp_path: Path) -> None:
    run(tmp_path, TWO_LOADERS, "--active", "2")
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    assert "loader_calls" not in json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]


def test_a_worker_has_one_thread_until_its_second_batch(tmp_path: Path) -> None:
    run(tmp_path, ALONE, "--active", "4")
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    assert json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]["loader_calls"]


def test_a_thread_that_fetches_no_batch_is_not_counted() -> None:
    assert loader_workers._call_of(sys._getframe()) is None
    assert loader_workers._call_of(None) is None


def test_counts_that_are_not_complete_are_left_out() -> None:
    shared = mmap(-1, 2 * PAGESIZE)
    loader_workers._show(Counter({Call("a.py", 1, "f", ""): 3}), shared, PAGESIZE)
    assert loader_workers._shown(shared, PAGESIZE) == [["a.py", 1, "f", "", 3]]
    shared[PAGESIZE + 12] ^= 1
    assert loader_workers._shown(shared, PAGESIZE) == []


def test_many_long_names_fit() -> None:
    shared = mmap(-1, PAGESIZE + loader_workers._BYTES)
    calls = Counter({Call(f"{at:0200}", at, f"{at:0200}", f"{at:0200}"): at + 1 for at in range(2_000)})
    loader_workers._show(calls, shared, PAGESIZE)
    assert len(loader_workers._shown(shared, PAGESIZE)) >= 10


def test_other_forks_share_nothing() -> None:
    workers = LoaderWorkers()
    workers.before_fork()
    workers.forked()
    assert workers.found() == []
    workers.end()
