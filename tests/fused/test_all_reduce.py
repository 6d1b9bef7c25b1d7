"""all_reduce_gradients in two gloo processes on this machine, and in a single process."""

from __future__ import annotations

import re
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from perftool.fused import all_reduce_gradients, dispatch
from perftool.fused.all_reduce import CHANGED_SET, STATE

RANKS = 2
SHAPES = ((3, 4), (4,), (), (2, 1, 5))


def model_of(rank, dtype=torch.float32):
    """Parameters with unusual shapes. Each gradient depends on the rank, and one parameter has none."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES])
    for index, parameter in enumerate(model[:3]):
        parameter.grad = torch.full_like(parameter, 10.0 * index + rank)
    return model


def mean_of_the_ranks(rank):
    model = model_of(rank)
    all_reduce_gradients(model, fusion_buffer_dtype=torch.float32)
    assert [parameter.grad.unique().tolist() for parameter in model[:3]] == [[0.5], [10.5], [20.5]]
    assert model[3].grad is None
    return "ok"


def reference(model, dtype):
    """Reduce each parameter with a separate all-reduce, in `dtype`."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            reduced = parameter.grad.to(dtype) * (1.0 / RANKS)
            dist.all_reduce(reduced)
            parameter.grad.copy_(reduced)


def equal_to_one_reduction_per_parameter(rank):
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(rank)
        ours, plain = model_of(rank), model_of(rank)
        for left, right in zip(ours[:3], plain[:3], strict=True):
            left.grad.normal_()
            right.grad.copy_(left.grad)
        all_reduce_gradients(ours, dtype)
        reference(plain, dtype)
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours[:3], plain[:3], strict=True))
    return "ok"


def cast_before_scaling(rank):
    """70,000 exceeds the range of float16, and half of it does not. A Gaudi casts before it scales, so the value
    overflows.
    """
    model = model_of(rank)
    model[0].grad.fill_(70_000.0)
    all_reduce_gradients(model, torch.float16)
    assert model[0].grad.dtype == torch.float32
    assert model[0].grad.unique().tolist() == [float("inf")]
    return "ok"


def repeated_calls_reuse_the_buffer_and_keep_gradient_objects(rank):
    model = model_of(rank)
    all_reduce_gradients(model, torch.float32)
    buffer, gradient = model.__dict__[STATE], model[0].grad
    model[0].grad.fill_(rank)
    all_reduce_gradients(model, torch.float32)
    assert model.__dict__[STATE] is buffer
    assert model[0].grad is gradient
    assert gradient.unique().tolist() == [0.5]
    model[0].grad = torch.full((3, 4), 4.0 * rank)
    all_reduce_gradients(model, torch.bfloat16, use_hpu_graphs=False)
    assert model[0].grad.unique().tolist() == [2.0]
    assert list(model.state_dict()) == ["0", "1", "2", "3"]
    return "ok"


def no_gradients_is_no_operation(rank):
    model = torch.nn.Linear(2, 2)
    all_reduce_gradients(model)
    assert STATE not in model.__dict__
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float(rank))
    all_reduce_gradients(model)
    assert model.weight.grad.unique().tolist() == [0.5]
    return "ok"


def a_changed_set_of_gradients_raises(rank):
    for change in (None, torch.zeros(2, 1, 5)):
        model = model_of(rank)
        all_reduce_gradients(model)
        model[3 if change is not None else 0].grad = change
        with pytest.raises(NotImplementedError, match=re.escape(CHANGED_SET)):
            all_reduce_gradients(model)
    return "ok"


def the_reference_can_be_chosen(rank):
    dispatch.wanted = "reference"
    return mean_of_the_ranks(rank)


def nan_and_infinity_arrive_on_every_rank(rank):
    model = model_of(rank)
    if rank == 0:
        model[0].grad[0, 0] = float("nan")
        model[1].grad[0] = float("inf")
    all_reduce_gradients(model)
    assert model[0].grad.isnan().sum().item() == 1
    assert model[1].grad.tolist() == [float("inf"), 10.5, 10.5, 10.5]
    return "ok"


SCENARIOS = (
    mean_of_the_ranks,
    equal_to_one_reduction_per_parameter,
    cast_before_scaling,
    repeated_calls_reuse_the_buffer_and_keep_gradient_objects,
    no_gradients_is_no_operation,
    a_changed_set_of_gradients_raises,
    nan_and_infinity_arrive_on_every_rank,
    the_reference_can_be_chosen,
)


def run_rank(rank, port, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    try:
        for scenario in SCENARIOS:
            results.put((scenario.__name__, rank, scenario(rank)))
    finally:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def outcome():
    """The results of all scenarios on all ranks. A failed assertion in a rank makes the spawn fail."""
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(run_rank, args=(free_port(), results), nprocs=RANKS)
    found = {}
    while not results.empty():
        name, rank, said = results.get()
        found[name, rank] = said
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_two_ranks(outcome, scenario):
    assert [outcome.get((scenario.__name__, rank)) for rank in range(RANKS)] == ["ok"] * RANKS


@pytest.fixture
def single_rank():
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("single_rank")
def test_gradients_on_two_devices_are_refused():
    model = model_of(0)
    model[1] = torch.nn.Parameter(torch.zeros(4, device="meta"))
    model[1].grad = torch.zeros(4, device="meta")
    with pytest.raises(ValueError, match="on one device, not on 2"):
        all_reduce_gradients(model)
