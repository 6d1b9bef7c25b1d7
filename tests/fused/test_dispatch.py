"""Which implementation is chosen, and the reason given."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest
import torch
from training import assert_same, give_gradients, parameters

import perftool.fused
from perftool.errors import MissingExtraError
from perftool.fused import (
    FusedAdamW,
    FusedClipNorm,
    FusedEMA,
    FusedLars,
    FusedSGD,
    dispatch,
)
from perftool.fused.dispatch import (
    BackendError,
    backends,
    candidates,
    choose,
    register,
)
from perftool.fused.optimizers import adagrad, adamw, sgd


@pytest.fixture
def op(monkeypatch):
    """An op that has a fast form for the CPU and a reference, but no native form."""
    monkeypatch.setattr(dispatch, "_registry", {})
    monkeypatch.setattr(dispatch, "_choices", {})
    monkeypatch.setattr(dispatch, "wanted", None)
    register("op", "reference")
    register("op", "fast", ("cpu",))
    register("op", "habana", ("hpu",), lambda: "not installed")
    return "op"


def test_the_first_usable_implementation_is_chosen(op):
    assert choose(op, "cpu") == "fast"
    assert choose(op, "hpu") == "reference"
    assert dispatch._report(op, "cpu").why == "habana: runs on hpu, not on cpu"
    assert dispatch._report(op, "hpu").why == "habana: not installed; fast: runs on cpu, not on hpu"
    assert candidates(op, "cpu") == {"habana": "runs on hpu, not on cpu", "fast": None, "reference": None}
    assert list(candidates(op, "cpu")) == ["habana", "fast", "reference"]


def test_one_name_may_have_an_implementation_per_device(op):
    register("op", "fast", ("cuda",), lambda: "no kernel")
    assert choose(op, "cpu") == "fast"
    assert candidates(op, "cuda")["fast"] == "runs on cpu, not on cuda; no kernel"


def test_the_choice_of_the_environment_runs_or_raises(op, monkeypatch):
    monkeypatch.setattr(dispatch, "wanted", "reference")
    assert choose(op, "cpu") == "reference"
    assert dispatch._report(op, "cpu").why == "asked for by PERFTOOL_FUSED_BACKEND"
    monkeypatch.setattr(dispatch, "wanted", "habana")
    with pytest.raises(BackendError, match=r"^op cannot use 'habana': not installed\.$"):
        choose(op, "hpu")
    monkeypatch.setattr(dispatch, "wanted", "native")
    with pytest.raises(BackendError, match=r"^op has no implementation 'native'; it has habana, fast, ref"):
        choose(op, "cpu")


def test_without_a_usable_implementation_an_error_is_raised(op):
    register("op", "reference", ("cuda",))
    del dispatch._registry["op"]["reference", dispatch.ANY_DEVICE]
    with pytest.raises(BackendError, match="op has no usable implementation on hpu"):
        choose(op, "hpu")


def test_backends_reports_every_optimizer():
    reports = {report.op: report for report in backends(["cpu"])}
    for name in ("FusedSGD", "FusedAdagrad", "FusedAdamW", "FusedLamb", "distributed.FusedAdamW"):
        assert reports[name].chosen == "fast"
        assert list(reports[name].obstacles) == ["habana", "fast", "reference"]
    for name in ("FusedLars", "FusedEMA", "FusedClipNorm"):
        assert reports[name].chosen == "fast"
    assert list(reports) == sorted(reports)


def test_backends_reports_a_choice_that_cannot_run(monkeypatch):
    monkeypatch.setattr(dispatch, "wanted", "habana")
    (report,) = [each for each in backends(["cpu"]) if each.op == "FusedSGD"]
    assert report.chosen == "none"
    assert report.why == "FusedSGD cannot use 'habana': runs on hpu, not on cpu."


def test_an_optimizer_refuses_a_backend_that_cannot_run(monkeypatch):
    monkeypatch.setattr(dispatch, "wanted", "habana")
    with pytest.raises(BackendError, match="FusedSGD cannot use 'habana'"):
        FusedSGD(parameters(), 0.1).step()


@pytest.mark.parametrize("how", ["missing", "other signature", "other result"])
def test_a_private_kernel_that_changes_is_replaced_by_the_plain_loop(monkeypatch, how):
    def moved(*args, **options):
        if how == "missing":
            raise AttributeError("module 'torch' has no attribute '_fused_adamw_'")
        if how == "other signature":
            raise TypeError("missing argument")

    monkeypatch.setattr(torch, "_fused_adamw_", moved)
    adamw.ADAMW._obstacles.clear()
    monkeypatch.setattr(dispatch, "_choices", {})
    ours, theirs = parameters(), parameters()
    give_gradients(ours, theirs, seed=0)
    try:
        assert choose("FusedAdamW", "cpu") == "reference"
        FusedAdamW(ours, weight_decay=0.1).step()
    finally:
        monkeypatch.undo()
        adamw.ADAMW._obstacles.clear()
    monkeypatch.setattr(dispatch, "wanted", "reference")
    FusedAdamW(theirs, weight_decay=0.1).step()
    assert_same(ours, theirs)


@pytest.mark.parametrize("kernel", [sgd.SGD, adagrad.ADAGRAD, adamw.ADAMW])
def test_the_kernels_of_this_torch_are_right(kernel):
    assert kernel.obstacle("cpu") is None
    assert kernel.obstacle("cpu", torch.float64) is None


class NativeAdamW(torch.optim.Optimizer):
    """Stands in for habana_frameworks' class. It halves the weights and keeps a state."""

    def __init__(self, params, lr, betas, eps, weight_decay, bias_correction, moments_dtype):
        super().__init__(params, {"lr": lr, "eps": eps})
        self.arguments = (lr, betas, eps, weight_decay, bias_correction, moments_dtype)

    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.data.mul_(group["lr"])
                self.state[param]["exp_avg"] = torch.ones_like(param)
        return "native"


class NativeClipNorm:
    def __init__(self, parameters, max_norm):
        self.max_norm = max_norm

    def clip_norm(self, parameters):
        return torch.tensor([self.max_norm])


class NativeEMA:
    def __init__(self, model, decay, updates):
        self.ema, self.updates = model, updates

    def update(self, model):
        self.updates += 10


class NativeLars:
    def __init__(self, optimizer, skip_mask, eeta, eps):
        self.arguments = (skip_mask, eeta, eps)

    def step(self):
        self.arguments = ("stepped", *self.arguments)


@pytest.fixture
def gaudi(monkeypatch):
    """A machine on which habana_frameworks has some of the classes and tensors claim to be on an hpu."""
    attributes = {
        "habana_frameworks": {},
        "habana_frameworks.torch": {},
        "habana_frameworks.torch.hpex": {},
        "habana_frameworks.torch.hpex.optimizers": {"FusedAdamW": NativeAdamW, "FusedLars": NativeLars},
        "habana_frameworks.torch.hpex.normalization": {"FusedClipNorm": NativeClipNorm},
        "habana_frameworks.torch.hpex.movingavrg": {"FusedEMA": NativeEMA},
    }
    for name, names in attributes.items():
        module = types.ModuleType(name)
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, module)

    def choose_on_hpu(op, device_type):
        return choose(op, "hpu")

    for module in ("optimizer", "clip_norm", "ema", "lars"):
        monkeypatch.setattr(f"perftool.fused.optimizers.{module}.choose", choose_on_hpu)


@pytest.mark.usefixtures("gaudi")
def test_native_adamw_shares_groups_and_state():
    params = parameters()
    before = [param.detach().clone() for param in params]
    fused = FusedAdamW(params, 0.5, weight_decay=0.1)
    assert fused.step() == "native"
    fused.param_groups[0]["lr"] = 0.25
    fused.step()
    assert isinstance(fused._native, NativeAdamW)
    assert fused._native.arguments == (0.5, (0.9, 0.999), 1e-6, 0.1, True, None)
    assert_same(params, [value * 0.125 for value in before])
    assert_same(fused.state[params[0]].values(), [torch.ones(3)])
    fused.load_state_dict(fused.state_dict())
    fused.step()
    assert fused._native.state is fused.state
    (reason,) = [each.why for each in backends(["hpu"]) if each.op == "FusedSGD"]
    assert reason.startswith("habana: module 'habana_frameworks.torch.hpex.optimizers' has no attribute")


@pytest.mark.usefixtures("gaudi")
def test_native_clipping_averaging_and_lars():
    params = parameters()
    give_gradients(params, seed=0)
    assert FusedClipNorm(params, 2.5).clip_norm(params).tolist() == [2.5]
    model = torch.nn.Linear(2, 2)
    ema = FusedEMA(model)
    ema.update(model)
    assert (ema.ema, ema.updates) == (model, 10)
    lars = FusedLars(torch.optim.SGD(params, 0.1), [1, 0], 0.5)
    lars.step()
    assert lars._native.arguments == ("stepped", [1, 0], 0.5, 1e-8)


def test_the_public_names_exist():
    for name in perftool.fused.__all__:
        assert getattr(perftool.fused, name) is not None
    assert set(perftool.fused.__all__) <= set(dir(perftool.fused))
    with pytest.raises(AttributeError, match="has no attribute 'FusedNothing'"):
        perftool.fused.FusedNothing  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    code = "import sys, perftool.fused; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_without_torch_one_sentence_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import perftool.fused\n"
        "from perftool.errors import MissingExtraError\n"
        "try: perftool.fused.FusedAdamW\n"
        "except MissingExtraError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == (
        "perftool.fused.FusedAdamW needs PyTorch; "
        "the extra `bench` installs it: pip install 'habana-perf-tool[bench]'.\n"
    )
    assert issubclass(MissingExtraError, Exception)
