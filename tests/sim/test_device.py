"""The device as a script sees it: where tensors are, their values, and fallbacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim.runs import run

from perftool.model.hpu_ops import accepts, base_name, hpu_ops, is_registered, unsupported


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("x.device", "hpu:0"),
        ("x.is_cpu", "False"),
        ("(x + 1).device", "hpu:0"),
        ("x.view(2, 2)[0].device", "hpu:0"),
        ("x.new_zeros(2).device", "hpu:0"),
        ("torch.zeros_like(x).device", "hpu:0"),
        ("torch.ones(2).to(x).device", "hpu:0"),
        ("torch.arange(3, device=x.device).device", "hpu:0"),
        ("torch.tensor([1.0], device='hpu:0').device", "hpu:0"),
        ("x.to(torch.bfloat16).device", "hpu:0"),
        ("x.cpu().device", "cpu"),
        ("x.to('cpu').device", "cpu"),
        ("torch.ones(2).device", "cpu"),
        ("next(torch.nn.Linear(2, 2).to('hpu').parameters()).device", "hpu:0"),
        ("torch.nn.Linear(2, 2, device='hpu').weight.device", "hpu:0"),
        ("copy.deepcopy(x).device", "hpu:0"),
        ("torch.ones(2).hpu().device", "hpu:0"),
        ("[torch.save({'x': x}, 'x.pt'), torch.load('x.pt', map_location='hpu')['x'].device][1]", "hpu:0"),
        ("torch.hpu.is_available()", "True"),
        ("torch.hpu.get_device_name()", "GAUDI2"),
        ("torch.hpu.memory_allocated() >= 16", "True"),
        ("x.sum().item()", "4.0"),
        ("x.tolist()", "[1.0, 1.0, 1.0, 1.0]"),
        ("float(x[0]), bool(x[1] > 0)", "1.0 True"),
        ("x.cpu().numpy().sum()", "4.0"),
    ],
)
def test_expressions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], expression: str, shown: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path, f"import copy\nx = torch.ones(4).to('hpu')\nprint({expression})")
    assert capsys.readouterr().out == shown + "\n"


def test_memory_of_the_device_is_not_that_of_numpy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "torch.ones(2, device='hpu').numpy()").done.exit_code == 1
    assert "can't convert hpu:0 device type tensor to numpy" in capsys.readouterr().err


BACKWARD = """
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
        @staticmethod
        def backward(ctx, grad):
            print(grad.device, (grad + torch.ones(4, device="hpu")).device)
            return grad * 2
    x = torch.ones(4).to("hpu").requires_grad_()
    {call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "Twice.apply(x).sum().backward()",
        "torch.autograd.backward(Twice.apply(x).sum())",
        "torch.autograd.grad(Twice.apply(x).sum(), x)",
        "torch.utils.checkpoint.checkpoint(Twice.apply, x, use_reentrant=True).sum().backward()",
        "torch.utils.checkpoint.checkpoint(lambda y: Twice.apply(y.exp()), x, use_reentrant=False).sum().backward()",
    ],
)
def test_code_of_the_script_in_a_backward_sees_the_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    done = run(tmp_path, BACKWARD.format(call=call))

    assert capsys.readouterr().out == "hpu:0 hpu:0\n"
    assert len(done.named("copy_hpu_lazy_H2D")) == 1


def test_hooks_of_saved_tensors_see_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        x = torch.ones(4).to("hpu").requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: print(t.device) or t.cpu(), lambda t: t.to("hpu")):
            y = x.exp()
        y.sum().backward()
        print(x.grad.device)
    """
    done = run(tmp_path, text)

    assert capsys.readouterr().out == "hpu:0\nhpu:0\n"
    assert (len(done.named("copy_hpu_lazy_D2H")), len(done.named("copy_hpu_lazy_H2D"))) == (1, 2)


def test_values_are_those_of_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        from habana_frameworks.torch.hpex.kernels import FusedSDPA
        from torch.nn import functional as F
        torch.manual_seed(0)
        host = [torch.randn(2, 4, 16, 8) for _ in range(3)]
        here = [each.to("hpu").requires_grad_() for each in host]
        plain = [each.clone().requires_grad_() for each in host]
        fused = FusedSDPA.apply(*here, None, 0.0, True)
        known = F.scaled_dot_product_attention(*plain, is_causal=True)
        fused.pow(2).sum().backward()
        known.pow(2).sum().backward()
        print(torch.allclose(fused.cpu(), known, atol=1e-5))
        print([torch.allclose(a.grad.cpu(), b.grad, atol=1e-4) for a, b in zip(here, plain)])
    """
    done = run(tmp_path, text)
    assert capsys.readouterr().out == "True\n[True, True, True]\n"
    assert {"sdpa_recomp_fwd", "sdpa_recomp_bwd"} <= {event["name"] for event in done.kernels("MME")}


def test_the_fused_adamw_updates_group_by_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        from habana_frameworks.torch.hpex.optimizers import FusedAdamW
        values = []
        for kind, device in ((FusedAdamW, "hpu"), (torch.optim.AdamW, "cpu")):
            torch.manual_seed(0)
            one, two = (torch.nn.Linear(3, 3).to(device) for _ in range(2))
            groups = [{"params": each.parameters(), "weight_decay": decay} for each, decay in ((one, 0.1), (two, 0.0))]
            optimizer = kind(groups, lr=0.1, eps=1e-8)
            for _ in range(2):
                two(one(torch.ones(2, 3, device=device))).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            values.append([each.cpu() for each in (one.weight, two.weight)])
        print([torch.allclose(a, b, atol=1e-5) for a, b in zip(*values)], len(optimizer.param_groups))
    """
    done = run(tmp_path, text)

    assert capsys.readouterr().out == "[True, True] 2\n"
    assert [event["name"] for event in done.kernels()].count("optimizer_adamw") == 4


def test_optimizers_agree_with_those_of_pytorch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        from habana_frameworks.torch.hpex.normalization import FusedClipNorm
        from habana_frameworks.torch.hpex.optimizers import FusedSGD
        weights = []
        for device, cls in (("hpu", FusedSGD), ("cpu", torch.optim.SGD)):
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 4).to(device)
            optimizer = cls(model.parameters(), 0.1, 0.9)
            for _ in range(3):
                model(torch.ones(2, 4, device=device)).pow(2).sum().backward()
                if device == "hpu":
                    FusedClipNorm(model.parameters(), 1.0).clip_norm(model.parameters())
                else:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            weights.append(model.weight.detach().cpu())
        print(torch.allclose(*weights, atol=1e-6))
    """
    run(tmp_path, text)
    assert capsys.readouterr().out == "True\n"


FALLBACKS = """
    x = torch.ones(4, dtype=torch.{dtype}, device="hpu") * 3
    {call}
"""


@pytest.mark.parametrize(
    ("call", "dtype", "logged"),
    [
        ("torch.digamma(x)", "float32", {"aten::digamma": 1}),
        ("x.exp()", "float64", {}),
        ("torch.mm(x[None].int(), x[:, None].int())", "float32", {"aten::mm": 1}),
        ("torch.linalg.cholesky_ex(torch.eye(3, dtype=torch.bfloat16, device='hpu').float())", "float32", {}),
        ("x.exp()", "bfloat16", {}),
        ("(x > 1).sum()", "int64", {}),
        ("torch.unique(x)", "float32", {}),
        ("torch._foreach_mul_([x], 2)", "float32", {}),
        # An elementwise op is judged by the dtype that it computes in: integers become fp32, and the wider of two
        # dtypes counts.
        ("x.sigmoid()", "int64", {}),
        ("x.sigmoid()", "float16", {}),
        ("torch.floor_divide(x, x.half())", "int64", {"aten::floor_divide": 1}),
        ("torch.floor_divide(x.half(), x)", "float32", {}),
        ("x.half() > x.int()", "int64", {}),
        ("torch.polar(x, x).abs()", "float32", {"aten::polar": 1, "aten::abs": 1}),
        # If the registration lists dtypes by argument, each required argument is checked.
        ("torch.zeros(4, 4, device='hpu').index_add_(0, torch.arange(4, device='hpu'), x.expand(4, 4))", "float32", {}),
        (
            "torch.zeros(4, 4, dtype=torch.int16, device='hpu').index_add_(0, x.long(), x.expand(4, 4))",
            "int16",
            {"aten::index_add_": 1},
        ),
        ("torch.batch_norm(x[None], x, x, x, x, True, 0.1, 1e-5, False)", "bfloat16", {}),
        (
            "torch.ops.aten._native_batch_norm_legit(x[None], x, x, x.float(), x.float(), True, 0.1, 1e-5)",
            "bfloat16",
            {},
        ),
        (
            "torch.ops.aten._native_batch_norm_legit(x[None], x, x, x, x, True, 0.1, 1e-5)",
            "bfloat16",
            {"aten::_native_batch_norm_legit": 1},
        ),
    ],
)
def test_fallbacks(tmp_path: Path, call: str, dtype: str, logged: dict[str, int]) -> None:
    done = run(tmp_path, FALLBACKS.format(call=call, dtype=dtype))
    assert done.metrics["cpu_fallback"]["FallbackOps"] == logged
    assert done.metrics["cpu_fallback"]["TotalNumber"] == len(done.named("cpu_fallback")) == sum(logged.values())
    assert ("CPU Fallback stats:" in done.log) == bool(logged)


def test_a_fallback_is_logged_as_the_bridge_does(tmp_path: Path) -> None:
    lines = run(tmp_path, FALLBACKS.format(call="torch.digamma(x)", dtype="bfloat16")).log.splitlines()
    texts = [line.split("] ", 1)[-1] for line in lines if "allback" in line]
    assert texts == ["CPU fallback digamma : self=HPUBFloat16Type", "step marker due to cpu fallback aten::digamma",
                     "CPU Fallback stats:"]  # fmt: skip
    assert lines[-2] == "1\taten::digamma"


COMMON = {
    "a convolutional network": """
        block = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                              nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                              nn.Flatten(), nn.Dropout(0.1), nn.Linear(8, 5))
        inputs, classes = torch.randn(2, 3, 32, 32), 5
    """,
    "a transformer": """
        layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
        block = nn.Sequential(nn.Embedding(9, 16), nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
                              nn.LayerNorm(16), nn.Flatten(), nn.Linear(64, 5))
        inputs, classes = torch.randint(0, 9, (2, 4)), 5
    """,
    "a recurrent network": """
        class Last(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 5)
            def forward(self, x):
                return self.head(self.cell(x)[0][:, -1])
        block, inputs, classes = Last(), torch.randn(2, 3, 4), 5
    """,
}


@pytest.mark.parametrize("network", COMMON)
@pytest.mark.parametrize("bf16", [True, False])
def test_common_training_steps_need_no_fallback(tmp_path: Path, network: str, bf16: bool) -> None:
    step = f"""
        model = block.to("hpu")
        for cls in (torch.optim.AdamW, torch.optim.SGD):
            optimizer = cls(model.parameters(), lr=0.1, weight_decay=0.01)
            with torch.autocast("hpu", dtype=torch.bfloat16, enabled={bf16}):
                logits = model(inputs.to("hpu"))
                loss = F.cross_entropy(logits, torch.zeros(2, dtype=torch.long, device="hpu"), label_smoothing=0.1)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            htcore.mark_step()
        (logits.softmax(-1).argmax(-1) == 0).float().mean().item()
    """
    done = run(
        tmp_path, "from torch import nn\nfrom torch.nn import functional as F\n" + _dedent(COMMON[network], step)
    )
    assert (done.done.exit_code, done.metrics["cpu_fallback"]["FallbackOps"]) == (0, {})
    assert len(done.named("aten::item")) == 1


def _dedent(*texts: str) -> str:
    from textwrap import dedent

    return "".join(map(dedent, texts))


def test_the_table_of_registered_ops() -> None:
    assert len(hpu_ops().names) == 1064
    assert not is_registered("aten::digamma")
    assert is_registered("aten::mm")
    assert base_name("aten::add_.Tensor") == "aten::add"
    assert base_name("aten::__ilshift__.Scalar") == "aten::__ilshift"
    assert unsupported("aten::cholesky", "aten::cholesky", frozenset({"bfloat16"})) == (
        frozenset({"bfloat16"}),
        frozenset({"float32"}),
    )
    assert not accepts("aten::mm", "GAUDI", "self", "float16")
    assert accepts("aten::mm", "GAUDI2", "self", "float16")
    assert accepts("aten::index_add_", "GAUDI2", "index", "int64")
    assert accepts("aten::relu", "GAUDI2", "self", "float64")
    assert not accepts("aten::relu", "GAUDI2", "self", "complex64")
    assert unsupported("aten::mm", "aten::mm", frozenset({"float64"}))[0] == frozenset()
