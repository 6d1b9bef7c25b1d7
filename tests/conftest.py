"""Makes ``builders``, ``events``, ``reading`` and ``stores`` importable, and fixes terminal settings."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.remembered import Memory, remember
from events import Event, document
from hypothesis import HealthCheck, settings
from stores import Rows

from perftool.store.trace_store import TraceStore

# One thread per process, including child processes. ``pytest -n`` starts a worker per core, so more threads would only
# compete for the cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Many tests start the program. Without cached bytecode, each of these processes would compile it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

WriteTrace = Callable[..., str]

# No deadlines, because no test may fail on a slow or busy machine. Every run tries the same examples, so that results
# depend only on the code. ``--hypothesis-profile=searching`` tries new examples each time.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("searching"), derandomize=True)
settings.load_profile("repeatable")


# Folders with tests of the core. They show whether a change to a rule, a table or a reader breaks anything.
_QUICK = ("engine", "model", "readers", "rules", "store")
_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of ``_QUICK`` for ``pytest -m quick``, except slow ones."""
    for item in items:
        within = item.path.relative_to(_FOLDER).parts
        if within[0] in _QUICK and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.quick)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n``, run all tests of a file in one process, so that each shared analysis is made only once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and never scan the modules and tests. Garbage collection took 10 % of the time."""
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_unconfigure() -> None:
    """Let garbage be collected before the interpreter exits, because DuckDB's binding complains about objects that
    outlive it.
    """
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="rewrite tests/golden from what the program does")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set 80 columns and remove colour variables, so that the output is the same on every machine."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)


_MEMORY = Memory()


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Analyse each input only once, for tests that are not about the analysis itself."""
    remember(monkeypatch, _MEMORY)


@pytest.fixture
def write_trace(tmp_path: Path) -> WriteTrace:
    """Return a function that writes events as a trace file and returns its path."""

    def write(events: list[Event], *, file: str = "trace.json", **metadata: Any) -> str:
        path = tmp_path / file
        path.write_bytes(document(events, **metadata))
        return str(path)

    return write


@pytest.fixture
def store(write_trace: WriteTrace) -> Iterator[Callable[..., TraceStore]]:
    """Return a function that opens a store over the traces of ranks: the events of each, or its events and metadata."""
    opened: list[TraceStore] = []

    def make(*traces: list[Event] | tuple[list[Event], dict[str, Any]], **metadata: Any) -> TraceStore:
        opened.append(TraceStore())
        for number, trace in enumerate(traces):
            events, own = trace if isinstance(trace, tuple) else (trace, {})
            opened[-1].add_trace(write_trace(events, file=f"trace{number}.json", **metadata, **own))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def rows(store: Callable[..., TraceStore]) -> Rows:
    """Return a function that builds a table from the events of one trace and returns its rows."""

    def read(table: str, events: list[Event], **metadata: Any) -> list[dict[str, Any]]:
        return store(events, **metadata).rows(table)

    return read


@pytest.fixture
def rows_of_ranks(store: Callable[..., TraceStore]) -> Callable[..., list[list[dict[str, Any]]]]:
    """Return a function that builds a table from the traces of ranks, as ``store`` takes them, and returns the rows of
    each. Building a table for ten ranks takes little longer than for one.
    """

    def read(table: str, *traces: Any) -> list[list[dict[str, Any]]]:
        found = store(*traces).rows(table)
        return [[row for row in found if row["rank"] == rank] for rank in range(len(traces))]

    return read
