"""AdamW with moments in bfloat16 and FP8."""

from __future__ import annotations

import copy

import pytest
import torch
from training import MANY_SHAPES, assert_same, give_gradients, parameters

from perftool.fused import FusedAdamW
from perftool.fused.distributed import FusedAdamW as FunctionalAdamW
from perftool.fused.optimizers.adamw import PIECE, store

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.mark.parametrize("shapes", [MANY_SHAPES, [(PIECE + 5,), (3,)]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_moments_are_those_of_a_loop_that_rounds_them(shapes, dtype):
    ours = parameters(shapes, dtype)
    weights = [param.detach().float() for param in ours]
    moments = [[torch.zeros_like(w, dtype=torch.bfloat16) for w in weights] for _ in range(2)]
    fused = FusedAdamW(ours, 1e-2, (0.5, 0.5), 1e-2, moments_dtype=torch.bfloat16)
    for step in range(1, 4):
        grads = give_gradients(ours, seed=step)
        fused.step()
        for w, g, m, v in zip(weights, grads, *moments, strict=True):
            g = g.float()
            wide_m, wide_v = 0.5 * m.float() + 0.5 * g, 0.5 * v.float() + 0.5 * g * g
            scale = 1e-2 * (1 - 0.5**step) ** 0.5 / (1 - 0.5**step)
            w -= scale * wide_m / (wide_v.sqrt() + 1e-2)
            m.copy_(wide_m)
            v.copy_(wide_v)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    assert {entry["exp_avg"].dtype for entry in fused.state.values()} == {torch.bfloat16}
    assert_same(ours, weights, rtol=1e-3 + tolerance, atol=1e-3 + tolerance)


@pytest.mark.parametrize("pair", [(E4M3, E4M3), (E5M2, E5M2), (E4M3, E5M2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_moments_stay_near_the_wide_ones(pair, dtype):
    ours, theirs = parameters([(40, 30), (7,)], dtype), parameters([(40, 30), (7,)])
    fused = FusedAdamW(ours, 1e-2, moments_dtype=pair)
    wide = FusedAdamW(theirs, 1e-2)
    for step in range(5):
        grads = give_gradients(ours, seed=step, scale=1e-3)
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = grad.float()
        fused.step()
        wide.step()
    for param, other in zip(ours, theirs, strict=True):
        state = fused.state[param]
        assert (state["exp_avg"].dtype, state["exp_avg_sq"].dtype) == pair
        moment = state["exp_avg"].float() / state["exp_avg_scale"]
        largest = moment.abs().max().item()
        assert_same([moment], [wide.state[other]["exp_avg"]], rtol=0.3, atol=0.1 * largest)
    assert_same(ours, theirs, rtol=0.02, atol=0.03)


def test_many_fp8_moments_keep_a_scale_each():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused = FusedAdamW(ours, 1e-2, moments_dtype=E5M2)
    alone = [FusedAdamW([param], 1e-2, moments_dtype=E5M2) for param in theirs]
    for step in range(3):
        give_gradients(ours, theirs, seed=step)
        fused.step()
        for each in alone:
            each.step()
    assert_same(ours, theirs)
    scales = [fused.state[param]["exp_avg_scale"] for param in ours]
    assert_same(scales, [each.state[param]["exp_avg_scale"] for each, param in zip(alone, theirs, strict=True)])


@pytest.mark.parametrize(("dtype", "largest"), [(E4M3, 240.0), (E5M2, 57344.0)])
def test_a_scale_is_the_power_of_two_that_fits_the_largest_element(dtype, largest):
    moment, scale = torch.zeros(2, dtype=dtype), torch.ones(())
    store(torch.tensor([0.75, -3.0]), moment, scale)
    assert scale.item() * 3.0 <= largest < scale.item() * 6.0
    assert (moment.float() / scale).tolist() == [0.75, -3.0]


@pytest.mark.parametrize("values", [[0.0, 0.0], [torch.inf, 1.0], [torch.nan, 1.0]])
def test_a_scale_is_kept_if_the_new_one_is_not_positive(values):
    moment, scale = torch.zeros(2, dtype=E5M2), torch.tensor(4.0)
    store(torch.tensor(values), moment, scale)
    assert scale.item() == 4.0


def test_one_fp8_moment_alone_is_refused():
    for make in (FusedAdamW, FunctionalAdamW):
        with pytest.raises(ValueError, match="both or neither"):
            make(parameters(), moments_dtype=(E4M3, torch.float32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, E5M2])
def test_checkpoints_keep_narrow_moments_and_accept_wide_ones(dtype):
    params = parameters()
    wide = torch.optim.AdamW(params)
    give_gradients(params, seed=0, scale=1e-3)
    wide.step()
    fused = FusedAdamW(params, moments_dtype=dtype)
    fused.load_state_dict({**wide.state_dict(), "param_groups": fused.state_dict()["param_groups"]})
    fused.step()
    assert fused.param_groups[0]["step"] == 2
    again = FusedAdamW(params, moments_dtype=dtype)
    again.load_state_dict(copy.deepcopy(fused.state_dict()))
    for param in params:
        param.grad = torch.zeros_like(param)
    again.step()
    for param in params:
        one, other = fused.state[param], again.state[param]
        assert other["exp_avg"].dtype == dtype
        scales = [state.get("exp_avg_scale", torch.ones(())) for state in (one, other)]
        expected = 0.9 * one["exp_avg"].float() / scales[0]
        assert_same([other["exp_avg"].float() / scales[1]], [expected], rtol=0.15, atol=1e-6)
        assert expected.abs().max() > 0
