"""HPUGraph and graph: what a replay does to memory, and what cannot be captured."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch.nn import functional as F

from perftool.fused import FusedAdamW, FusedSDPA, FusedSGD, HPUGraph, graph, mixture_of_experts
from perftool.fused.graphs.record import GraphCaptureError


def small_net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))


def new_graph():
    return HPUGraph("cpu")


def test_replaying_an_inference_reads_inputs_and_writes_outputs_in_place():
    net, captured = small_net(), new_graph()
    static = torch.zeros(5, 4)
    with torch.no_grad(), graph(captured):
        prediction = net(static)
        transposed = prediction.t()
    address = prediction.data_ptr()
    for seed in range(3):
        data = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
        static.copy_(data)
        captured.replay()
        torch.testing.assert_close(prediction, net(data).detach())
        torch.testing.assert_close(transposed, prediction.t())
    assert prediction.data_ptr() == address


def test_replaying_a_training_step_equals_the_eager_steps():
    net, captured = small_net(), new_graph()
    twin = copy.deepcopy(net)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (net, twin)]
    static_x, static_y = torch.randn(6, 4), torch.randint(3, (6,))

    def step(model, optimizer, x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for model, optimizer in zip((net, twin), optimizers, strict=True):
        step(model, optimizer, static_x, static_y)
    with graph(captured):
        loss = step(net, optimizers[0], static_x, static_y)
    torch.testing.assert_close(loss, step(twin, optimizers[1], static_x, static_y))
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)
        static_x.copy_(x)
        static_y.copy_(y)
        captured.replay()
        expected = step(twin, optimizers[1], x, y)
        torch.testing.assert_close(loss, expected)
        for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_overlapping_views_of_outside_memory_stay_one_memory():
    flat, captured = torch.arange(6.0), new_graph()
    left, middle = flat[:4], flat[2:]
    with graph(captured):
        left.mul_(2)
        middle.add_(1)
        flat.sub_(3)
    flat.copy_(torch.arange(6.0))
    captured.replay()
    assert flat.tolist() == [-3.0, -1.0, 2.0, 4.0, 2.0, 3.0]


def test_only_temporaries_that_are_still_held_are_operands():
    static, captured = torch.ones(3), new_graph()
    with graph(captured):
        held = (static + 1).mul(2)
    assert [operand.data_ptr() for operand in captured._region.operands] == [static.data_ptr(), held.data_ptr()]


def test_memory_made_in_the_region_and_changed_later_ends_with_its_last_value():
    static, captured = torch.ones(3), new_graph()
    with graph(captured):
        total = torch.zeros(3)
        for _ in range(3):
            total += static
        first, second = torch.stack([total, -total]).unbind()
    static.fill_(2.0)
    captured.replay()
    assert total.tolist() == [6.0] * 3
    assert first.tolist() == [6.0] * 3
    assert second.tolist() == [-6.0] * 3


def test_random_operators_draw_again_at_each_replay():
    static, captured = torch.ones(1000), new_graph()
    with graph(captured):
        dropped = F.dropout(static, 0.5)
    captured.replay()
    before = dropped.clone()
    captured.replay()
    assert not torch.equal(before, dropped)
    assert 300 < dropped.count_nonzero().item() < 700


def test_capture_begin_and_end_act_like_the_context_manager():
    static, captured = torch.ones(2), new_graph()
    captured.capture_begin(dry_run=False)
    result = static * 3
    captured.capture_end()
    static.fill_(2.0)
    captured.replay(asynchronous=True)
    assert result.tolist() == [6.0, 6.0]


def test_replay_v2_and_v3_fill_inputs_first():
    static, unused, captured = torch.ones(2), torch.ones(2), new_graph()
    with graph(captured):
        result = static * 3
    captured.replayV2([static], [torch.tensor([1.0, 2.0])])
    assert result.tolist() == [3.0, 6.0]
    captured.mark_user_inputs([unused, static])
    captured.mark_user_outputs([result])
    assert captured.get_user_input_match_indices() == [1]
    captured.replayV3([torch.zeros(2), torch.tensor([5.0, 6.0])])
    assert result.tolist() == [15.0, 18.0]
    for wrong in ([torch.zeros(2)], [torch.zeros(2), torch.zeros(3)]):
        with pytest.raises(RuntimeError, match="HPU GRAPH:: Mark User Input Sizes is not same Replay Input Sizes"):
            captured.replayV3(wrong)
    captured.clear_inputs()
    assert captured.get_user_input_match_indices() == []


def test_misuse_raises_with_the_original_texts():
    captured = new_graph()
    with pytest.raises(GraphCaptureError, match="Nothing has been captured"):
        captured.replay()
    with pytest.raises(RuntimeError, match="GRAPH:: Capture must end on the same stream it began on"):
        captured.capture_end()
    captured.capture_begin()
    for forbidden in (captured.replay, captured.capture_begin, captured.reset):
        with pytest.raises(RuntimeError, match="GRAPH:: Capture in progress"):
            forbidden()
    failures = []

    def end_elsewhere():
        try:
            captured.capture_end()
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=end_elsewhere)
    thread.start()
    thread.join()
    assert failures == ["GRAPH:: Capture must end on the same stream it began on."]
    captured.capture_end()


def test_reset_forgets_the_region():
    static, captured = torch.ones(2), new_graph()
    with graph(captured):
        static.add_(1)
    captured.reset()
    with pytest.raises(GraphCaptureError):
        captured.replay()
    with graph(captured):
        static.mul_(10)
    captured.replay()
    assert static.tolist() == [200.0, 200.0]


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (lambda x: x.sum().item(), "depends on the values"),
        (lambda x: x.nonzero(), "depends on the values"),
        (lambda x: x[x > 0], "depends on the values"),
        (lambda x: x.bernoulli(generator=torch.Generator()), "its own random generator"),
        (lambda x: x.to_sparse() @ x, "layout torch.sparse_coo cannot"),
    ],
)
def test_value_dependent_ops_cannot_be_captured(operation, text):
    x, captured = torch.ones(2, 2), new_graph()
    with pytest.raises(GraphCaptureError, match=text), graph(captured):
        operation(x)
    assert operation(x) is not None
    with graph(captured):
        y = x + 1
    captured.replay()
    assert y.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_ops_that_read_values_on_the_host_are_refused_rather_than_frozen():
    x, captured = torch.ones(2, 1, 3, 4), new_graph()
    lengths, weight = torch.tensor([1, 2]), [torch.ones(4, 4)]
    with pytest.raises(GraphCaptureError, match="depends on the values"), graph(captured):
        FusedSDPA.apply(x, x, x, None, 0.0, True, None, "None", None, lengths)
    table = torch.zeros(3, 1, dtype=torch.long)
    with pytest.raises(GraphCaptureError, match="depends on the values"), graph(captured):
        mixture_of_experts(x[0, 0], table, torch.ones(3, 1), weight, weight, weight, False, "silu", 0, 0)


OPTIMIZERS = {
    "sgd": lambda params: FusedSGD(params, lr=0.1, momentum=0.9),
    "adamw": lambda params: FusedAdamW(params, lr=0.1, bias_correction=False),
}


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_a_fused_optimizer_and_attention_replay_like_eager_steps(optimizer):
    q, captured = torch.nn.Parameter(torch.randn(1, 2, 5, 4)), new_graph()
    twin = copy.deepcopy(q)
    optimizers = [OPTIMIZERS[optimizer]([each]) for each in (q, twin)]
    static = torch.randn(1, 2, 5, 4)

    def step(parameter, optimizer, x):
        optimizer.zero_grad(set_to_none=True)
        FusedSDPA.apply(parameter, x, x, None, 0.0, True).square().sum().backward()
        optimizer.step()

    for parameter, optimizer in zip((q, twin), optimizers, strict=True):
        step(parameter, optimizer, static)
    with graph(captured):
        step(q, optimizers[0], static)
    step(twin, optimizers[1], static)
    for seed in range(3):
        static.copy_(torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(seed)))
        captured.replay()
        step(twin, optimizers[1], static)
        torch.testing.assert_close(q, twin)


def test_memory_seen_in_two_dtypes_is_replayed():
    x, captured = torch.ones(4), new_graph()
    bits = x.view(torch.int32)
    with graph(captured):
        total, number = x + 1, bits + 1
    x.fill_(2.0)
    captured.replay()
    assert total.tolist() == [3.0] * 4
    assert torch.equal(number, x.view(torch.int32) + 1)


def test_a_replay_frees_what_it_no_longer_needs():
    static, captured = torch.ones(1000), new_graph()
    with graph(captured):
        value = static
        for _ in range(50):
            value = value + 1
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with profile:
        captured.replay()
    held = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    assert 0 < most <= 3 * 4000
    assert value.tolist() == [51.0] * 1000
