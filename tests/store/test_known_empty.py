"""If the preconditions of a table make it empty, its SQL yields no rows either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perftool.engine.rule_tests.case_traces import write_traces
from perftool.engine.rule_tests.cases import Case, load_cases
from perftool.store.catalog import catalog
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore

CASES = Path(__file__).parent.parent / "rules"
# Inputs of all kinds, from the first case of each of these rules.
RULES = (
    "COL103", "COL104", "CPY101", "ENG113", "FUS101", "GAP102", "MEM101", "PRC101", "SYN101",
    "SRV101", "SRV202", "gaudi/ENG101", "gaudi/ENG111", "gaudi/FBK101", "gaudi/FBK102", "gaudi/RCP101",
)  # fmt: skip
# Inputs that those cases lack: a matmul with shapes on a known device, inside a module and an annotation; the capture
# of a graph; launches of a recipe and of a transfer.
PRODUCT = Case("", "", (), metadata={"deviceProperties": [{"name": "NVIDIA A100-SXM4-40GB"}]}, events=(
    {"cat": "python_function", "name": "nn.Module: Linear_0", "ts": 0, "dur": 12},
    {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 10,
     "args": {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}},
    {"cat": "user_annotation", "name": "loss", "ts": 0, "dur": 50},
    {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 5, "args": {"correlation": 1}},
    {"cat": "kernel", "name": "ampere_sgemm_128x64", "ts": 20, "dur": 9, "args": {"correlation": 1}},
    {"cat": "cuda_runtime", "name": "cudaStreamBeginCapture", "ts": 30, "dur": 2},
    {"cat": "cuda_runtime", "name": "cudaStreamEndCapture", "ts": 34, "dur": 2},
    {"cat": "kernel", "name": "ampere_sgemm_128x64", "ts": 45, "dur": 9},
))  # fmt: skip
LAUNCHES = Case("", "", (), events=(
    {"on": "compiler", "name": "enqueueWithExternalEvents recipeId:4", "ts": 0, "dur": 9, "args": {"recipeId": 4}},
    {"on": "MME", "name": "GEMM", "ts": 10, "dur": 40, "args": {"recipeId": 4}},
    {"on": "synapse", "name": "synMemCopyAsync", "ts": 60, "dur": 5, "args": {"direction": "0", "size": 64}},
    {"on": "PDMA", "name": "memcpy", "ts": 66, "dur": 5, "args": {}},
))  # fmt: skip
# Modules that follow each other, as layers do.
LAYERS = Case("", "", (), events=tuple(
    {"cat": "kernel", "name": name, "ts": 10 * place, "dur": 9, "args": {}}
    for place, name in enumerate(("gemm", "gelu", "add") * 4)
))  # fmt: skip
# A block of memory with its address, allocated in a step.
BLOCK = Case("", "", (), events=(
    {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 100},
    {"cat": "cpu_op", "name": "autograd::engine::evaluate_function: MulBackward0", "ts": 5, "dur": 20,
     "args": {"Sequence number": 1}},
    {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 10,
     "args": {"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": 512, "Total Allocated": 512}},
))  # fmt: skip
# A loader that reads samples one by one, with stacks and the CPU time of its thread; samples of workers; a trial.
THREAD = {"tid": 1, "name": "python", "cpu_ns": 80_000, "delay_ns": 0}
RECORDER = {"version": 1, "machine": {"cores_allowed": 2}, "window": {"wall_ns": 90_000, "threads": [THREAD]}}
RECORDER["loader_calls"] = [{"file": "a.py", "line": 7, "function": "f", "samples": 40, "fetching": 40}]
RECORDER["trials"] = [{"path": "Net", "calls": 1, "base_ns": 90_000, "bf16_ns": 50_000}]
FETCH = Case("", "", (), metadata={"perftoolRecording": RECORDER}, events=(
    {"cat": "user_annotation", "ts": 0, "dur": 90,
     "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"},
    {"cat": "python_function", "name": "data.py(7): __getitem__", "ts": 10, "dur": 20},
))  # fmt: skip
# A forward and a backward pass on the CPU, without stacks and with them.
BACKWARD = Case("", "", (), events=(
    {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 20, "args": {"Sequence number": 1}},
    {"cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0", "ts": 30, "dur": 40,
     "args": {"Sequence number": 1}},
    {"cat": "cpu_op", "name": "aten::mm", "ts": 35, "dur": 30},
))  # fmt: skip
MODULE = {"cat": "python_function", "name": "nn.Module: Linear_0", "ts": 0, "dur": 25}
TRAINED = Case("", "", (), events=(MODULE, *BACKWARD.events))
_MOST_STORES = 4
# Tables that are dropped once the slices have been built.
DROPPED = {name for table in catalog().values() for name in table.drops}
JUDGED = {
    name: table
    for name, table in catalog().items()
    if table.empty_without
    and not DROPPED & {name, *(precondition.table for group in table.empty_without for precondition in group)}
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TraceStore]]:
    """A store for each input. Its tables are built when a test needs them."""
    with ExitStack() as open_until:
        made = []
        for case in (
            *(load_cases(CASES / f"{rule}.toml")[0] for rule in RULES),
            PRODUCT,
            LAUNCHES,
            LAYERS,
            BLOCK,
            FETCH,
            BACKWARD,
            TRAINED,
        ):
            store = open_until.enter_context(TraceStore())
            add_case(store, case, tmp_path_factory.mktemp("case"))
            store.build([])
            made.append(store)
        yield made


def add_case(store: TraceStore, case: Case, folder: Path) -> None:
    if case.events:
        for path in write_traces(case.events, case.metadata, case.device, folder):
            store.add_trace(str(path))
    for name, text in {**case.logs, **case.files}.items():
        (folder / name).write_text(text, encoding="utf-8")
        store.add_reading(read_text(str(folder / name)))


@pytest.mark.parametrize("name", [name for name, table in JUDGED.items() if table.maker is None])
def test_tables_declared_empty_have_no_rows(name: str, stores: list[TraceStore]) -> None:
    empty = [store for store in stores if store._tables.known_empty(JUDGED[name])]
    # A few empty stores are enough, because planning a query takes as long for an empty table as for a full one.
    for store in empty[:: max(len(empty) // _MOST_STORES, 1)]:
        # Building _pairs also creates the database types for names, which the SQL of the table uses.
        store.build(["_pairs", *JUDGED[name].needs])

        assert store.select(f"SELECT count(*) AS rows FROM ({JUDGED[name].sql})") == [{"rows": 0}]

    # Each table is empty in at least one store, but not in all of them.
    assert 0 < len(empty) < len(stores)


def test_tables_of_preconditions_are_always_made() -> None:
    """Otherwise, a merged store, which imports its tables, would check a precondition on a missing table."""
    for name, table in catalog().items():
        named = {precondition.table for group in table.empty_without for precondition in group}
        assert named <= {*table.needs, "raw"}, name


def test_columns_of_preconditions_exist() -> None:
    named = {
        (w.table, w.column) for table in catalog().values() for group in table.empty_without for w in group if w.column
    }

    assert {
        (table, column) for table, column in named if column not in {c.name for c in catalog()[table].columns}
    } == set()
