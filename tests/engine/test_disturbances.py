"""What the first sentences say about other work on the cores and about the profiler's memory, for runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from events import Event, document, step, x

from perftool.engine.analysis import analyze
from perftool.engine.report.disturbances import growing_sentence, lengthening_sentence, waiting_sentence
from perftool.engine.rules.pack import shipped_rules
from perftool.model.recorded_on import RECORDED_KEY

Said = Callable[..., str]

WAITED = "A thread of the run waited for a core for 8.0 % of the recorded time (8.00 us)."
GREW = (
    "The process grew by 2.00 GiB while it was recorded, and the OS took 60.0 % of its CPU time{instead}. The profiler "
    "may be the reason: it splits the memory that the program frees, so tensors get new memory. If so, ops on large "
    "tensors look slower than they are; record fewer steps."
)


def counts(system: float, grown: int, faults: int = 10_000_000) -> dict[str, Any]:
    """Return the counters of a recording of 10 s. The operating system worked for the share ``system`` of that time."""
    return {
        "wall_ns": 10_000_000_000, "cpu_ns": 10_000_000_000, "system_ns": int(system * 10_000_000_000),
        "page_faults": faults, "page_bytes": 4096, "grown_bytes": grown,
    }  # fmt: skip


EVENTS = [event for k in range(4) for event in (step(k, 1000 * k, 1000), x("aten::mm", 1000 * k, 900))]


@pytest.fixture
def sentences(store: Callable[..., Any]) -> Said:
    """Return a function that gives the sentences of a recording with the given facts."""

    def said(events: list[Event] = EVENTS, **recorded: Any) -> str:
        opened = store(events, **{RECORDED_KEY: {"version": 1, **recorded}})
        return " ".join((waiting_sentence(opened), growing_sentence(opened), lengthening_sentence(opened)))

    return said


def caveats(folder: Path, **recorded: Any) -> str:
    path = folder / "trace.json"
    path.write_bytes(document(EVENTS, **{RECORDED_KEY: {"version": 1, **recorded}}))
    return analyze([str(path)], [rule for rule in shipped_rules() if rule.code == "TRC111"]).verdict.caveats


def test_a_report_contains_all_of_the_sentences(tmp_path: Path) -> None:
    threads = [{"tid": 1, "name": "python", "cpu_ns": 8_000_000_000, "delay_ns": 800_000_000}]
    window, quiet = counts(0.6, 2 << 30), {"steps": 4, **counts(0.1, 0, 4_000_000), "cpu_ns": 8_000_000_000}
    machine = {"machine": {"cores_allowed": 2}, "window": {**window, "threads": threads}}
    found = caveats(tmp_path, **machine, steps={"recorded": 4}, quiet=quiet)
    assert GREW.format(instead=", instead of 12.5 % in earlier steps") in found
    assert "A thread of the run waited for a core for 8.0 % of the recorded time (800 ms)." in found
    assert "On average, a recorded step took 25.0 % more CPU time" in found


@pytest.mark.parametrize(("waited", "said"), [(8000, True), (4000, False), (12_000, False)])
def test_a_wait_for_a_core_is_said_before_it_overloads_the_machine(sentences: Said, waited: int, said: bool) -> None:
    threads = [{"tid": 1, "name": "python", "cpu_ns": 80_000, "delay_ns": waited}]
    found = sentences(machine={"cores_allowed": 2}, window={"wall_ns": 100_000, "threads": threads})
    assert found.strip() == (WAITED if said else "")


@pytest.mark.parametrize(
    ("workers", "cpu_ns", "said"),
    [(2, 4000, ", while the run's own loader workers used 4.00 us of CPU time."),
     (0, 7000, ", while the run's own child processes used 7.00 us of CPU time."), (2, 3000, ".")],
    ids=["loader workers", "other children", "children that were busy for less than half of the wait"],
)  # fmt: skip
def test_child_processes_that_used_the_core(sentences: Said, workers: int, cpu_ns: int, said: str) -> None:
    threads = [{"tid": 1, "name": "python", "cpu_ns": 80_000, "delay_ns": 8000}]
    window = {"wall_ns": 100_000, "cpu_ns": 80_000, "workers_cpu_ns": cpu_ns, "threads": threads}
    found = sentences(machine={"cores_allowed": 1}, window=window, process={"loader_workers": workers})
    assert WAITED.rstrip(".") + said in found


def line_of_workers(waited: int, used: int) -> dict[str, Any]:
    """Return the facts of a recording whose loader workers spent most of their time at one line."""
    threads = [{"tid": 1, "name": "python", "cpu_ns": 80_000, "delay_ns": waited}]
    window = {"wall_ns": 100_000, "cpu_ns": 80_000, "workers_cpu_ns": used, "threads": threads}
    call = {"file": "data/text.py", "line": 7, "function": "load", "samples": 30, "fetching": 40}
    machine = {"machine": {"cores_allowed": 1}, "window": window, "process": {"loader_workers": 1}}
    return {**machine, "loader_calls": [call]}


def test_the_line_of_workers_that_used_the_core(sentences: Said) -> None:
    said = "used 4.00 us of CPU time, 75.0 % of it at data/text.py:7 (load)."
    assert said in sentences(**line_of_workers(8000, 4000))


def test_the_line_of_workers_on_an_overloaded_machine(tmp_path: Path) -> None:
    said = "took 20.0 % of the CPU time of the run, and spent 75.0 % of their CPU time at text.py:7 (load)."
    assert said in caveats(tmp_path, **line_of_workers(20_000, 20_000))


def test_a_hypervisor_that_takes_the_cores_is_named(sentences: Said) -> None:
    threads = [{"tid": 1, "name": "python", "cpu_ns": 80_000, "delay_ns": 3000}]
    window = {"wall_ns": 100_000, "threads": threads, "stolen_ns": 16_000}
    found = sentences(machine={"cores_allowed": 2}, window=window)
    assert "A hypervisor withheld the cores of the run for 8.0 % of the recorded time (8.00 us)." in found


@pytest.mark.parametrize(
    ("quiet", "faults", "said"),
    [(0.1, 4_000_000, True), (0.1, 6_000_000, False), (0.5, 4_000_000, False)],
    ids=["new memory for the profiler", "as many page faults before", "the system works as much without the profiler"],
)
def test_a_process_that_takes_new_memory_while_it_is_recorded(
    sentences: Said, quiet: float, faults: int, said: bool
) -> None:
    before = {"steps": 4, **counts(quiet, 0, faults)}
    found = sentences(steps={"recorded": 4}, window=counts(0.6, 2 << 30), quiet=before)
    assert found.strip() == (GREW.format(instead=", instead of 10.0 % in earlier steps") if said else "")


@pytest.mark.parametrize(("grown", "said"), [(2 << 30, True), (1 << 29, False)])
def test_a_process_that_grows_while_it_is_recorded(sentences: Said, grown: int, said: bool) -> None:
    found = sentences(steps={"recorded": 4}, window=counts(0.6, grown))
    assert found.strip() == (GREW.format(instead="") if said else "")


@pytest.mark.parametrize(
    ("cpu_s", "length", "said"),
    [(8, 1000, True), (9.8, 1000, False), (8, 1300, False), (0, 1000, False), (2, 1000, False)],
    ids=["longer by a quarter", "hardly longer", "the recorded steps differ as much", "no time before", "other work"],
)
def test_recorded_steps_that_took_more_cpu_time(sentences: Said, cpu_s: float, length: int, said: bool) -> None:
    before = {"steps": 4, **counts(0.1, 0), "cpu_ns": int(cpu_s * 1e9)}
    events = [
        event for k in range(4) for event in (step(k, 2000 * k, length if k else 1000), x("aten::mm", 2000 * k, 900))
    ]
    found = sentences(events, steps={"recorded": 4}, window=counts(0.1, 0), quiet=before)
    sentence = (
        "On average, a recorded step took 25.0 % more CPU time than a step before the recording "
        "(2.50 s instead of 2.00 s),"
    )
    assert (sentence in found) is said
    assert ("a recorded step took" in found) is said


def test_earlier_steps_that_took_much_more_cpu_time_are_not_compared(sentences: Said) -> None:
    before = {"steps": 1, **counts(0.9, 0)}
    found = sentences(steps={"recorded": 4}, window=counts(0.6, 2 << 30), quiet=before)
    assert GREW.format(instead="") in found
