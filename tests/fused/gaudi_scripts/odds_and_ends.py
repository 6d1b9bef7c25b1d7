"""Other calls that scripts make to torch and the bridge; each printed line is the result of one."""

import io
import multiprocessing
import pickle
import sys

import habana_frameworks.torch as ht
import torch
from habana_frameworks.torch.hpex.optimizers.FusedAdamW import FusedAdamW
from habana_frameworks.torch.hpex.optimizers.MarkstepAdamW import AdamW
from habana_frameworks.torch.utils.experimental import _get_device_type, synDeviceType
from habana_frameworks.torch.utils.internal import is_lazy


class Kept:
    """A class that a script defines."""


def refused(statement):
    try:
        exec(statement, {"torch": torch, "ht": ht})
    except (AttributeError, ImportError) as error:
        return type(error).__name__, str(error)
    return "nothing said"


def in_a_new_process(answers):
    import habana_frameworks.torch.hpu as hthpu

    answers.put((hthpu.is_available(), torch.zeros(1, device="hpu").device == torch.device("hpu")))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.full((1,), 2.0, device="hpu")


def captured():
    x = torch.ones(3, device="hpu")
    graph = ht.hpu.HPUGraph()
    graph.capture_begin()
    y = x + 1
    graph.capture_end()
    return y.tolist()


def saved():
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    for place in ("hpu", "hpu:0", torch.device("hpu"), torch.device("hpu", 0), {"cpu": "hpu:0"}):
        file.seek(0)
        yield torch.load(file, map_location=place).sum().item()


def main():
    print("main", __name__, __spec__, type(pickle.loads(pickle.dumps(Kept()))) is Kept, sys.argv[1:])
    print("classes", FusedAdamW is ht.hpex.optimizers.FusedAdamW, AdamW is torch.optim.AdamW, is_lazy())
    print("generation", _get_device_type() == synDeviceType.synDeviceGaudi2)
    print("loaded", *saved())
    torch.set_default_device("hpu")
    print("default", torch.zeros(1).device == torch.device("hpu"))
    torch.set_default_device(None)
    with torch.device("hpu"):
        print("block", torch.zeros(1).device == torch.device("hpu"))
    with torch.autocast("hpu"):
        print("autocast", (torch.ones(2, 2).hpu() @ torch.ones(2, 2).hpu()).dtype, torch.is_autocast_enabled("hpu"))
        print("autocast", torch.hpu.is_autocast_hpu_enabled(), torch.get_autocast_dtype("hpu"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.HPU]) as profile:
        torch.ones(2, device="hpu").sum()
    print("profiled", bool(profile.events()))
    with ht.hpu.stream(ht.hpu.Stream()):
        print("stream", torch.ones(2, device="hpu").sum().item(), ht.hpu.current_stream() is not None)
    print("random", torch.equal(ht.hpu.random.get_rng_state(), torch.hpu.get_rng_state()), ht.hpu.initial_seed() >= 0)
    print("hasattr", hasattr(torch.hpu, "nothing"), hasattr(ht, "dynamo"), hasattr(torch.ops.hpu, "nothing"))
    print("refused", *refused("from habana_frameworks.torch.hpex.kernels import PySDPA"))
    print("refused", *refused("import habana_frameworks.torch.dynamo"))
    print("refused", *refused("torch.hpu.utilization()"))
    print("refused", *refused("torch.ops.hpu.fused_norm"))
    x = torch.ones(2, device="hpu", requires_grad=True)
    Doubled.apply(x).sum().backward()
    print("backward", x.grad.tolist(), *torch.autograd.grad(Doubled.apply(x).sum(), x)[0].tolist(), x.is_hpu)
    with torch.random.fork_rng(device_type="hpu"):
        torch.rand(1)
    print("captured", *captured())
    rotated = torch.ops.hpu.rotary_pos_embedding(torch.eye(2)[None, None], *[torch.ones(1, 1, 2, 2)] * 2, None, 0, 1)
    print("rotary", rotated.flatten().tolist())
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=in_a_new_process, args=(answers,))
    process.start()
    print("spawned", *answers.get())
    process.join()


if __name__ == "__main__":
    main()
