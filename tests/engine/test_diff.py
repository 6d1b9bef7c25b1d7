"""Comparisons: what counts as slower, what changed, and what cannot be known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from events import document, launch, step, x
from hypothesis import given
from hypothesis import strategies as st

from perftool import analyze
from perftool.engine.compare.diff import compare, fails, parse_fail_if
from perftool.engine.compare.op_rates import rate_changes
from perftool.engine.compare.op_totals import totals
from perftool.engine.compare.saved_report import read_saved
from perftool.engine.compare.significance import change_of_median, verdict_on
from perftool.engine.ranks.plain import to_plain
from perftool.engine.report.complete_steps import of_slowest_rank
from perftool.engine.rules.fingerprint import fingerprint
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.errors import InputError, PerfToolError
from perftool.model.diff import OpTotal, RunSide, Setting
from perftool.model.efficiency import OpRate
from perftool.model.report import BREAKDOWN, Finding, Location, Share, Step
from perftool.reporters.diff import headline, render_diff_json, render_diff_markdown, render_diff_text
from perftool.reporters.json import render_json

NOISE = (-3, 1, -1, 2, 0, 3, -2, 1, 0, -1)


def steps(median_ns: int) -> tuple[int, ...]:
    return tuple(median_ns + part * median_ns // 100 for part in NOISE)


def side(step_ns: tuple[int, ...], ops: tuple[OpTotal, ...] = (), all_ops: bool = True, kernel: float = 0) -> RunSide:
    return RunSide("a.json", step_ns, {**dict.fromkeys(BREAKDOWN, 0.0), "kernel": kernel}, ops, (), (), all_ops)


@pytest.mark.parametrize(
    ("new", "verdict", "broken"),
    [(100_000, "no significant change", False), (103_000, "slower", False), (120_000, "slower", True),
     (80_000, "faster", False)],
)  # fmt: skip
def test_only_a_change_beyond_the_noise_counts(new: int, verdict: str, broken: bool) -> None:
    result = compare(side(steps(100_000)), side(steps(new)))
    assert result.verdict == verdict
    assert fails(result, 0.05) is broken


def test_too_few_steps_are_not_judged() -> None:
    result = compare(side((100,) * 4), side((900,) * 9))
    assert (result.verdict, result.interval) == ("cannot be judged", None)
    assert result.reason == "4 steps are too few; each side needs at least 5"
    assert not fails(result, 0.0)
    assert headline(result) == (
        "Median step 100 ns -> 900 ns (+800.0 %); significance cannot be judged: "
        "4 steps are too few; each side needs at least 5."
    )


def test_runs_without_steps_are_not_judged() -> None:
    assert headline(compare(side(()), side((1,)))).startswith("Step times cannot be compared")


_STEPS = st.lists(st.integers(1, 10**9), min_size=5, max_size=30)


@given(_STEPS, _STEPS)
def test_the_interval_is_ordered_and_repeatable(base: list[int], new: list[int]) -> None:
    interval = change_of_median(base, new)
    assert interval is not None
    assert interval.low <= interval.high
    assert interval == change_of_median(base, new)


@given(_STEPS)
def test_a_run_against_itself_is_never_slower(values: list[int]) -> None:
    assert verdict_on(change_of_median(values, values)) == "no significant change"


@given(st.lists(st.integers(10**6, 10**6 + 10**4), min_size=5, max_size=30))
def test_twice_as_long_is_always_slower(values: list[int]) -> None:
    interval = change_of_median(values, [2 * value for value in values])
    assert interval is not None
    assert interval.low > 0.9


def test_the_slowest_rank_sets_the_step() -> None:
    made = [Step(rank, "s", 0, dur, {}, False) for rank, dur in ((0, 5), (0, 9), (0, 5), (0, 5), (1, 8), (1, 6))]
    assert of_slowest_rank(made) == made[4:]


def test_steps_of_one_name_are_not_one_step() -> None:
    made = [Step(0, "s", 0, dur, {}, False) for dur in (5, 7)]
    assert of_slowest_rank(made) == made


def test_a_recording_without_steps_is_no_step_beside_ranks_with_steps() -> None:
    usual, whole = Step(0, "s", 0, 5, {}, False), Step(1, "whole trace", 0, 900, {}, False)
    assert of_slowest_rank([whole, usual]) == [usual]
    assert of_slowest_rank([whole]) == [whole]


def test_ops_are_per_step_and_under_their_normalised_name() -> None:
    rows = [Share(f"fused_{at}", 100, 1, 0.1) for at in range(4)]
    assert totals(rows, 2) == (OpTotal("fused_#", 200.0, 2.0),)


def test_ops_that_appeared_vanished_or_changed_are_listed() -> None:
    base = (OpTotal("a", 100, 1), OpTotal("b", 5_000, 1), OpTotal("same", 7_000, 1))
    new = (OpTotal("b", 9_000, 1), OpTotal("c", 60, 1), OpTotal("same", 7_001, 1))
    result = compare(side(steps(100_000), base), side(steps(100_000), new))
    assert [(change.name, change.kind, change.delta_ns) for change in result.device_ops] == [
        ("b", "changed", 4_000), ("a", "vanished", -100), ("c", "appeared", 60),
    ]  # fmt: skip


def test_ops_do_not_vanish_if_a_saved_report_lists_only_the_longest() -> None:
    base = side(steps(100_000), (OpTotal("a", 9_000, 1),))
    new = side(steps(100_000), (OpTotal("b", 9_000, 1),), all_ops=False)
    assert [change.kind for change in compare(base, new).device_ops] == ["appeared"]


@pytest.mark.parametrize(("text", "share"), [("slower:5%", 0.05), ("slower:0.5%", 0.005)])
def test_the_condition(text: str, share: float) -> None:
    assert parse_fail_if(text) == share


@pytest.mark.parametrize("text", ["slower", "slower:5", "faster:5%", ""])
def test_a_wrong_condition(text: str) -> None:
    with pytest.raises(PerfToolError, match="expected slower:N%"):
        parse_fail_if(text)


def test_an_infinite_condition_is_refused() -> None:
    """With an infinite limit, every run would pass."""
    with pytest.raises(PerfToolError, match=r"^--fail-if: the limit is too large$"):
        parse_fail_if(f"slower:{'9' * 320}%")


def test_formats_agree() -> None:
    result = compare(side(steps(100_000), kernel=10), side(steps(120_000), (OpTotal("x|y", 9, 1),), kernel=30))
    assert json.loads(render_diff_json(result))["verdict"] == "slower"
    text, markdown = render_diff_text(result).decode(), render_diff_markdown(result).decode()
    assert text.startswith("Median step 100 us -> 120 us (+20.0 %, 95.0 % interval +")
    assert "  appeared         +9 ns  x|y\n" in text
    assert "| kernel | 10 ns | 30 ns | +20 ns |" in markdown
    assert r"| x\|y | appeared | +9 ns |" in markdown


def test_other_files_are_not_saved_reports(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": []}')
    assert read_saved(str(trace)) is None
    assert read_saved(str(tmp_path)) is None
    trace.write_text('{"tool": "habana_perf_tool"}')
    assert read_saved(str(trace)) is None


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, "the report has version 2, not 1"), (None, "corrupt report (it has no version number)"),
        (1, "corrupt report (KeyError: 'steps')"),
    ],
)  # fmt: skip
def test_wrong_saved_reports(tmp_path: Path, version: int | None, message: str) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps({"tool": {"name": "habana_perf_tool"}, "version": version}))
    with pytest.raises(InputError) as caught:
        read_saved(str(saved))
    assert message in str(caught.value)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The report on 40 launches, each of which finds the device idle."""
    trace = tmp_path_factory.mktemp("run") / "trace.json"
    starved = [
        one for at in range(0, 4000, 100) for one in (x("aten::mm", at, 90), *launch(at, at + 5, 5, at + 15, 10))
    ]
    trace.write_bytes(document([step(0, 0, 4000), *starved]))
    return render_json(analyze([str(trace)]))


def test_a_saved_report_has_no_more_ops_than_a_run_lists(report: bytes, tmp_path: Path) -> None:
    """Otherwise, a hostile report could make the program compare thousands of ops with thousands of kernels."""
    found = json.loads(report)
    found["efficiency"] = {"ops": [to_plain(rated(f"aten::a{at}", "[[1]]", 40, 0.5)) for at in range(100)]}
    (tmp_path / "saved.json").write_text(json.dumps(found))
    saved = read_saved(str(tmp_path / "saved.json"))
    assert saved is not None
    assert len(saved.rates) == 60


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["device", "name"], 5), (["device", "name"], {}), (["inputs", 0, "rank"], "a"),
        (["findings", 0, "message"], [1]), (["findings", 0, "evidence"], 1), (["steps", 0, "dur_ns"], "1"),
        (["steps", 0, "dur_ns"], 2**70), (["top_device_ops", 0, "name"], {}), (["top_ops", 0, "total_ns"], None),
        (["modules"], [{"rank": 0}]), (["summary", "step_time_ms", "value"], "1"), (["efficiency", "ops"], {"a": 1}),
    ],
)  # fmt: skip
def test_values_of_wrong_types_are_not_a_report(
    place: list[str | int], value: object, report: bytes, tmp_path: Path
) -> None:
    saved = json.loads(report)
    inner = saved
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    with pytest.raises(InputError, match="corrupt report"):
        read_saved(str(tmp_path / "saved.json"))


def found(code: str, rank: int, **evidence: float) -> Finding:
    subject = f"rank {rank}"
    return Finding(
        code, "name", "warning", "high", subject, "m", "w", "f", rank, Location(), (), evidence, None,
        fingerprint(code, subject), None,
    )  # fmt: skip


def test_different_devices_or_ranks_are_reported_first() -> None:
    base = replace(side(steps(100_000)), setting=Setting("V100", (0,), 8))
    new = replace(side(steps(50_000)), setting=Setting("A100", (1, 2), 16))
    result = compare(base, new)

    first = render_diff_text(result).decode().splitlines()[0]
    assert first == (
        "These runs differ in more than the code: the device changed from V100 to A100; "
        "the world size changed from 8 to 16; base has rank 0, new has ranks 1-2."
    )
    assert first in render_diff_markdown(result).decode()
    assert len(json.loads(render_diff_json(result))["differences"]) == 3


def test_unknown_facts_of_a_side_are_no_difference() -> None:
    known = replace(side(steps(100_000)), setting=Setting("V100", (0,), 8))
    assert compare(known, side(steps(100_000))).differences == ()


def test_the_same_finding_on_another_rank_is_the_same() -> None:
    base = replace(side(steps(100_000)), findings=(found("GAP101", 0),))
    new = replace(side(steps(100_000)), findings=(found("GAP101", 3),))
    assert (compare(base, new).new_findings, compare(base, new).fixed_findings) == ((), ())


@pytest.mark.parametrize(("idle", "fixed"), [(0.24, 0), (0.26, 1)])
def test_a_finding_just_above_its_threshold_is_not_called_fixed(idle: float, fixed: int) -> None:
    rules = [rule for rule in load_pack(builtin_folder()) if rule.code == "GAP101"]
    base = replace(side(steps(100_000)), findings=(found("GAP101", 0, idle_ratio=idle),))
    result = compare(base, side(steps(100_000)), rules)
    assert (len(result.fixed_findings), len(result.crossed_findings)) == (fixed, 1 - fixed)


def rated(name: str, dims: str | None, ns: int, share: float, calls: int = 2, source: str = "op") -> OpRate:
    flops = 1e6
    return OpRate(name, source, None, "convolution", dims, "[]", calls, flops, 1e6, ns, calls * flops / ns / 1e3,
                  calls * 1e6 / ns / 1e3, "compute", share)  # fmt: skip


def test_ops_compare_by_shapes_whatever_library_ran_them() -> None:
    base = [rated("aten::cudnn_convolution", "[[1]]", 1000, 0.6), rated("aten::mm", "[[1]]", 400, 0.8),
            rated("gemm", None, 900, 0.5, source="graph")]  # fmt: skip
    new = [rated("aten::miopen_convolution", "[[1]]", 3000, 0.2, calls=4), rated("aten::mm", "[[2]]", 800, 0.4),
           rated("gemm", None, 900, 0.5, source="graph")]  # fmt: skip
    op, same = rate_changes(base, new)
    assert (op.name, op.shapes, op.factor) == ("convolution", "[[1]]", 1.5)
    # No shapes of mm match, so all of its calls are compared together, and only by how close they come to the peak.
    assert (same.name, same.shapes, same.factor, same.delta_ns) == ("mm", "", None, 400)
    nothing = dict.fromkeys(BREAKDOWN, 0.0)
    sides = [RunSide("a", (), nothing, (), (), (), rates=tuple(ops)) for ops in (base, new)]
    text = render_diff_text(compare(*sides))
    reached = "500 ns, 2.0 TFLOP/s, 60.0 % of peak -> 750 ns, 1.3 TFLOP/s, 20.0 % of peak"
    assert f"  convolution 1  {reached}  x1.50\n" in text.decode()


def device_side(device: str, *ops: OpRate) -> RunSide:
    return RunSide(device, (), dict.fromkeys(BREAKDOWN, 0.0), (), (), (), rates=ops, device=device)


def test_two_devices_compare_against_the_best_of_each() -> None:
    # The new device has twice the peak rate. At its peak, the old device would need 80 of its 100 ns, and the new one
    # 40 ns.
    base = device_side("Old", rated("aten::mm", "[[1]]", 100, 0.8, calls=1))
    slow = device_side("New", rated("aten::mm", "[[1]]", 80, 0.5, calls=1))
    result = compare(base, slow)
    (change,) = result.rates
    assert (change.factor, change.by_peaks, change.by_kernels) == (0.8, 0.5, 1.6)
    text = render_diff_text(result).decode()
    assert "Weighted by the calls of the base run, 1 op with the same shapes takes 100 ns -> 80 ns a step." in text
    assert "The devices' peaks alone predict 50 ns; kernels on New stay further below its peak, " in text
    assert "x0.80 (peaks x0.50, kernels x1.60)" in text
    assert "peaks" not in render_diff_text(compare(base, base)).decode()


def test_work_that_only_one_run_fuses_is_listed() -> None:
    apart = [rated("aten::bmm", "[[1]]", 300, 0.5), rated("aten::_softmax", "[[1]]", 500, 0.5),
             rated("aten::addcdiv_", "[[1]]", 50, 0.5), rated("aten::lerp_", "[[1]]", 50, 0.5)]  # fmt: skip
    fused = [rated("aten::_flash_attention_forward", "[[2]]", 200, 0.5), rated("aten::_fused_adamw_", "[[2]]", 40, 0.5)]
    attention, optimizer = compare(device_side("a", *apart), device_side("b", *fused)).fusions
    assert (attention.work, attention.on_base, attention.apart.names) == ("attention", False, ("_softmax", "bmm"))
    assert (attention.fused.ns, attention.apart.ns, attention.apart.calls) == (200, 800, 4)
    assert (optimizer.work, optimizer.apart.ns) == ("optimizer", 100)
    # Softmax without matmuls is not attention. Ops that the fused run calls just as often have not been fused.
    assert compare(device_side("a", *apart[1:2]), device_side("b", *fused)).fusions == ()
    assert compare(device_side("a", *apart[:2]), device_side("b", *fused, *apart[:2])).fusions == ()


def test_generated_kernels_name_the_ops_that_the_other_run_has_one_by_one() -> None:
    kernels = [rated("triton_poi_fused_add_mul_silu_0", "[[2]]", 30, 0.5)]
    single = [rated(f"aten::{name}", "[[1]]", 40, 0.5) for name in ("add", "mul", "silu", "div")]
    (found,) = compare(device_side("a", *kernels), device_side("b", *single)).fusions
    assert (found.on_base, found.apart.names, found.apart.ns) == (True, ("add", "mul", "silu"), 120)
    assert (
        "compile the model"
        in render_diff_markdown(compare(device_side("a", *kernels), device_side("b", *single))).decode()
    )
    assert compare(device_side("a", *kernels), device_side("b", single[0])).fusions == ()


def test_a_base_whose_steps_have_no_length_is_named_as_the_reason() -> None:
    assert compare(side((0,) * 6), side(steps(100_000))).reason == "the median step of the base run has length 0"
    assert (compare(side((0,) * 2), side(steps(100_000))).reason or "").startswith("2 steps are too few")


def test_kernels_generated_from_one_op_each_are_no_fusion() -> None:
    kernels = [rated("triton_poi_fused_silu_0", "[[2]]", 30, 0.5), rated("triton_poi_fused_add_1", "[[2]]", 30, 0.5)]
    single = [rated(f"aten::{name}", "[[1]]", 40, 0.5) for name in ("add", "mul", "silu")]
    assert compare(device_side("a", *kernels), device_side("b", *single)).fusions == ()
    both = rated("triton_poi_fused_add_mul_2", "[[2]]", 30, 0.5)
    (found,) = compare(device_side("a", *kernels, both), device_side("b", *single)).fusions
    assert (found.apart.names, found.fused.ns, found.apart.ns) == (("add", "mul", "silu"), 90, 120)


def test_only_the_beginning_of_very_long_names_is_searched_for_ops() -> None:
    """Otherwise, the program would search a name of millions of characters for each of thousands of ops."""
    single = [rated(f"aten::{name}", "[[1]]", 40, 0.5) for name in ("add", "mul", "silu")]
    for length, parts in ((1000, [("add", "mul", "silu")]), (1 << 19, [])):
        kernel = rated(f"triton_poi_fused_{'x' * length}_add_mul_silu_0", "[[2]]", 30, 0.5)
        found = compare(device_side("a", kernel), device_side("b", *single)).fusions
        assert [one.apart.names for one in found] == parts


def test_an_op_without_calls_has_no_factor() -> None:
    """A damaged report file may contain such an op."""
    ops = rated("aten::mm", "[[1]]", 100, 0.8), rated("aten::mm", "[[1]]", 80, 0.5)
    for base, new in ((replace(ops[0], calls=0), ops[1]), (ops[0], replace(ops[1], calls=0))):
        result = compare(device_side("Old", base), device_side("New", new))
        assert [change.factor for change in result.rates] in ([None], [])
        assert b"mm" in render_diff_text(result) or not result.rates


def test_names_in_markdown_are_neither_mentions_nor_links() -> None:
    name = "@everyone https://evil.example www.evil.example me@evil.example #12 a](b) <a>"
    kernels = [rated("triton_poi_fused_add_mul_silu_0", "[[2]]", 30, 0.5)]
    single = [rated(f"aten::{part}", "[[1]]", 40, 0.5) for part in ("add", "mul", "silu")]
    text = render_diff_markdown(compare(device_side(name, *kernels), device_side(name, *single))).decode()
    assert "@&#8203;everyone https:&#8203;//evil.example www&#8203;.evil.example me@&#8203;evil" in text
    assert not re.search(r"@\w|://|www\.|(?<!&)#\d|(?<!\\)\]\(|<a", text)


def test_modules_are_compared_by_their_place_without_the_modules_inside() -> None:
    before = replace(
        side(steps(1_000_000)), modules=(OpTotal("Model > Attention", 500_000, 1), OpTotal("Model > MLP", 300_000, 1))
    )
    after = replace(before, modules=(OpTotal("Model > Attention", 100_000, 1), OpTotal("Model > MLP", 300_100, 1)))
    result = compare(before, after)
    assert [(change.name, change.delta_ns) for change in result.modules] == [("Model > Attention", -400_000)]
    assert "-400 us  Model > Attention  500 us -> 100 us" in render_diff_text(result).decode()
    assert "| Model &gt; Attention  500 us -&gt; 100 us | -400 us |" in render_diff_markdown(result).decode()
    assert json.loads(render_diff_json(result))["modules"][0]["delta_ns"] == -400_000


def test_modules_are_silent_where_one_side_has_none() -> None:
    with_stacks = replace(side(steps(1_000_000)), modules=(OpTotal("Model", 500_000, 1),))
    assert compare(side(steps(1_000_000)), with_stacks).modules == ()
