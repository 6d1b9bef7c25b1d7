"""``torch.autocast("hpu")`` casts by Gaudi's lists rather than the CPU's."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim.runs import run

START = """
from torch.nn import functional as F
x, w, b = torch.rand(2, 8, 4).to("hpu"), torch.rand(4, 4).to("hpu"), torch.rand(4).to("hpu")
i = torch.tensor([1, 2]).to("hpu")
"""
AUTOCAST = "with torch.autocast('hpu', torch.bfloat16):\n    "
LOW, FP32 = "torch.bfloat16", "torch.float32"


def shown(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    done = run(folder, START + text)
    assert done.done.exit_code == 0
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("x @ w", LOW),
        ("F.linear(x, w, b)", LOW),
        ("F.conv1d(x, torch.rand(3, 8, 2).to('hpu'))", LOW),
        ("F.scaled_dot_product_attention(x, x, x)", LOW),
        ("torch.einsum('bij,jk->bik', x, w)", LOW),
        ("x * 2", LOW),
        ("x.mean()", LOW),
        ("x.softmax(-1)", LOW),
        ("F.layer_norm(x, (4,), b, b)", LOW),
        ("F.leaky_relu(x)", LOW),
        ("torch.exp(x.bfloat16())", FP32),
        ("x.bfloat16() / 2", FP32),
        ("F.embedding(i, w.bfloat16())", FP32),
        ("F.cross_entropy(x[0].bfloat16(), torch.zeros(8, dtype=torch.long).to('hpu'))", FP32),
        ("F.mse_loss(x.bfloat16(), x.bfloat16())", FP32),
        ("x.bfloat16() + x.sum()", FP32),
        ("torch.cat([x.bfloat16(), x])", FP32),
        ("torch.cat([x.bfloat16(), x.bfloat16()])", LOW),
        ("x + x", FP32),
        ("x.relu()", FP32),
        ("x.sum()", FP32),
        ("x.bfloat16().sum()", LOW),
        ("x.double() * 2", "torch.float64"),
        ("i * 2", "torch.int64"),
        ("torch.rand(4) * 2", FP32),
    ],
)
def test_types_of_results(tmp_path: Path, capsys: pytest.CaptureFixture[str], expression: str, dtype: str) -> None:
    assert shown(tmp_path, capsys, f"{AUTOCAST}print(({expression}).dtype)") == dtype


def test_a_norm_keeps_the_types_of_its_weights(tmp_path: Path) -> None:
    done = run(tmp_path, f"{START}{AUTOCAST}F.layer_norm(x, (4,), b, b)\nhtcore.mark_step()")

    norm = done.named("aten::native_layer_norm")[0]["args"]
    assert [each for each in norm["Input type"] if each != "Scalar" and each] == ["c10::BFloat16", "float", "float"]


def test_a_weight_is_cast_at_every_use(tmp_path: Path) -> None:
    text = "x, w = x.bfloat16(), w.requires_grad_()\n" + AUTOCAST + "(x @ w, x @ w)\nhtcore.mark_step()"

    casts = run(tmp_path, START + text).named("aten::_to_copy")
    assert sum(each["args"]["Input Dims"][0] == [4, 4] for each in casts if "Input Dims" in each["args"]) == 2


def test_switched_off_inside_and_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = AUTOCAST + "print((x @ w).dtype, torch.is_autocast_enabled('hpu'), torch.hpu.is_autocast_hpu_enabled())\n"
    text += "    with torch.autocast('hpu', enabled=False):\n        print((x @ w).dtype)\n"
    text += "print((x @ w).dtype, torch.hpu.is_autocast_hpu_enabled())\n"
    text += "with torch.autocast('cpu', torch.bfloat16):\n    print((torch.rand(2, 2) @ torch.rand(2, 2)).dtype)"

    assert shown(tmp_path, capsys, text).splitlines() == [f"{LOW} True True", FP32, f"{FP32} False", LOW]


def test_gradients_have_the_types_of_the_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Softmax(-1)).to('hpu')\n"
    text += AUTOCAST + "loss = net(x).mean()\nloss.backward()\n"
    text += "print(loss.dtype, {p.grad.dtype for p in net.parameters()})"

    assert shown(tmp_path, capsys, text) == f"{LOW} {{{FP32}}}"


@pytest.mark.parametrize("names", [("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "PT_HPU_AUTOCAST_FP32_OPS_LIST"),
                                   ("LOWER_LIST", "FP32_LIST")])  # fmt: skip
def test_files_replace_the_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, str]) -> None:
    (tmp_path / "lower.txt").write_text("relu\nlinear\n")
    (tmp_path / "fp32.txt").write_text("softmax\n")
    variables = f"import os\nos.environ.update({{{names[0]!r}: {str(tmp_path / 'lower.txt')!r}"
    variables += f", {names[1]!r}: {str(tmp_path / 'fp32.txt')!r}}})\n"
    removed = f"[os.environ.pop(name) for name in {names!r}]\n"
    ops = "(x.relu(), F.linear(x, w), x @ w, x.bfloat16().softmax(-1), x.bfloat16().exp())"

    text = f"{variables}{AUTOCAST}print(*(each.dtype for each in {ops}))\n{removed}"
    assert shown(tmp_path, capsys, text).split() == [LOW, LOW, FP32, FP32, LOW]


def test_a_missing_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_it, unset = "import os\nos.environ['LOWER_LIST'] = 'none.txt'\n", "\ndel os.environ['LOWER_LIST']"
    text = f"{set_it}{AUTOCAST}print((x @ w).dtype){unset}"
    done = run(tmp_path, START + text)

    assert capsys.readouterr().out.strip() == LOW
    assert done.done.notes == ("LOWER_LIST names none.txt, which cannot be read: autocast uses its default list",)


def test_autocast_is_restored_after_the_run(tmp_path: Path) -> None:
    import torch

    run(tmp_path, f"{START}{AUTOCAST}x @ w")

    with torch.autocast("hpu", torch.bfloat16):
        assert (torch.rand(2, 2) @ torch.rand(2, 2)).dtype == torch.float32
