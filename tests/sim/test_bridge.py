"""Cuts, recompilations and fallbacks follow the bridge's source code (perftool/hpu_bridge.json)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sim.runs import Run, run

from perftool.model.hpu_bridge import hpu_bridge


def cuts(done: Run) -> list[str]:
    """Return the reason for each cut except the last one."""
    return [line.split("step marker due to ")[1] for line in done.log.splitlines() if "step marker due to" in line][:-1]


HCCL = """
import torch.distributed as dist
dist.init_process_group("hccl")
y = x + 1
"""
GRAPH = """
g, y, z = hpu.HPUGraph(), torch.zeros(4).to("hpu"), torch.zeros(4).to("hpu")
g.capture_begin(); z.copy_(y * 2); g.capture_end()
g.mark_user_inputs([y])
"""
LIMITS = {
    "max accumulated graph size": "PT_HPU_MAX_ACCUM_SIZE",
    "reaching max accumulated compound op size": "PT_HPU_MAX_COMPOUND_OP_SIZE",
}
# Statements for each kind of cut in the bridge. Each statement adds an op to the graph before it ends the graph.
CUTS = {
    "H2D copy": ["y = x + 1\ny.copy_(torch.ones(4))"],
    "HPUEvent::record": ["hpu.Event().record()"],
    "HPUGraph::capture_end": [GRAPH],
    "HPUGraph::replay": [GRAPH + "g.replay()"],
    "HPUGraph::replayV2": [GRAPH + "g.replayV2([y], [x])"],
    "HPUGraph::replayV3": [GRAPH + "g.replayV3([x])"],
    "HPUStream::query": ["hpu.Stream().query()"],
    "HPUStream::synchronize": ["hpu.Stream().synchronize()"],
    "HPUStream::synchronize userthread": ["hpu.current_stream().synchronize()"],
    "HbLazyTensorViews::StepMarkerAllReduce": [HCCL + "dist.all_reduce(y)"],
    "ProcessGroupHCCL::collective": [HCCL + "dist.broadcast(y, 0)", HCCL + "dist.all_gather([x.clone()], y)"],
    "bindings-synchronize_device": ["hpu.synchronize()"],
    "cpu fallback aten::digamma": ["torch.digamma(x)"],
    "d2h_maybe_eval": ["(x + 1).cpu()"],
    "host step marker": ["htcore.mark_step()"],
    "index_put_frontend_impl_hpu_lazy": ["x[m] = 0"],
    "local scalar": ["x.sum().item()", "torch.bincount(x.int())"],
    "max accumulated graph size": ["x + 1"],
    "new HPUGraph::capture_begin": [GRAPH],
    "nms": [
        "lib = torch.library.Library('torchvision', 'FRAGMENT')\n"
        "lib.define('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')\n"
        "lib.impl('nms', lambda dets, scores, iou: scores.argsort(), 'CPU')\n"
        "torch.ops.torchvision.nms(torch.rand(4, 4).to('hpu'), x, 0.5)"
    ],
    "non zero": ["x[m]", "x.masked_select(m)", "m.nonzero()", "torch.where(m)"],
    "out shape changed": [
        "torch.add(x, 1, out=torch.empty(0, device='hpu'))",
        "torch.ones(2, device='hpu').resize_(8)",
    ],
    "reaching max accumulated compound op size": ["x + 1"],
    "unique": ["torch.unique(x)"],
    "view tensor resize": ["torch.add(x, 1, out=torch.zeros(2, 4).to('hpu')[0, :0])"],
}


@pytest.mark.parametrize(("reason", "statement"), [(cut, each) for cut, given in CUTS.items() for each in given])
def test_these_statements_cut_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, statement: str
) -> None:
    for limited, name in LIMITS.items():
        monkeypatch.setenv(name, "2" if limited == reason else "")
    text = "import habana_frameworks.torch.hpu as hpu\nx = torch.arange(4.0).to('hpu')\nm = x > 1\n"

    done = run(tmp_path, f"{text}{statement}\n(x + 1).sum()\nhtcore.mark_step()")

    assert done.done.exit_code == 0
    assert reason in cuts(done)


def test_every_reason_for_a_cut_is_modelled_or_explained() -> None:
    bridge = hpu_bridge()

    assert {reason.split(" aten::")[0] for reason in CUTS} == bridge.cuts
    assert not bridge.cuts & bridge.other_cuts.keys()
    assert len(bridge.cuts) + len(bridge.other_cuts) == 46


@pytest.mark.parametrize(
    ("statement", "op"),
    [("x[m]", "aten::index"), ("x[m] = 0", "aten::index_put_"), ("torch.unique(x)", "aten::_unique2"),
     ("x.masked_select(m)", "aten::masked_select"), ("torch.where(m)", "aten::nonzero"),
     ("torch.bincount(x.int())", "aten::bincount")],
)  # fmt: skip
def test_the_wait_for_the_length_of_a_result_is_a_read_in_the_op(tmp_path: Path, statement: str, op: str) -> None:
    done = run(tmp_path, f"x = torch.arange(4.0).to('hpu')\nm = x > 1\n{statement}")

    [wait] = [each["ts"] for each in done.named("synEventSynchronize")][-2:-1]
    for name in (op, "aten::item"):
        [around] = done.named(name)
        assert around["ts"] < wait < around["ts"] + around["dur"]


@pytest.mark.parametrize(
    "statement",
    [
        *("x[i]", "x[i] = 0", "x[1:3] = 0", "x.masked_fill_(m, 0)", "torch.where(m, x, 0)"),
        *("start.cpu()", "start.copy_(torch.ones(4))", "torch.hpu.current_stream().query()"),
        *("torch.hpu.Event().record(torch.hpu.Stream())", "torch.add(x, 1, out=start)", "x.resize_(2, 2)"),
    ],
)
def test_these_statements_do_not_cut_the_graph(tmp_path: Path, statement: str) -> None:
    text = f"""
        x = torch.arange(4.0).to("hpu")
        start = torch.arange(4.0).to("hpu")
        m, i = x > 1, torch.tensor([0, 2]).to("hpu")
        {statement}
        htcore.mark_step()
    """

    assert cuts(run(tmp_path, text)) == []


@pytest.mark.parametrize(
    ("expression", "compilations"),
    [
        ("x > f", 1),
        ("x == f", 1),
        ("x * f", 1),
        ("x / f", 1),
        ("k & int(10 * f)", 1),
        ("torch.xlogy(x, f)", 1),
        ("torch.addcmul(x, x, x, value=f)", 1),
        ("x.clamp(max=f)", 5),
        ("x.pow(f)", 5),
        ("torch.full((4,), f, device='hpu')", 5),
    ],
)
def test_which_numbers_belong_to_the_key_of_a_recipe(tmp_path: Path, expression: str, compilations: int) -> None:
    text = f"""
        x = torch.arange(4.0).to("hpu")
        k = torch.arange(4).to("hpu")
        htcore.mark_step()
        for f in (0.25, 0.5, 0.75, 1.5, 2.5):
            y = {expression}
            htcore.mark_step()
    """

    assert run(tmp_path, text).done.compilations == compilations


def test_double_precision_runs_on_the_device_and_the_log_states_the_type(tmp_path: Path) -> None:
    done = run(tmp_path, "x = torch.ones(4, dtype=torch.float64, device='hpu')\n(x * 2).exp()\nhtcore.mark_step()")

    assert done.metrics["cpu_fallback"]["TotalNumber"] == 0
    assert re.search(
        r"^note: \d ops on float64 tensors: a Gaudi silently computes them in fp32", done.log, re.MULTILINE
    )
    assert done.done.notes == tuple(line[6:] for line in done.log.splitlines() if line.startswith("note: "))


def test_a_packed_sequence_has_its_lengths_on_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        packed = pack_padded_sequence(torch.ones(3, 2, 4).to("hpu"), torch.tensor([3, 2]))
        result, _ = torch.nn.LSTM(4, 5).to("hpu")(packed)
        padded, lengths = pad_packed_sequence(result)
        print(packed.data.device, packed.batch_sizes.device, padded.device, lengths.tolist())
    """

    assert run(tmp_path, text).done.exit_code == 0
    assert capsys.readouterr().out == "hpu:0 cpu hpu:0 [3, 2]\n"


def test_tensors_made_by_pytorch_are_on_the_device_of_their_contents(tmp_path: Path) -> None:
    text = """
        from torch.nn.utils.rnn import pack_padded_sequence
        x = torch.ones(3, 2, 4).to("hpu").requires_grad_()
        pack_padded_sequence(x, torch.tensor([3, 2])).data.sum().backward()
        htcore.mark_step()
        there = torch.zeros(4)
        there.copy_(torch.ones(4, device="hpu"))
    """
    done = run(tmp_path, text).done

    assert done.exit_code == 0
    assert [each.line for each in done.causes if each.kind == "read"] == ["script.py:9 <module>"]
