"""With FSDP2, DTensor and other subclasses of Tensor, optimizer steps match those on whole tensors."""

from __future__ import annotations

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils._pytree import tree_map
from training import assert_same, give_gradients, parameters

from perftool.fused import (
    FusedAdagrad,
    FusedAdamW,
    FusedClipNorm,
    FusedEMA,
    FusedLamb,
    FusedLars,
    FusedResourceApplyMomentum,
    FusedSGD,
)

MAKERS = {
    "sgd": lambda params: FusedSGD(params, 0.05, 0.9, 0.01),
    "adagrad": lambda params: FusedAdagrad(params, 0.05),
    "adamw": lambda params: FusedAdamW(params, 0.01, weight_decay=0.1),
    "adamw bf16": lambda params: FusedAdamW(params, 0.01, moments_dtype=torch.bfloat16),
    "lamb": lambda params: FusedLamb(params, 0.01, max_grad_norm=0.5),
    "lars": lambda params: FusedLars(FusedResourceApplyMomentum(params, 0.05, 0.9, 0.01), [1, 0] * len(params)),
}


def network():
    """Layers, some with sizes that are not divisible by the number of ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1), nn.Tanh(), nn.Linear(1, 3))


def train(model, average, make, batches, clip):
    """Take a step for each batch. With ``clip``, return the gradient norms before clipping."""
    params = list(model.parameters())
    optimizer = make(params)
    norms = []
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        if clip:
            norms.append(FusedClipNorm(params, 0.1).clip_norm(params))
        optimizer.step()
        average.update(model)
    return norms


def whole(tensor):
    """Return ``tensor``, gathered from all ranks if it is a DTensor."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def run_rank(rank, port, failures):
    """Run one of two processes, which compare the sharded model with the whole one on the same batches."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    batches = [torch.randn(4, 6, generator=torch.Generator().manual_seed(step)) for step in range(3)]
    for name, make in MAKERS.items():
        clip = name not in ("lamb", "lars")
        plain, sharded = network(), network()
        average, sharded_average = FusedEMA(plain, 0.9, 1000), FusedEMA(sharded, 0.9, 1000)
        for model in (sharded, sharded_average.ema):
            for layer in (*(each for each in model if isinstance(each, nn.Linear)), model):
                fully_shard(layer, mesh=mesh)
        norms = train(plain, average, make, batches, clip)
        found = train(sharded, sharded_average, make, batches, clip)
        try:
            tolerance = {"rtol": 2e-2, "atol": 1e-4} if "bf16" in name else {"rtol": 1e-4, "atol": 1e-5}
            assert_same(map(whole, sharded.parameters()), plain.parameters(), **tolerance)
            assert_same(map(whole, found), norms, rtol=1e-4)
            pairs = sharded_average.ema.parameters(), average.ema.parameters()
            assert_same(map(whole, pairs[0]), pairs[1], **tolerance)
        except AssertionError as error:
            failures.put(f"{name} on rank {rank}: {error}")
    for name in ("adamw", "lamb", "lars"):
        plain, replicated = network(), nn.parallel.DistributedDataParallel(network(), gradient_as_bucket_view=True)
        average, other = FusedEMA(plain, 0.9, 1000), FusedEMA(replicated, 0.9, 1000)
        train(plain, average, MAKERS[name], batches, True)
        train(replicated, other, MAKERS[name], batches, True)
        try:
            assert_same(replicated.parameters(), plain.parameters(), rtol=1e-4, atol=1e-5)
            assert_same(other.ema.parameters(), average.ema.parameters(), rtol=1e-4, atol=1e-5)
        except AssertionError as error:
            failures.put(f"{name} under DDP on rank {rank}: {error}")
    for refused in (
        lambda: FusedAdamW(sharded.parameters(), moments_dtype=torch.float8_e4m3fn).step(),
        lambda: FusedEMA(sharded),
    ):
        try:
            refused()
            failures.put("FP8 moments, or a copy, of sharded parameters were not refused")
        except NotImplementedError:
            pass
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_fsdp2_on_two_ranks():
    context = mp.get_context("spawn")
    failures = context.SimpleQueue()
    mp.spawn(run_rank, (free_port(), failures), nprocs=2)
    found = []
    while not failures.empty():
        found.append(failures.get())
    assert found == []


class Boxed(torch.Tensor):
    """A wrapper subclass without memory of its own, for which every operator goes through Python."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda each: each.inner if isinstance(each, Boxed) else each, (args, kwargs or {}))
        if (function.namespace == "aten" and "_foreach" in function.__name__) or "_fused" in function.__name__:
            raise NotImplementedError(f"Boxed knows no {function}")
        result = function(*args, **kwargs)
        if function.__name__.split(".")[0].endswith("_"):
            return args[0] if not isinstance(args[0], torch.Tensor) else Boxed(args[0])
        return tree_map(lambda each: Boxed(each) if isinstance(each, torch.Tensor) else each, result)


def boxed(params):
    return [nn.Parameter(Boxed(param.detach().clone())) for param in params]


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_wrapper_subclass_is_stepped_by_its_own_operators(name):
    plain = parameters()
    wrapped = boxed(plain)
    optimizers = [MAKERS[name](params) for params in (plain, wrapped)]
    for step in range(3):
        grads = give_gradients(plain, seed=step)
        for param, grad in zip(wrapped, grads, strict=True):
            param.grad = Boxed(grad.clone())
        for optimizer in optimizers:
            optimizer.step()
    assert_same([param.inner for param in wrapped], plain, rtol=1e-4, atol=1e-5)


def test_the_gradients_of_wrappers_are_clipped():
    plain = parameters()
    wrapped = boxed(plain)
    grads = give_gradients(plain, seed=0)
    for param, grad in zip(wrapped, grads, strict=True):
        param.grad = Boxed(grad.clone())
    found, expected = (FusedClipNorm(params, 0.5).clip_norm(params) for params in (wrapped, plain))
    assert_same([found], [expected])
    assert_same([param.grad.inner for param in wrapped], [param.grad for param in plain])


class Demanding(Boxed):
    """A wrapper whose results all require gradients, although boolean results of comparisons cannot."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=True)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        found = super().__torch_dispatch__(function, types, args, kwargs)
        return Demanding(found.inner) if type(found) is Boxed else found


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_wrapper_whose_results_require_gradients_is_stepped(name):
    plain = parameters()
    wrapped = [nn.Parameter(Demanding(param.detach().clone())) for param in plain]
    optimizers = [MAKERS[name](params) for params in (plain, wrapped)]
    for step in range(3):
        grads = give_gradients(plain, seed=step)
        for param, grad in zip(wrapped, grads, strict=True):
            param.grad = Demanding(grad.clone()).detach()
        for optimizer in optimizers:
            optimizer.step()
    assert_same([param.inner for param in wrapped], plain, rtol=1e-4, atol=1e-5)
