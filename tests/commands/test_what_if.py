"""``whatif``: what it predicts, what it refuses, and when it prints nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from builders.program import Run
from events import Event, document, kernel, loader, runtime, step, x

import perftool
from perftool.engine.what_if import Wanted, parse_scale, parse_without
from perftool.errors import PerfToolError, RuleError
from perftool.model.replayed import BoundShare
from perftool.model.what_if import Applied

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def steps(busy: float = 50, count: int = 4) -> list[Event]:
    """Return steps of 1 ms: 600 us for a batch, an op of 100 us that launches a kernel of ``busy`` us, and a long
    wait.
    """
    events: list[Event] = []
    for number in range(count):
        at = number * 1000
        events += [
            step(number, at, 1000), loader(at + 10, 600), x("aten::mm", at + 700, 100),
            runtime("cudaLaunchKernel", at + 702, 5, number), kernel("gemm", at + 710, busy, number),
        ]  # fmt: skip
    return events


@pytest.fixture
def path(_outside: None) -> str:
    """The same relative path in each test, so that the analysis is remembered."""
    Path("run.json").write_bytes(document(steps()))
    return "run.json"


def test_fixes_and_changes_are_predicted_alone_and_together(path: str) -> None:
    found = perftool.whatif(path, ["GAP102"], scale={"op:aten::mm": 0.5}, without=["kernel:gemm"])
    assert (found.measured_step_ns, found.replayed_step_ns, found.error_ratio) == (1_000_000, 1_000_000, 0.0)
    assert found.changes == (
        Applied("fix", "GAP102", 3, 400_000),
        Applied("scale", "op:aten::mm=0.5", 3, 950_000),
        Applied("without", "kernel:gemm", 3, 1_000_000),
    )
    assert (found.predicted_step_ns, found.fixes, found.why_not) == (350_000, ("GAP102",), None)
    assert found.before
    assert found.after
    assert found.before.bounds == (BoundShare("dataloader", 0.6), BoundShare("host", 0.4))
    assert [share.kind for share in found.after.bounds] == ["host"]


def test_the_json_has_the_promised_keys(run: Run, path: str) -> None:
    assert run("whatif", path, "--fix", "dataloader-wait", "--output-format", "json") == 0
    shown = json.loads(run.out)
    steps = {key: shown[key]["step_ns"] for key in ("measured", "replayed", "predicted")}
    assert steps == {"measured": 1_000_000, "replayed": 1_000_000, "predicted": 400_000}
    assert (shown["error_ratio"], shown["fixes"], shown["why_not"]) == (0.0, ["GAP102"], None)


def test_the_text_says_what_bounds_the_step_before_and_after(run: Run, path: str) -> None:
    assert run("whatif", path, "--fix", "GAP102") == 0
    assert "measured   1.00 ms a step on average, rank 0, 3 steps\nreplayed   1.00 ms, 0.0 % off\n" in run.out
    assert "predicted  400 us, 600 us less (60.0 %)\n" in run.out
    assert "What bounds the recorded step: waiting for data 60.0 %, host 40.0 %\n" in run.out
    assert "What bounds the predicted step: host 100.0 %\n" in run.out


def test_the_report_of_a_cpu_does_not_say_that_the_host_bounds_the_step(run: Run, tmp_path: Path) -> None:
    """In a run on a CPU, the host does all of the work."""
    on_cpu = [event for at in range(4) for event in (step(at, at * 1000, 1000), x("aten::mul", at * 1000 + 50, 900))]
    (tmp_path / "run.json").write_bytes(document(on_cpu))

    assert run("analyze", "run.json", "--full") == 0
    assert "ops computing        90.0 %" in run.out
    assert "What bounds" not in run.out


def test_a_prefetch_that_cannot_keep_up_bounds_the_step(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(document([event | {"dur": event["dur"] * 1.5} if event["name"] == "gemm" else
                                                  event for event in steps()]))  # fmt: skip
    found = perftool.whatif(tmp_path / "run.json", ["GAP102"], scale={"op:*": 0, "runtime:*": 0, "kernel:*": 0})
    assert found.predicted_step_ns == 300_000


def test_steps_that_cannot_be_replayed_give_no_prediction(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "run.json"
    waits = [runtime("cudaDeviceSynchronize", number * 1000 + 810, 180) for number in range(4)]
    place.write_bytes(document([*steps(), *waits]))
    assert run("whatif", str(place), "--fix", "GAP102", "--output-format", "json") == 0
    assert [bound["code"] for bound in json.loads(run.out)["bounds"]] == ["GAP102"]
    assert run("whatif", str(place), "--output-format", "json") == 1
    shown = json.loads(run.out)
    assert (shown["predicted"], shown["replayed"]) == (None, {"step_ns": 920_000})
    sentence = "the unchanged replay takes 920 us for a step that took 1.00 ms: the trace does not show what"
    assert run.err.startswith(f"Nothing is predicted: {sentence}")
    place.write_bytes(document([]))
    assert perftool.whatif(place).why_not == "the recording has no complete step"


@pytest.mark.parametrize(
    ("fixes", "without", "sentence"),
    [
        (["GAP102x"], [], "unknown rule 'GAP102x'; did you mean GAP102"),
        (["GAP"], [], "GAP matches several rules; --fix expects one code or name"),
        (["SYN101"], [], "SYN101 .frequent-scalar-reads.: the rule finds nothing in this run$"),
        ([], ["op:aten::item"], "op:aten::item: no match in the replayed steps"),
        ([], ["aten::item"], "'aten::item': expected KIND:PATTERN, such as op:aten::item; kinds are op, runtime, "),
    ],
)
def test_a_change_without_effect_is_refused(path: str, fixes: list[str], without: list[str], sentence: str) -> None:
    with pytest.raises((PerfToolError, RuleError), match=sentence):
        perftool.whatif(path, fixes, without=without)


def test_a_fix_that_cannot_be_replayed_has_a_bound(run: Run) -> None:
    trace = str(SAMPLES / "cpu" / "many_small_ops.json.gz")

    assert run("whatif", trace, "--fix", "FUS105") == 0
    line = r"^FUS105     up to [\d.]+ [mu]s less \(a bound: its fix cannot be replayed\)$"
    assert re.search(line, run.out, re.MULTILINE)
    found = perftool.whatif(trace, ["FUS105"])
    assert [bound.code for bound in found.bounds] == ["FUS105"]
    assert 0 < found.bounds[0].ns_per_step <= (found.measured_step_ns or 0)


def test_a_finding_without_a_cost_has_no_model(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "run.json"
    place.write_bytes(document([event for event in steps() if not event["name"].startswith("ProfilerStep")]))
    assert run("whatif", str(place), "--fix", "TRC102", "--output-format", "json") == 0
    assert json.loads(run.out)["bounds"] == [{"code": "TRC102", "ns_per_step": None}]
    assert run("whatif", str(place), "--fix", "TRC102") == 0
    assert "TRC102     nothing can be modelled: the finding has no cost per step" in run.out


def test_inputs_without_a_trace_end_in_a_sentence(run: Run) -> None:
    log = SAMPLES / "gaudi2_unoptimised" / "console.log"
    assert run("analyze", str(log), "--output-format", "json") == 0
    codes = {finding["code"] for finding in json.loads(run.out)["findings"]}
    assert codes
    for code in codes:
        assert run("whatif", str(log), "--fix", code) == 0
    assert run("whatif", str(log)) == 1
    assert run.err == "Nothing is predicted: there is no trace to replay\n"


def test_a_missing_rank_is_refused(path: str) -> None:
    with pytest.raises(PerfToolError, match="rank 7 has no trace; the ranks with traces are 0"):
        perftool.whatif(path, rank=7)


def test_names_may_contain_any_character() -> None:
    assert parse_without("op:aten::item") == Wanted("op", "aten::item")
    assert parse_scale("kernel:void f<a=1>*=0.5") == Wanted("kernel", "void f<a=1>*", 0.5)


@pytest.mark.parametrize(
    "text", ["kernel:x", "kernel:x=", "kernel:x=-1", "kernel:x=nan", "kernel:x=inf", "kernel:x=1e300", "=2", "x=2"]
)
def test_a_factor_is_a_number_from_0_on(text: str) -> None:
    with pytest.raises(PerfToolError, match="expected KIND:PATTERN"):
        parse_scale(text)


def test_the_best_fixes_together_are_replayed_together() -> None:
    model = perftool.analyze(SAMPLES / "gaudi2_unoptimised").model
    assert model is not None
    assert model.together is not None
    assert [made.codes for made in model.best] == [("SYN101",), ("GAP102", "SYN101"), ("GAP102", "PRC101", "SYN101")]
    steps = [model.replayed_step_ns, *(made.step_ns for made in model.best), model.together.step_ns]
    assert steps == sorted(steps, reverse=True)
    # A replay with both fixes gives the additional gain from the second fix, which is smaller than the gain from that
    # fix alone.
    both = perftool.whatif(SAMPLES / "gaudi2_unoptimised", ["GAP102", "SYN101"])
    assert both.predicted_step_ns == model.best[1].step_ns


def test_a_gain_in_steps_that_are_not_replayed_is_a_bound_of_the_mean_step(run: Run, tmp_path: Path) -> None:
    events: list[Event] = []
    at = 0
    for number in range(12):
        waits, is_long = (4000, True) if number % 4 == 3 else (10, False)
        length = 5000 if is_long else 1000
        events += [
            step(number, at, length), loader(at + 10, waits), x("aten::mm", at + waits + 20, 100),
            runtime("cudaLaunchKernel", at + waits + 22, 5, number), kernel("gemm", at + waits + 30, 900, number),
        ]  # fmt: skip
        at += length
    place = tmp_path / "run.json"
    place.write_bytes(document(events))

    assert run("whatif", str(place), "--fix", "GAP102") == 0
    recorded, measured, *_ = run.out.splitlines()
    assert recorded == "recorded   2.00 ms a step on average; only typical, shorter steps are replayed"
    assert measured.startswith("measured   1.00 ms a step on average, rank 0, ")
    assert "\nGAP102     up to 1.01 ms less (a bound: most of it is outside the replay)\n" in run.out
    assert run("whatif", str(place), "--fix", "GAP102", "--output-format", "json") == 0
    assert json.loads(run.out)["recorded"] == {"step_ns": 2_000_000}
