"""``record`` notices modules that are called again with the same inputs, and disturbs nothing."""

from __future__ import annotations

import ctypes
import gc
import gzip
import inspect
import json
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from recorded_script import run
from stores import findings_of
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.modules.module import _global_forward_hooks, _global_forward_hooks_with_kwargs
from torch.utils.checkpoint import checkpoint

from perftool.engine.rules.pack import shipped_rules
from perftool.integrations.record import repeated_calls
from perftool.integrations.record.repeated_calls import RepeatedCalls
from perftool.integrations.record.trials import Trials

X = torch.ones(2, 4)


RUN_IN_A_CHILD = Trials._tried
TRIED = {"base_ns": 1, "forward": {}, "failed": [], "error": "", "error_line": ""}


@pytest.fixture(autouse=True)
def trials_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls count as tried, but run in no forked child, which takes 0.7 s for each model."""
    monkeypatch.setattr(Trials, "_tried", lambda *_: dict(TRIED))


@pytest.fixture(autouse=True)
def no_hook_stays() -> Iterator[None]:
    counters.clear()
    yield
    counters.clear()
    _global_forward_hooks.clear()
    _global_forward_hooks_with_kwargs.clear()


def seen(program: Callable[[], object]) -> list[tuple[str, int, int]] | None:
    """What is found while ``program`` runs: module, calls, repeated calls."""
    watch = RepeatedCalls()
    watch.begin()
    program()
    before = len(_global_forward_hooks)
    watch.end()
    assert len(_global_forward_hooks) == max(before - 1, 0)
    assert not _global_forward_hooks_with_kwargs
    return watch.found and [(one["module"], one["calls"], one["repeated"]) for one in watch.found]


class Twice(nn.Module):
    """Calls ``inner`` twice with the same input."""

    def __init__(self, inner: nn.Module, between: Callable[..., object] = lambda x: x) -> None:
        super().__init__()
        self.inner = inner
        self.between = between

    def forward(self, x: Any) -> Any:
        first = self.inner(x)
        self.between(x)
        return first + self.inner(x)


def test_a_call_with_the_same_input_and_the_same_weights_repeats_another() -> None:
    watch = RepeatedCalls()
    watch.begin()
    Twice(nn.Linear(4, 4))(X).sum().backward()
    watch.end()
    found = {"module": "Linear_0", "path": "Twice > Linear", "calls": 2, "repeated": 1, "modules": 1}
    assert watch.found == [found]


def test_new_views_of_the_same_memory_are_the_same_input() -> None:
    layer = nn.Conv1d(4, 4, 1)
    assert seen(lambda: [layer(X[None].permute(0, 2, 1)) for _ in range(3)]) == [("Conv1d_0", 3, 2)]


def test_inputs_may_alternate() -> None:
    layer, other = nn.Linear(4, 4), torch.zeros(2, 4)
    assert seen(lambda: [layer(x) for x in (X, other, X, other)]) == [("Linear_0", 4, 2)]


def test_an_input_may_be_given_by_name_or_in_a_tuple() -> None:
    cell, state = nn.LSTMCell(4, 4), torch.ones(2, 4)
    assert seen(lambda: [cell(input=X, hx=(state, state)) for _ in range(2)]) == [("LSTMCell_0", 2, 1)]
    assert seen(lambda: [cell(X, hx=(state, torch.ones(2, 4))) for _ in range(2)]) == []


def test_only_the_outermost_module_counts() -> None:
    network = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4))
    assert seen(lambda: Twice(network)(X)) == [("Sequential_0", 2, 1)]


def test_an_inner_module_counts_if_the_outer_one_does_not_repeat_calls() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    assert seen(lambda: Twice(network)(X)) == [("Linear_0", 2, 1)]


def test_modules_are_numbered_in_the_order_in_which_their_calls_begin() -> None:
    inner, outer = nn.Sequential(nn.Linear(4, 4)), nn.Sequential()
    outer.append(inner)

    def program() -> None:
        outer(torch.zeros(2, 4))
        for _ in range(2):
            inner(X)

    assert seen(program) == [("Sequential_1", 3, 1)]


def step_of(layer: nn.Module) -> Callable[..., None]:
    def update(_: object) -> None:
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        layer(torch.zeros(2, 4)).sum().backward()
        optimizer.step()

    return update


class Noisy(nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x) + torch.randn(2, 4)


class Stateful(nn.Linear):
    calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return super().forward(x) * self.calls


class OnData(nn.Linear):
    """Takes an object whose contents are unknown."""

    def forward(self, data: Any) -> Any:
        return super().forward(data.x)


def test_changes_between_two_calls_are_noticed() -> None:
    layer = nn.Linear(4, 4)

    def write(_: object) -> None:
        with torch.no_grad():
            layer.weight.mul_(2)

    def write_data(_: object) -> None:
        layer.weight.data *= 2

    def backward(x: Any) -> None:
        layer(torch.zeros(2, 4)).sum().backward()

    for between in (write, write_data, backward, step_of(layer)):
        assert seen(lambda between=between: Twice(layer, between)(X.clone())) == []
    assert seen(lambda: Twice(layer, lambda x: x.add_(1))(X.clone())) == []
    assert seen(lambda: Twice(nn.Linear(4, 4), lambda _: torch.set_grad_enabled(False))(X)) == []
    torch.set_grad_enabled(True)


def test_new_memory_at_the_same_address_is_not_the_same_input() -> None:
    layer = nn.Linear(4, 4)
    assert seen(lambda: [layer(torch.ones(2, 4)) for _ in range(50)]) == []


@pytest.mark.parametrize(
    "layer",
    [
        nn.ReLU(), nn.Sequential(nn.Flatten()), Noisy(4, 4), Stateful(4, 4), nn.BatchNorm1d(4),
        nn.utils.spectral_norm(nn.Linear(4, 4)),
    ],
)  # fmt: skip
def test_modules_without_parameters_or_whose_results_change_do_not_count(layer: nn.Module) -> None:
    assert seen(lambda: Twice(layer)(X)) == []


@pytest.mark.parametrize(
    ("layer", "training"),
    [
        (nn.Sequential(nn.Linear(4, 4, bias=False), nn.Dropout(0.5)), [("Linear_0", 2, 1)]),
        (nn.RNN(4, 4, 2, bias=False, dropout=0.5), []),
    ],
)
def test_random_modules_do_not_count_even_if_results_are_equal(layer: nn.Module, training: list[Any]) -> None:
    zeros = torch.zeros(2, 2, 4)
    assert seen(lambda: [layer(zeros) for _ in range(2)]) == training
    layer.eval()
    assert seen(lambda: [layer(zeros) for _ in range(2)]) == [(f"{type(layer).__name__}_0", 2, 1)]


def test_a_batch_norm_in_eval_mode_counts() -> None:
    assert seen(lambda: Twice(nn.BatchNorm1d(4).eval())(X)) == [("BatchNorm1d_0", 2, 1)]


def test_calls_in_other_threads_and_in_a_backward_pass_do_not_count() -> None:
    layer, network = nn.Linear(4, 4), nn.Linear(4, 4)
    thread = threading.Thread(target=lambda: layer(X))

    def program() -> None:
        layer(X)
        thread.start()
        thread.join()
        checkpoint(network, X, use_reentrant=False).sum().backward()

    assert seen(program) == []


def test_transforms_and_modes_are_left_alone() -> None:
    layer = nn.Linear(4, 4)

    def program() -> None:
        for _ in range(2):
            torch.vmap(layer)(X)
            torch.func.grad(lambda x: layer(x).sum())(X)
            torch.jit.trace(layer, X)
            torch.fx.symbolic_trace(nn.Sequential(layer))
            with torch.inference_mode():
                layer(torch.ones(2, 4))

    assert seen(program) == []
    from torch.utils.flop_counter import FlopCounterMode

    plain, watched = (FlopCounterMode(display=False) for _ in range(2))
    with plain:
        Twice(layer)(X)
    with watched:
        assert seen(lambda: Twice(layer)(X)) == []
    assert plain.get_flop_counts() == watched.get_flop_counts()


def test_an_input_of_unknown_contents_is_not_compared() -> None:
    class Data:
        x = X

    data, layer = Data(), OnData(4, 4)
    assert seen(lambda: [layer(data) for _ in range(2)]) == []
    sparse = nn.Linear(4, 4, bias=False)
    identity = torch.eye(4).to_sparse()
    assert seen(lambda: [sparse(identity) for _ in range(2)]) == []


def test_classes_with_the_same_name_cannot_be_told_apart_in_a_trace() -> None:
    class Linear(nn.Linear):
        pass

    ours, layer = Linear(4, 4), nn.Linear(4, 4)
    assert seen(lambda: [one(X) for one in (ours, layer, layer)]) == []


@pytest.mark.parametrize("last", [torch.clone, torch.relu_], ids=["alone", "written into"])
@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 4)], ids=["the result owns its memory", "the result is a view"])
@pytest.mark.parametrize("frozen", [False, True], ids=["of the weights", "of the input"])
def test_gradients_that_are_not_written_show_a_backward_pass(shape: Any, frozen: bool, last: Any) -> None:
    """A gradient for each task was once called a repeated call."""
    layer, x = nn.Linear(4, 4).requires_grad_(not frozen), torch.ones(shape, requires_grad=frozen)

    def gradients(*results: torch.Tensor) -> None:
        torch.autograd.grad(sum(last(one).sum() for one in results), x if frozen else [*layer.parameters()])

    assert seen(lambda: [gradients(layer(x)) for _ in range(3)]) == []
    assert seen(lambda: gradients(layer(x), layer(x))) == [("Linear_0", 2, 1)]
    assert seen(lambda: [gradients(layer(x), layer(x)) for _ in range(2)]) == [("Linear_0", 4, 2)]
    assert seen(lambda: [layer(x), layer(x), gradients(layer(x)), layer(x)]) == [("Linear_0", 4, 2)]


def test_no_hook_stays_on_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, passes = nn.Linear(4, 4), []
    monkeypatch.setattr(repeated_calls._Result, "use", lambda *_: passes.append(1))
    results: list[torch.Tensor] = []
    seen(lambda: results.extend(layer(X) for _ in range(2)))
    sum(one.sum() for one in results).backward()
    seen(lambda: layer(X).sum().backward())
    assert len(passes) == 1


def test_no_tensor_is_kept_in_memory() -> None:
    layer, watch = nn.Linear(4, 4), RepeatedCalls()
    watch.begin()
    x = torch.ones(2, 4)
    known = [weakref.ref(x.untyped_storage()), weakref.ref(layer)]
    layer(x)
    del x, layer
    gc.collect()
    assert [one() for one in known] == [None, None]
    watch.end()


def test_results_gradients_and_random_numbers_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trials, "_tried", RUN_IN_A_CHILD)

    def trained() -> list[Any]:
        torch.manual_seed(0)
        network = Twice(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)))
        loss = network(X).sum()
        loss.backward()
        return [loss, torch.get_rng_state(), *(one.grad for one in network.parameters()), *network.buffers()]

    plain, watched = trained(), []
    seen(lambda: watched.extend(trained()))
    assert all(map(torch.equal, plain, watched))


def test_a_step_with_many_calls_is_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(4, 4)
    for limit in ("_MOST_CALLS", "_MOST_STATES"):
        with monkeypatch.context() as patched:
            patched.setattr(repeated_calls, limit, 3)
            assert seen(lambda: [layer(X) for _ in range(9)]) is None


def test_an_error_in_the_hook_stays_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_calls, "_described", None)
    assert seen(lambda: Twice(nn.Linear(4, 4))(X)) == []


class OutOfTimeError(Exception):
    """An exception of the program."""


def out_of_time(*_: object) -> None:
    raise TimeoutError


def raised_in(thread: int) -> Callable[[], None]:
    return partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(thread), ctypes.py_object(OutOfTimeError))


@pytest.mark.parametrize(
    ("raises", "error"),
    [
        pytest.param(partial(signal.raise_signal, signal.SIGTERM), TimeoutError, id="in a signal handler"),
        pytest.param(raised_in(threading.get_ident()), OutOfTimeError, id="by another thread"),
    ],
)
def test_an_exception_that_the_program_raises_during_the_hook_reaches_the_program(
    raises: Callable[[], None], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit that raises an exception used to be lost."""
    before = signal.signal(signal.SIGTERM, out_of_time)
    with monkeypatch.context() as patched:
        patched.setattr(torch._C, "_len_torch_dispatch_stack", raises)
        with pytest.raises(error):
            seen(lambda: nn.Linear(4, 4)(X))
    signal.signal(signal.SIGTERM, before)


def test_no_method_of_the_program_is_called() -> None:
    called = []

    def noticed(kind: type, *names: str) -> Any:
        def method(name: str) -> Any:
            return lambda self, *args: (called.append(name), getattr(kind, name)(self, *args))[1]

        return type(f"Own{kind.__name__}", (kind,), {name: method(name) for name in names})

    own_dict = noticed(dict, "__iter__", "__len__", "items", "values")
    own_list = noticed(list, "__iter__", "__len__")
    layer, other = noticed(nn.Linear, "modules", "parameters", "buffers")(4, 4), nn.Linear(4, 4)
    other._parameters = own_dict(other._parameters)

    class OnDict(nn.Linear):
        def forward(self, given: Any, _: Any) -> Any:
            return own_dict(y=super().forward(dict.get(given, "x")))

    network = OnDict(4, 4)
    assert seen(lambda: [(network(own_dict(x=X), own_list([X])), layer(X), other(X)) for _ in range(2)]) == [
        ("OnDict_0", 2, 1),
        ("OwnLinear_0", 2, 1),
    ]
    assert called == []


def test_a_failing_module_disturbs_nothing() -> None:
    network = Twice(nn.Linear(4, 4), lambda _: 1 / 0)

    def program() -> None:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                network(X)

    assert seen(program) == [("Linear_0", 2, 1)]


def test_a_recursive_module_may_be_as_deep_as_without_the_hook() -> None:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
            return self.layer(self(x, depth - 1)) if depth else x

    module, limit = Recursive(), sys.getrecursionlimit()
    left = limit - len(inspect.stack()) - 60
    # Without a hook, a call takes four levels of recursion.
    assert seen(lambda: module(X, left // 4)) == []
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(("kind", "count"), [("stats", "unique_graphs"), ("frames", "total")])
def test_after_a_compilation_no_hook_is_added(kind: str, count: str) -> None:
    counters[kind][count] += 1
    assert seen(lambda: Twice(nn.Linear(4, 4))(X)) is None


SCRIPT = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.edges, self.update = torch.nn.Linear(512, 512), torch.nn.Linear(512, 1)
    def forward(self, x):
        h = x
        for _ in range(3):
            h = self.update(h) + self.edges(x)
        return h
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.001)
for _ in range(6):
    optimizer.zero_grad(); net(torch.ones(512, 512)).sum().backward(); optimizer.step()
print(len(torch.nn.modules.module._global_forward_hooks))
"""


def test_record_writes_what_it_saw_and_a_finding_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, SCRIPT, "--active", "2")
    assert done.stdout == "0\n"
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    recorded = json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]
    found = {"module": "Linear_1", "path": "Net > Linear", "calls": 3, "repeated": 2, "modules": 2}
    assert recorded["repeated_calls"] == [found]
    rules = [rule for rule in shipped_rules() if rule.code == "STP107"]
    (finding,) = findings_of([str(trace)], rules)
    assert finding.message.startswith("in a step before the recording, 2 of 3 calls to Net > Linear got the same input")
    assert finding.location.source is not None
    assert finding.location.source.function == "forward"


COMPILED_LATE = """
import torch
inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1))
optimizer = torch.optim.SGD(inner.parameters(), 0.1)
model = inner
for step in range(12):
    if step == 2:
        model = torch.compile(inner, backend="eager", fullgraph=True)
    if step == 4:
        torch.compiler.set_stance("fail_on_recompile")
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
print("done")
"""


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="needs stances of torch.compile")
def test_a_module_that_is_compiled_while_its_calls_are_examined_is_compiled_once(tmp_path: Path) -> None:
    done = run(tmp_path, COMPILED_LATE)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "global hooks" not in done.stderr


@pytest.mark.parametrize("options", [["--no-stacks"], ["--warmup", "0"]])
def test_without_stacks_or_a_warm_up_step_nothing_is_examined(tmp_path: Path, options: list[str]) -> None:
    run(tmp_path, SCRIPT, *options)
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    assert "repeated_calls" not in json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]
