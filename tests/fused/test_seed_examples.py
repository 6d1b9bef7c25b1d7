"""Gaudi's documented examples of these ops, restated. Only the imports and the device differ from a Gaudi script."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from perftool.fused import (
    FusedAdagrad,
    FusedClipNorm,
    FusedSDPA,
    HPUGraph,
    ModuleCacher,
    all_reduce_gradients,
    enable_recompute_sdp,
    graph,
    make_graphed_callables,
    mixture_of_experts,
    recompute_sdp_enabled,
    sdp_kernel,
    wrap_in_hpu_graph,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 1)

    def forward(self, x):
        return self.fc(x)


def test_a_regression_step_with_adagrad():
    model = Regression().to(DEVICE)
    twin = Regression().to(DEVICE)
    twin.load_state_dict(model.state_dict())
    options = {
        "lr": 0.01,
        "lr_decay": 0.001,
        "weight_decay": 0.01,
        "initial_accumulator_value": 0.1,
        "eps": 1e-10,
    }
    optimizers = (
        FusedAdagrad(model.parameters(), **options),
        torch.optim.Adagrad(twin.parameters(), **options),
    )
    inputs, targets = torch.randn(32, 10, device=DEVICE), torch.randn(32, 1, device=DEVICE)
    losses = []
    for _ in range(5):
        for each, optimizer in zip((model, twin), optimizers, strict=True):
            loss = nn.MSELoss()(each(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[0::2] == pytest.approx(losses[1::2])
    assert losses[-1] < losses[0]
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_clipping_the_norm_of_a_models_gradients():
    model = Regression().to(DEVICE)
    (100 * model(torch.ones(4, 10, device=DEVICE))).sum().backward()
    before = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    clipper = FusedClipNorm(model.parameters(), 1.0)
    norm = clipper.clip_norm(model.parameters())
    after = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    torch.testing.assert_close(norm.reshape(()), before)
    torch.testing.assert_close(after, torch.ones((), device=DEVICE), rtol=1e-4, atol=1e-4)


TOKENS, HIDDEN, FFN, EXPERTS, K = 32, 64, 224, 8, 2


def routed_tokens():
    """Return tokens, the experts of each token, and normalised router weights, as returned by a Mixtral router."""
    scores = torch.softmax(torch.randn(TOKENS, EXPERTS), dim=1)
    weights, table = torch.topk(scores, K, dim=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return torch.randn(TOKENS, HIDDEN, device=DEVICE), table.to(DEVICE), weights.to(DEVICE)


def expected_mixture(x, table, weights, w1, w2, w3):
    """Return the result of running every expert on every token and summing those routed to a token by their weights."""
    everything = torch.stack([(F.gelu(x @ a) * (x @ b)) @ c for a, b, c in zip(w1, w2, w3, strict=True)], dim=1)
    picked = everything.gather(1, table[:, :, None].expand(-1, -1, HIDDEN))
    return (picked * weights[:, :, None]).sum(1)


def expert_weights(rows, columns):
    return [torch.randn(rows, columns, device=DEVICE) for _ in range(EXPERTS)]


def test_a_mixture_of_experts_with_three_weights_for_each():
    x, table, weights = routed_tokens()
    w1, w2, w3 = expert_weights(HIDDEN, FFN), expert_weights(HIDDEN, FFN), expert_weights(FFN, HIDDEN)
    result = mixture_of_experts(x, table, weights, w1, w2, w3, False, "gelu", 0, EXPERTS - 1)
    expected = expected_mixture(x, table, weights, w1, w2, w3)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-2)
    assert result.shape == x.shape


def test_a_mixture_of_experts_with_gate_and_up_weights_joined():
    x, table, weights = routed_tokens()
    w12, w3 = expert_weights(HIDDEN, 2 * FFN), expert_weights(FFN, HIDDEN)
    result = mixture_of_experts(x, table, weights, w12, w3, False, "gelu", 0, EXPERTS - 1)
    w1, w2 = [weight[:, :FFN] for weight in w12], [weight[:, FFN:] for weight in w12]
    expected = expected_mixture(x, table, weights, w1, w2, w3)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-2)


def attention_inputs(batch):
    return [torch.rand(batch, 8, 128, 64, dtype=torch.bfloat16, device=DEVICE) for _ in range(3)]


def exact_causal(query, key, value):
    return F.scaled_dot_product_attention(query.float(), key.float(), value.float(), is_causal=True)


def close_in_bfloat16(found, expected):
    return (found.float() - expected).abs().max().item() < 0.02


def test_attention_without_recompute_by_argument():
    query, key, value = attention_inputs(32)
    out = FusedSDPA.apply(query, key, value, None, 0.0, True, None, "None", False)
    assert out.to("cpu").dtype == torch.bfloat16
    assert close_in_bfloat16(out, exact_causal(query, key, value))


def test_attention_without_recompute_by_context_and_with_dropout():
    query, key, value = attention_inputs(32)
    with sdp_kernel(enable_recompute=False):
        assert recompute_sdp_enabled() is False
        out = FusedSDPA.apply(query, key, value, None, 0.1, True, None, "None")
    assert recompute_sdp_enabled() is True
    expected = exact_causal(query, key, value)
    # Dropout preserves the mean: its noise averages out over 2 million values of about 0.5.
    assert out.float().mean().item() == pytest.approx(expected.mean().item(), rel=0.01)


def test_attention_mode_set_for_the_whole_process():
    enable_recompute_sdp(False)
    assert recompute_sdp_enabled() is False
    enable_recompute_sdp(True)
    assert recompute_sdp_enabled() is True


def test_attention_with_fast_softmax():
    query, key, value = attention_inputs(32)
    with sdp_kernel(enable_recompute=True):
        out = FusedSDPA.apply(query, key, value, None, 0.0, True, None, "fast")
    assert close_in_bfloat16(out, exact_causal(query, key, value))


def test_attention_over_padded_sequences():
    query, key, value = attention_inputs(3)
    lengths = torch.tensor([100, 120, 80], dtype=torch.int32, device=DEVICE)
    out = FusedSDPA.apply(query, key, value, None, 0.0, True, None, "fast", False, lengths, "right")
    expected = exact_causal(query, key, value)
    # The padding comes last and attention is causal, so valid rows do not attend to it.
    for index, length in enumerate((100, 120, 80)):
        assert close_in_bfloat16(out[index, :, :length], expected[index, :, :length])


def test_attention_returning_its_dropout_mask():
    query, key, value = attention_inputs(3)
    out, mask = FusedSDPA.apply(query, key, value, None, 0.1, True, None, "None", False, None, "right", True)
    assert out.shape == query.shape
    assert mask.shape == (3, 8, 128, 128)
    assert mask.float().mean().item() == pytest.approx(0.9, abs=0.01)


def test_attention_returning_its_probabilities():
    query, key, value = attention_inputs(3)
    out, probabilities = FusedSDPA.apply(
        query, key, value, None, 0.0, True, None, "None", False, None, "right", False, True
    )
    assert close_in_bfloat16(out, exact_causal(query, key, value))
    assert probabilities.triu(1).count_nonzero().item() == 0
    torch.testing.assert_close(
        probabilities.float().sum(-1), torch.ones(3, 8, 128, device=DEVICE), rtol=0.01, atol=0.01
    )


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.layers(x)


class CapturedTraining:
    """A hand-written training loop. For the first batch, it captures a step that reads placeholder tensors; for later
    batches, it replays that step.
    """

    def __init__(self, batch_size):
        self.graph = HPUGraph()
        self.model = Classifier().to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.static_input = torch.rand(batch_size, 8, device=DEVICE)
        self.static_target = torch.randint(4, (batch_size,), device=DEVICE)
        self.static_loss = None

    def training_step(self, batch, index):
        if index == 0:
            self.optimizer.zero_grad(set_to_none=True)
            with graph(self.graph):
                prediction = self.model(self.static_input)
                self.static_loss = F.cross_entropy(prediction, self.static_target)
                self.static_loss.backward()
                self.optimizer.step()
            return self.static_loss
        data, target = batch
        self.static_input.copy_(data)
        self.static_target.copy_(target)
        self.graph.replay()
        return self.static_loss


def labelled_batches(count, batch_size=16):
    """Yield batches of a task that can be learned: the class is the index of the largest of the first four features."""
    for _ in range(count):
        data = torch.randn(batch_size, 8, device=DEVICE)
        yield data, data[:, :4].argmax(1)


def test_training_captured_by_hand():
    training = CapturedTraining(16)
    losses = [training.training_step(batch, index).item() for index, batch in enumerate(labelled_batches(150))]
    assert sum(losses[-20:]) / 20 < 0.7 * sum(losses[1:21]) / 20
    with torch.no_grad():
        prediction = training.model(training.static_input)
    assert F.cross_entropy(prediction, training.static_target).item() < losses[1]


def test_training_with_graphed_callables():
    model = make_graphed_callables(Classifier().to(DEVICE), (torch.randn(16, 8, device=DEVICE),))
    assert learns(model, labelled_batches(100))


def test_training_with_a_module_cacher_and_a_short_last_batch():
    model = Classifier().to(DEVICE)
    ModuleCacher(2)(model=model, inplace=True)
    batches = [*labelled_batches(100), *labelled_batches(1, batch_size=5)]
    assert learns(model, batches)


def learns(model, batches):
    """Whether plain SGD reduces the loss by a third over the batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for data, target in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) < 0.67 * sum(losses[:10])


def test_inference_captured_by_hand():
    model, captured = Classifier().to(DEVICE).eval(), HPUGraph()
    static_input, static_target = (
        torch.rand(6, 8, device=DEVICE),
        torch.zeros(6, dtype=torch.long, device=DEVICE),
    )
    with torch.no_grad():
        model(static_input)
        with graph(captured):
            static_prediction = model(static_input)
            static_loss = F.cross_entropy(static_prediction, static_target)
    for data, target in labelled_batches(3, batch_size=6):
        static_input.copy_(data)
        static_target.copy_(target)
        captured.replay()
        expected = model(data)
        torch.testing.assert_close(static_prediction, expected.detach())
        torch.testing.assert_close(static_loss, F.cross_entropy(expected, target).detach())


def test_inference_wrapped():
    model, twin = Classifier().to(DEVICE).eval(), Classifier().to(DEVICE).eval()
    model = wrap_in_hpu_graph(model, asynchronous=False, disable_tensor_cache=True)
    for data, _ in labelled_batches(3):
        torch.testing.assert_close(model(data), twin(data).detach())


def test_control_flow_between_cached_modules():
    torch.manual_seed(2)
    modules = [nn.Linear(8, 4).to(DEVICE), nn.Identity(), nn.ReLU()]
    twin = nn.Linear(8, 4).to(DEVICE)
    twin.load_state_dict(modules[0].state_dict())
    for module in modules:
        ModuleCacher(4)(model=module, inplace=True)
    first, straight, clipped = modules
    for index, (data, target) in enumerate(labelled_batches(4)):
        branch, plain = (clipped, F.relu) if index % 2 else (straight, lambda x: x)
        loss = F.cross_entropy(branch(first(data)), target)
        expected = F.cross_entropy(plain(twin(data)), target)
        first.zero_grad(), twin.zero_grad()
        loss.backward(), expected.backward()
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(first.weight.grad, twin.weight.grad)
    assert [module.forward.hits for module in modules] == [4, 2, 2]


def test_a_dynamic_op_between_cached_modules():
    torch.manual_seed(2)
    first, second = nn.Linear(8, 4).to(DEVICE), nn.Identity()
    twin = nn.Linear(8, 4).to(DEVICE)
    twin.load_state_dict(first.state_dict())
    for module in (first, second):
        ModuleCacher(2)(model=module, inplace=True)
    for data, _ in labelled_batches(4):
        hidden = first(data)
        loss = second(hidden[torch.where(hidden < 0)]).square().mean()
        plain = twin(data)
        expected = plain[plain < 0].square().mean()
        first.zero_grad(), twin.zero_grad()
        loss.backward(), expected.backward()
        torch.testing.assert_close(first.weight.grad, twin.weight.grad)
    assert first.forward.hits == 4


def test_averaging_gradients_after_backward():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        model = Classifier().to(DEVICE)
        for _ in range(2):
            model.zero_grad(set_to_none=False)
            model(torch.randn(5, 8, device=DEVICE)).square().sum().backward()
            before = [parameter.grad.clone() for parameter in model.parameters()]
            all_reduce_gradients(model)
            for parameter, gradient in zip(model.parameters(), before, strict=True):
                assert torch.equal(parameter.grad, gradient.bfloat16().float())
    finally:
        dist.destroy_process_group()
