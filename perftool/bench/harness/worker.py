"""The process that measures: it builds the forms, checks that they agree, times them and records their traces."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from perftool.bench import find_benchmark
from perftool.bench.harness.agreement import largest_error
from perftool.bench.harness.case import FORM_NAMES, Benchmark, Form, FormName, Setting
from perftool.bench.harness.order import Answer, Order, order_from, write_answer
from perftool.bench.harness.recording import peak_memory, record
from perftool.bench.harness.team import Team, joined
from perftool.bench.harness.timing import Clock, Effort, Timed, race, time_alone
from perftool.model.benchmark import FormFigures, Ratio
from perftool.model.usage import peak_bytes

# Runs of each form before the results are compared. The state of an optimizer affects the results only after a few
# runs.
_RUNS_BEFORE_COMPARING = 3


def main() -> None:
    """Run the orders given as arguments, one after the other; all ranks get the same orders."""
    orders = [order_from(text) for text in sys.argv[1:]]
    first = orders[0]
    torch.set_num_threads(1)
    with joined(first.rank, first.ranks, first.meeting) as team:
        for order in orders:
            write_answer(_carry_out(order, team), order.answer)
    if first.ranks > 1:
        # The shutdown of gloo's threads sometimes aborts the process.
        os._exit(0)


def _carry_out(order: Order, team: Team) -> Answer:
    benchmark = find_benchmark(order.name)
    answer = Answer()
    if order.size is not None:
        measure = _measure_separately if benchmark.separate_processes else _measure_together
        answer = measure(benchmark, order, team)
    if order.traced is not None:
        answer = replace(answer, step_ratio=_record(benchmark, order, team))
    return answer


def _setting(order: Order, size: str) -> Setting:
    return Setting(size, torch.device(order.device), order.rank, order.ranks)


def _measure_together(benchmark: Benchmark, order: Order, team: Team) -> Answer:
    assert order.size is not None
    setting = _setting(order, order.size)
    forms = [benchmark.build(form, setting) for form in _form_names(order.forms)]
    for _ in range(_RUNS_BEFORE_COMPARING):
        for form in forms:
            form.run()
    error = max(largest_error(forms[0].result(), form.result()) for form in forms[1:])
    clock = Clock(benchmark.clock, setting.device)
    outcome = race([form.run for form in forms], clock, Effort(order.rounds, order.seconds), team)
    figures = tuple(
        _figures(form, timed, peak_memory(form.run, setting.device))
        for form, timed in zip(forms, outcome.timed, strict=True)
    )
    for form in forms:
        form.close()
    return Answer(
        seconds=tuple(timed.seconds for timed in outcome.timed),
        figures=figures,
        ratios=outcome.ratios,
        bandwidth=outcome.bandwidth,
        max_error=error,
        threads=torch.get_num_threads(),
        clock=clock.kind,
    )


def _measure_separately(benchmark: Benchmark, order: Order, team: Team) -> Answer:
    assert order.size is not None
    (name,) = _form_names(order.forms)
    setting = _setting(order, order.size)
    before = peak_bytes() or 0
    form = benchmark.build(name, setting)
    clock = Clock(benchmark.clock, setting.device)
    timed = time_alone(form.run, clock, order.rounds)
    grown = (peak_bytes() or 0) - before
    results = [tensor.detach().cpu() for tensor in form.result()]
    error = 0.0
    if name == "naive":
        torch.save(results, order.result(name))
    else:
        error = largest_error(torch.load(order.result("naive")), results)
    figures = _figures(form, timed, grown)
    form.close()
    return Answer(
        seconds=(timed.seconds,),
        figures=(figures,),
        max_error=error,
        threads=torch.get_num_threads(),
        clock=clock.kind,
    )


def _record(benchmark: Benchmark, order: Order, team: Team) -> Ratio | None:
    """Record each form; if this process runs both, also time the recorded steps without the profiler."""
    assert order.traced is not None
    setting = _setting(order, order.traced)
    forms = [(name, benchmark.build(name, setting)) for name in FORM_NAMES if name in order.forms]
    steps = [form.step or form.run for _, form in forms]
    for (name, _), step in zip(forms, steps, strict=True):
        record(step, order.trace(name), benchmark.traced_steps, setting.device, benchmark.traced_stacks)
        _write_environment(benchmark, order.environment(name))
    ratio = None
    if len(steps) == len(FORM_NAMES):
        effort = Effort(order.rounds, order.seconds)
        (ratio,) = race(steps, Clock(benchmark.clock, setting.device), effort, team).ratios
    for _, form in forms:
        form.close()
    return ratio


def _write_environment(benchmark: Benchmark, target: Path) -> None:
    """Write the environment variables of a form, for rules that judge settings."""
    wanted = {key for form in FORM_NAMES for key in benchmark.environment(form)}
    lines = [f"{key}={os.environ[key]}\n" for key in sorted(wanted) if key in os.environ]
    if lines:
        target.parent.mkdir(exist_ok=True)
        target.write_text("".join(lines), encoding="utf-8")


def _form_names(names: Sequence[str]) -> list[FormName]:
    known: tuple[FormName, ...] = (*FORM_NAMES, "torch")
    return [form for form in known if form in names]


def _figures(form: Form, timed: Timed, peak: int) -> FormFigures:
    return FormFigures(form.title, timed.median, timed.spread, peak, timed.page_faults)


if __name__ == "__main__":
    main()
