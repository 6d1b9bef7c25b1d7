"""Every cut, read, fallback and recompilation is reported with its line and with what changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim.runs import run

from perftool.sim.machine.causes import Cause

START = "x = torch.arange(16.0).to('hpu')\nk = torch.arange(16).to('hpu')\nfor i in (1, 2):\n    y = x\n"
LINE = "script.py:7 <module>"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("x[: 4 * i] + 1", "aten::add.Tensor self: shape [4] to [8]"),
        ("torch.relu(x.as_strided((4,), (i,)))", "aten::relu self: strides [1] to [2]"),
        ("x[i : i + 4].exp()", "aten::exp self: storage offset 1 to 2"),
        ("torch.relu(x if i == 1 else k)", "aten::relu self: type float32 to int64"),
        ("x.pow(i)", "aten::pow.Tensor_Scalar exponent: 1 to 2"),
        ("torch.clamp(x, max=i / 2)", "aten::clamp max: 0.5 to 1.0"),
        ("x.roll(i)", "aten::roll shifts[0]: 1 to 2"),
        ("torch.cat([x] * (i + 1))", "aten::cat tensors: 2 to 3 entries"),
        ("torch.cat([x, x[:i]])", "aten::cat tensors[1]: shape [1] to [2]"),
        ("torch.full((2, i), 1.0, device='hpu')", "aten::full size[1]: 1 to 2"),
        ("x.sum(0, dtype=torch.float32 if i == 1 else torch.bfloat16)",
         "aten::sum.dim_IntList dtype: torch.float32 to torch.bfloat16"),
        ("x[k > 14 - i]", "aten::index.Tensor places of the mask: 2 to 3"),
        ("torch.add(x + 1, x if i == 1 else k) * 2", "aten::add.Tensor other: type float32 to int64"),
    ],
)  # fmt: skip
def test_a_recompilation_names_what_changed(tmp_path: Path, statement: str, what: str) -> None:
    done = run(tmp_path, f"{START}    {statement}\n    htcore.mark_step()").done

    assert done.causes[0] == Cause("recompilation", what, LINE, 1)


def test_reads_fallbacks_and_cuts_name_their_lines(tmp_path: Path) -> None:
    body = ["(x + 1).sum().item()", "x.cpu()", "torch.digamma(x)", "x[x > i * 0]", "htcore.mark_step()"]
    done = run(tmp_path, START + "".join(f"    {each}\n" for each in body)).done

    assert [(each.kind, each.what, each.line, each.count) for each in done.causes] == [
        ("fallback", "aten::digamma self=HPUFloatType", "script.py:9 <module>", 2),
        ("read", "a copy to the host", "script.py:8 <module>", 2),
        ("read", "a value on the host", "script.py:7 <module>", 2),
        ("cut", "host step marker", "script.py:11 <module>", 2),
        ("cut", "non zero", "script.py:10 <module>", 2),
    ]
    assert "\ncause: script.py:9 <module>: 2 x on the CPU, aten::digamma self=HPUFloatType\n" in done.log.read_text()


def test_other_ops_do_not_count_as_a_recompilation(tmp_path: Path) -> None:
    text = f"{START}    x.exp() if i == 1 else x.relu()\n    htcore.mark_step()"

    assert [each.kind for each in run(tmp_path, text).done.causes] == ["cut"]
