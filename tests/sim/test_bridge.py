"""What cuts, recompiles and falls back, as the bridge's source has it (perftool/hpu_bridge.json)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sim.runs import Run, run

from perftool.model.hpu_bridge import hpu_bridge


def cuts(done: Run) -> list[str]:
    """The reasons of the cuts, but for the last."""
    return [line.split("step marker due to ")[1] for line in done.log.splitlines() if "step marker due to" in line][:-1]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("x[m]", "non zero"),
        ("x[m] = 0", "index_put_frontend_impl_hpu_lazy"),
        ("x.masked_select(m)", "non zero"),
        ("m.nonzero()", "non zero"),
        ("torch.where(m)", "non zero"),
        ("torch.unique(x)", "unique"),
        ("x.sum().item()", "local scalar"),
        ("x.cpu()", "d2h_maybe_eval"),
        ("torch.digamma(x)", "cpu fallback aten::digamma"),
        ("torch.hpu.synchronize()", "bindings-synchronize_device"),
        ("htcore.mark_step()", "host step marker"),
    ],
)
def test_what_cuts_the_graph(tmp_path: Path, statement: str, reason: str) -> None:
    done = run(tmp_path, f"x = torch.arange(4.0).to('hpu')\nm = x > 1\n{statement}\n(x + 1).sum()\nhtcore.mark_step()")

    assert cuts(done) == [reason]
    assert reason.startswith("cpu fallback") or reason in hpu_bridge().cuts


@pytest.mark.parametrize(
    "statement", ["x[i]", "x[i] = 0", "x[1:3] = 0", "x.masked_fill_(m, 0)", "torch.where(m, x, 0)"]
)
def test_what_does_not_cut_it(tmp_path: Path, statement: str) -> None:
    text = f"""
        x = torch.arange(4.0).to("hpu")
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


def test_double_precision_runs_on_the_device_and_the_log_says_in_what(tmp_path: Path) -> None:
    done = run(tmp_path, "x = torch.ones(4, dtype=torch.float64, device='hpu')\n(x * 2).exp()\nhtcore.mark_step()")

    assert done.metrics["cpu_fallback"]["TotalNumber"] == 0
    assert re.search(r"^note: \d ops on float64 tensors: a Gaudi computes them in fp32", done.log, re.MULTILINE)
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
