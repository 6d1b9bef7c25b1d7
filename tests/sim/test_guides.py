"""The examples from Habana's guides run: fused ops, their options, captured graphs, shared weights and fast
all-reduce.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sim.runs import run

OPS = """
import habana_frameworks.torch.hpu as hpu
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from habana_frameworks.torch.hpex.normalization import FusedClipNorm
from habana_frameworks.torch.hpex.optimizers import FusedAdagrad

torch.manual_seed(0)
hidden, (weights, table) = torch.randn(6, 8), torch.rand(6, 4).softmax(1).topk(2, -1)
w1, w2 = ([torch.randn(8, 10).to("hpu") for _ in range(4)] for _ in range(2))
w3 = [torch.randn(10, 8).to("hpu") for _ in range(4)]
routed = [each.to("hpu") for each in (hidden, table, weights)]
apart = torch.ops.hpu.mixture_of_experts(*routed, w1, w2, w3, False, "gelu", 0, 3)
w12 = [torch.cat(pair, -1) for pair in zip(w1, w2)]
joined = torch.ops.hpu.mixture_of_experts(*routed, w12, w3, False, "gelu", 0, 3)
print("experts", torch.allclose(apart, joined, atol=1e-4))

q, k, v = (torch.rand(3, 2, 16, 8, dtype=torch.bfloat16, device="hpu") for _ in range(3))
lengths = torch.tensor([10, 12, 8], dtype=torch.int32, device="hpu")
with hpu.sdp_kernel(enable_recompute=False):
    found = [FusedSDPA.apply(q, k, v, None, 0.1, True, None, "None")]
found.append(FusedSDPA.apply(q, k, v, None, 0.0, True, None, "fast", True))
found.append(FusedSDPA.apply(q, k, v, None, 0.0, True, None, "fast", False, lengths, "right"))
found += FusedSDPA.apply(q, k, v, None, 0.1, True, None, "None", False, None, "right", True)
found += FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", False, None, "right", False, True)
print("attention", [each.to("cpu").shape[-1] for each in found])

host = torch.nn.Linear(10, 1)
optimizer = FusedAdagrad(host.parameters(), lr=0.01, lr_decay=0.001, weight_decay=0.01, initial_accumulator_value=0.1)
before = host.weight.detach().clone()
torch.nn.functional.mse_loss(host(torch.randn(32, 10)), torch.randn(32, 1)).backward()
FusedClipNorm(host.parameters(), 1.0).clip_norm(host.parameters())
optimizer.step()
print("a model on the host", not torch.equal(before, host.weight), host.weight.device)

shared = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Parameter(torch.ones(2))})
shared["a"] = shared["b"]
shared.to("hpu")
print("shared", shared["a"] is shared["b"], shared["a"].device)

graph, x, y = hpu.HPUGraph(), torch.rand(2, 4).to("hpu"), torch.zeros(2, 4).to("hpu")
with hpu.graph(graph):
    z = x * 2 + y
x.fill_(3.0)
graph.replay()
cached = torch.nn.Linear(4, 4).to("hpu")
hpu.ModuleCacher(max_graphs=2)(model=cached, inplace=True)
graphed = hpu.make_graphed_callables(torch.nn.Linear(4, 4).to("hpu"), (x,))
print("graphs", z.sum().item(), cached(x).shape == cached(x).shape == graphed(x).shape)
"""

ALL_REDUCE = """
import torch.distributed as dist
import habana_frameworks.torch as ht
dist.init_process_group("hccl")
model = torch.nn.Linear(4, 3).to("hpu")
model(torch.ones(2, 4).to("hpu")).sum().backward()
wanted = [p.grad.cpu() for p in model.parameters()]
buffer = torch.zeros(size=(15,), dtype=torch.bfloat16, device="hpu:0")
views = [buffer[:12].reshape(3, 4), buffer[12:]]

def pack():
    for p, view in zip(model.parameters(), views):
        view.copy_(p.grad.to(torch.bfloat16) * (1.0 / dist.group.WORLD.size()), non_blocking=True)

def unpack():
    for p, view in zip(model.parameters(), views):
        p.grad.copy_(view.to(p.grad.dtype), non_blocking=True)

def captured(function):
    graph = ht.hpu.HPUGraph()
    with ht.hpu.stream(ht.hpu.Stream()):
        graph.capture_begin()
        function()
        graph.capture_end()
    return graph

captured(pack).replay()
dist.all_reduce(buffer, group=dist.group.WORLD, async_op=True)
for p in model.parameters():
    p.grad.zero_()
captured(unpack).replay()
print([torch.equal(p.grad.cpu(), grad) for p, grad in zip(model.parameters(), wanted)])
"""


def test_fused_ops_graphs_and_shared_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(tmp_path, OPS)

    assert (done.done.exit_code, capsys.readouterr().out.splitlines()) == (0, [
        "experts True",
        "attention [8, 8, 8, 8, 16, 8, 16]",
        "a model on the host True cpu",
        "shared True hpu:0",
        "graphs 48.0 True",
    ])  # fmt: skip
    assert all(each.line.startswith("script.py:") for each in done.done.causes)


def test_gradients_in_one_buffer_with_captured_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(tmp_path, ALL_REDUCE)

    assert (done.done.exit_code, capsys.readouterr().out) == (0, "[True, True]\n")
