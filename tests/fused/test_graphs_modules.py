"""make_graphed_callables, wrap_in_hpu_graph and ModuleCacher return the module's results but run the module less
often.
"""

from __future__ import annotations

import copy
import logging

import pytest
import torch

from perftool.fused import ModuleCacher, make_graphed_callables, wrap_in_hpu_graph
from perftool.fused.graphs.modules import InferenceCache
from perftool.fused.graphs.record import GraphCaptureError


class Counting(torch.nn.Module):
    """A small network that counts how many times Python runs its forward method."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.second = (
            torch.nn.Linear(4, 6),
            torch.nn.BatchNorm1d(6),
            torch.nn.Linear(6, 2),
        )
        self.runs = 0

    def forward(self, x, scale=1.0, offset=None):
        self.runs += 1
        y = self.second(self.norm(self.first(x)).relu()) * scale
        return y if offset is None else y + offset


def batch(seed, rows=5, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 4, generator=generator).requires_grad_(grad)


def train(model, x, **kwargs):
    """Return the gradients after one backward pass: the input's (an empty list if it has none), and the parameters'."""
    model.zero_grad()
    x.grad = None
    model(x, **kwargs).square().sum().backward()
    return [] if x.grad is None else [x.grad], [parameter.grad for parameter in model.parameters()]


def assert_trains_alike(graphed, twin, grad):
    for seed in range(3):
        x, y = batch(seed, grad=grad), batch(seed, grad=grad)
        torch.testing.assert_close(train(graphed, x), train(twin, y))
    for ours, theirs in zip(graphed.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("grad", [False, True])
def test_a_graphed_module_trains_like_the_original(grad):
    model = Counting()
    twin = copy.deepcopy(model)
    graphed = make_graphed_callables(model, (batch(9, grad=grad),), warmups=1)
    assert graphed is model
    assert_trains_alike(graphed, twin, grad)
    assert model.runs == 2


def test_gradients_accumulate_over_replays():
    model = Counting().eval()
    twin = copy.deepcopy(model)
    graphed = make_graphed_callables(model, (batch(9),))
    for each in (graphed, twin):
        for seed in range(3):
            each(batch(seed)).sum().backward()
    for ours, theirs in zip(graphed.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_other_mode_runs_the_original_forward():
    model = Counting()
    make_graphed_callables(model, (batch(0),))
    runs = model.runs
    model(batch(1))
    assert model.runs == runs
    model.eval()(batch(1))
    assert model.runs == runs + 1


def test_functions_and_tuples_of_callables_are_graphed_each():
    double, net = make_graphed_callables((lambda x: (x * 2, x + 1), Counting()), ((batch(0),), (batch(0),)))
    twice, more = double(batch(3))
    torch.testing.assert_close((twice, more), (batch(3) * 2, batch(3) + 1))
    assert net(batch(1)).shape == (5, 2)


def test_backward_of_an_overwritten_call_is_refused():
    graphed = make_graphed_callables(Counting(), (batch(0),))
    early = graphed(batch(1)).sum()
    late = graphed(batch(2)).sum()
    late.backward()
    with pytest.raises(RuntimeError, match="a later call has overwritten"):
        early.backward()


def test_an_unused_input_needs_permission():
    def ignore(x, y):
        return x * 2

    sample = (batch(0, grad=True), batch(1, grad=True))
    with pytest.raises(RuntimeError, match="allow_unused"):
        make_graphed_callables(ignore, sample)
    graphed = make_graphed_callables(ignore, sample, allow_unused_input=True)
    x, y = batch(2, grad=True), batch(3, grad=True)
    graphed(x, y).sum().backward()
    assert x.grad.unique().tolist() == [2.0]
    assert y.grad is None


def test_shapes_other_than_the_sample_are_refused():
    graphed = make_graphed_callables(Counting(), (batch(0),))
    with pytest.raises(ValueError, match=r"captured for input shapes \[\(5, 4\)\], called with \[\(3, 4\)\]"):
        graphed(batch(0, rows=3))


def test_hooks_buffers_with_gradients_and_other_samples_are_refused():
    hooked = Counting()
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(AssertionError, match="hooks"):
        make_graphed_callables(hooked, (batch(0),))
    buffered = Counting()
    buffered.register_buffer("extra", torch.ones(1, requires_grad=True))
    with pytest.raises(AssertionError, match="buffers"):
        make_graphed_callables(buffered, (batch(0),))
    for sample in (([batch(0)],), batch(0), ({"x": batch(0)},)):
        with pytest.raises(AssertionError, match="tuple of tensors"):
            make_graphed_callables(Counting(), sample)


def test_wrapped_inference_replays_into_the_same_tensors():
    model = Counting().eval()
    twin = copy.deepcopy(model)
    wrapped = wrap_in_hpu_graph(model, asynchronous=False, disable_tensor_cache=True)
    assert wrapped is model
    first = wrapped(batch(0))
    torch.testing.assert_close(first, twin(batch(0)).detach())
    second = wrapped(batch(1))
    assert second.data_ptr() == first.data_ptr()
    torch.testing.assert_close(first, twin(batch(1)).detach())
    assert model.runs == 1
    assert not second.requires_grad


@pytest.mark.parametrize(
    "kwargs",
    [{"x": batch(0, rows=3)}, {"x": batch(0), "scale": 2.0}, {"x": batch(0), "offset": torch.ones(2)}],
)
def test_shape_value_and_structure_are_part_of_the_key(kwargs):
    model = Counting().eval()
    twin = copy.deepcopy(model)
    wrapped = wrap_in_hpu_graph(model)
    wrapped(x=batch(0))
    for _ in range(2):
        torch.testing.assert_close(wrapped(**kwargs), twin(**kwargs).detach())
    assert model.runs == 2
    assert len(model.forward.graphs) == 2


def test_autocast_and_dtype_are_part_of_the_key():
    wrapped = InferenceCache(lambda x: x @ x.t(), None)
    assert wrapped(batch(0)).dtype == torch.float32
    assert wrapped(batch(0).double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert wrapped(batch(0)).dtype == torch.bfloat16
    assert len(wrapped.graphs) == 3


def test_beyond_max_graphs_the_original_runs():
    model = Counting().eval()
    wrapped = wrap_in_hpu_graph(model, max_graphs=1)
    wrapped(batch(0))
    for runs in (2, 3):
        torch.testing.assert_close(wrapped(batch(1, rows=2)), Counting().eval()(batch(1, rows=2)))
        assert model.runs == runs
    model.clear_cache()
    wrapped(batch(1, rows=2))
    assert len(model.forward.graphs) == 1


def test_keywords_of_the_wrapper_are_not_passed_on():
    model = Counting().eval()
    wrapped = wrap_in_hpu_graph(model)
    kept = wrapped(batch(0), cache_tensors_list=[]).clone()
    assert torch.equal(wrapped(batch(1), warmup_mode=True), kept)
    wrapped(batch(1), bypass_hpu_graphs=True)
    assert model.runs == 2
    model.clear_inputs()
    assert not torch.equal(wrapped(batch(1)), kept)


def test_a_wrapped_identity_returns_its_input_without_history():
    wrapped = wrap_in_hpu_graph(torch.nn.Identity())
    for seed in range(2):
        x = batch(seed, grad=True)
        out = wrapped(x)
        assert torch.equal(out, x)
        assert not out.requires_grad


def test_unsupported_modules_and_inputs_are_refused():
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module, not function"):
        wrap_in_hpu_graph(lambda x: x)
    wrapped = InferenceCache(lambda x, y: x, None)
    with pytest.raises(GraphCaptureError, match="argument of type set"):
        wrapped(batch(0), {1})


@pytest.mark.parametrize("grad", [False, True])
def test_a_cached_module_trains_like_the_original(grad):
    model = Counting()
    twin = copy.deepcopy(model)
    cached = ModuleCacher(max_graphs=4)(model=model, inplace=True)
    assert cached is model
    assert_trains_alike(cached, twin, grad)
    assert model.runs == 1
    assert (model.forward.hits, model.forward.uncached) == (3, 0)


def test_only_training_with_gradients_is_cached(monkeypatch):
    model = ModuleCacher()(Counting())
    with torch.no_grad():
        model(batch(0))
    model.eval()(batch(0))
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    model.train()(batch(0))
    assert (model.runs, model.forward.hits, model.forward.uncached) == (3, 0, 3)


def test_kinds_of_input_beyond_max_graphs_are_counted_uncached(caplog):
    model = ModuleCacher(max_graphs=2)(Counting(), verbose=True, log_frequency=4)
    with caplog.at_level(logging.INFO):
        for rows in (2, 3, 4, 4, 2):
            train(model, batch(0, rows=rows))
    assert (model.forward.hits, model.forward.uncached) == (3, 2)
    assert [record.getMessage() for record in caplog.records] == ["graphs 2, cached calls 2, uncached 2"]


def test_the_most_frequent_kinds_get_the_graphs():
    model = ModuleCacher(max_graphs=1)(Counting(), use_lfu=True)
    train(model, batch(0, rows=2))
    model.capture_start()
    for rows in (2, 3, 3):
        train(model, batch(0, rows=rows))
    model.capture_end()
    runs = model.runs
    for rows in (2, 3, 3):
        train(model, batch(0, rows=rows))
    assert (model.forward.hits, model.runs - runs) == (2, 2)
    with pytest.raises(RuntimeError, match="without capture_start"):
        model.capture_end()


def test_a_copy_leaves_the_model_alone_and_micro_batches_accumulate():
    model = Counting().train()
    cached = ModuleCacher()(model, inplace=False, have_grad_accumulation=True)
    assert cached is not model
    twin = copy.deepcopy(model)
    for count in range(2):
        cached.set_iteration_count(count)
        cached(batch(count)).sum().backward()
        twin(batch(count)).sum().backward()
    for ours, theirs in zip(cached.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert model.runs == 0


def test_parallel_wrappers_and_odd_arguments_are_refused():
    class Positional(torch.nn.Module):
        def forward(self, x, /):
            return x

    class Variable(torch.nn.Module):
        def forward(self, *x):
            return x

    with pytest.raises(AssertionError, match="only after wrapping with ModuleCacher"):
        ModuleCacher()(torch.nn.DataParallel(Counting()))
    for module, kind in ((Positional(), "positional-only"), (Variable(), "variadic positional")):
        with pytest.raises(AssertionError, match=f"Unsupported argument type : {kind}"):
            ModuleCacher()(module)


def test_variable_keywords_are_dropped_with_a_warning():
    class Keywords(Counting):
        def forward(self, x, **options):
            return super().forward(x, **options)

    with pytest.warns(UserWarning, match="Variable keyword arguments will not be supported"):
        model = ModuleCacher()(Keywords())
    torch.testing.assert_close(model(batch(0), scale=5.0), Counting()(batch(0)))
