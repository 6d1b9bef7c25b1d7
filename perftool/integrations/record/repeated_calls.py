"""Counts the calls to modules that get the same inputs as an earlier call to the same module, in one step before the
recording. A trace records the shapes of inputs, so it cannot show that two inputs are the same tensor.

A call repeats an earlier one if its inputs are the same memory, not written since, if the same holds for the parameters
and buffers of the module, and if both results are equal where they were compared. Modules without parameters, modules
that draw random numbers or count batches, and calls whose inputs are not only tensors and plain values never count.
Neither do calls with a backward pass in between, because it frees what another backward pass needs. The gradients that
it writes show a backward pass, and so does a hook on the results, because ``torch.autograd.grad`` writes none.

No code of the program runs: containers of its classes are read with the methods of the built-in classes, tensors of its
classes are unknown contents, and modules are looked at without their methods and properties.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from perftool.integrations.compiler import uncompiled
from perftool.integrations.own_errors import OwnErrorsHidden
from perftool.integrations.record.ignored_targets import IgnoredTargets
from perftool.integrations.record.padded_inputs import PaddedInputs
from perftool.integrations.record.plain_tensors import is_plain
from perftool.integrations.record.steps import GlobalHook, has_seen_compile
from perftool.integrations.record.trial import Call
from perftool.integrations.record.trials import Counted, Trials
from perftool.model.modules import INSIDE
from perftool.model.recorded_on import LONGEST_PATH

# A step with more calls, or with more parameters and buffers of all called modules, is not examined to its end.
_MOST_CALLS, _MOST_STATES = 20_000, 200_000
# The most inputs to remember per module, values to read per call, and elements to compare per result.
_MOST_INPUTS, _MOST_VALUES, _MOST_ELEMENTS = 8, 64, 256
_MOST_MODULES = 50
_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout)


class _UnknownError(Exception):
    """It is unknown whether this call repeats another one."""


@dataclass
class _Result:
    """A sample of the result of calls with the same inputs, and whether a backward pass went through one of them."""

    sample: list[torch.Tensor]
    is_used: bool = False

    def use(self, *_: Any) -> None:
        """Handle a backward pass. Return None, so that its gradients stay as they are."""
        self.is_used = True


@dataclass
class _Called:
    """A module that was called.

    Its number counts the called modules of its class. ``around`` are the modules around those of its calls that repeat
    earlier ones. ``results`` has a sample of each result, by inputs; inputs and results are not kept in memory.
    """

    module: weakref.ref[torch.nn.Module]
    kind: type
    number: int
    path: str
    calls: int = 0
    repeated: int = 0
    around: set[tuple[type, int]] = field(default_factory=set)
    results: dict[Hashable, _Result] = field(default_factory=dict)


class RepeatedCalls:
    """Examines the calls that this thread makes between ``begin`` and ``end``, at most once."""

    def __init__(self, trials: bool = True) -> None:
        # Each module that repeats calls. None if no step was examined.
        self.found: list[dict[str, Any]] | None = None
        self.padded = PaddedInputs()
        self.ignored = IgnoredTargets()
        self.trials = Trials()
        self._tries = trials
        self._hooks: list[GlobalHook] = []
        self._limit = self._raised = 0
        self._code: CodeType | None = None
        self._thread = 0
        self._handles: list[RemovableHandle] = []
        self._forget()

    def begin(self) -> None:
        """Start unless something was compiled, which a new hook would make invalid, or there is an accelerator, on
        which reading a result takes time."""
        with suppress(Exception):
            if not self._hooks and not has_seen_compile() and not torch.accelerator.is_available():
                self._code = torch.nn.Module.__call__.__code__
                self._thread = threading.get_ident()
                self._hooks.append(GlobalHook(self._called, partial(register_module_forward_hook, with_kwargs=True)))
                if self._tries:
                    self._hooks.append(GlobalHook(self._begun))
                # With a hook, the call to a module takes five levels of recursion instead of four.
                self._limit = sys.getrecursionlimit()
                self._raised = self._limit * 3 // 2
                sys.setrecursionlimit(self._raised)

    def end(self) -> None:
        """Stop, and set ``found``. Without ``begin``, do nothing."""
        with suppress(Exception):
            if self._code is not None:
                self.found = self._repeating()
                self._stop()

    def _stop(self) -> None:
        self._code = None
        self._forget()
        for hook in self._hooks:
            hook.remove()
        # The program may have changed the limit, and the stack may be too deep for the old one.
        if self._hooks and sys.getrecursionlimit() == self._raised:
            with suppress(RecursionError):
                sys.setrecursionlimit(self._limit)

    def _forget(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._calls = self._states = 0
        self._modules: dict[int, _Called] = {}
        # The call to a model that is running, if it counts as one of a trial.
        self._tried: Counted | None = None
        self._kinds: Counter[type] = Counter()

    @uncompiled
    def _called(self, module: torch.nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        """Handle the end of a call to ``module``."""
        if threading.get_ident() != self._thread:
            return
        self._calls += 1
        if self._calls > _MOST_CALLS or self._states > _MOST_STATES:
            self.trials.stop_watching()
            self._stop()
            return
        with OwnErrorsHidden():
            *around, called = self._calls_here(sys._getframe())
            if called.module() is not module:
                return
            called.calls += 1
            # Our own ops must not reach the modes of the program.
            if torch._C._len_torch_dispatch_stack() or issubclass(type(module), torch.jit.ScriptModule):
                return
            tried, self._tried = (None, self._tried) if around else (self._tried, None)
            if tried is not None:
                with torch.no_grad(), torch._C.DisableTorchFunction(), suppress(_UnknownError):
                    self._watch(_tensors(result), tried)
                    tried.backward = False
            inputs = (*args, *kwargs.values())
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self.padded.add(called.path, module, inputs)
                self.ignored.add(called.path, module, inputs)
            if self._is_repeated(called, module, (args, kwargs), result):
                called.repeated += 1
                called.around.update((one.kind, one.number) for one in around)

    @uncompiled
    def _begun(self, module: torch.nn.Module, args: Any) -> None:
        """Try changes on a call to ``module`` that begins, if it is not inside another module."""
        if threading.get_ident() != self._thread:
            return
        with OwnErrorsHidden():
            innermost, *around = islice(self._frames(sys._getframe()), 2)
            if around or innermost.f_locals["self"] is not module:
                return
            if torch._C._len_torch_dispatch_stack() or issubclass(type(module), torch.jit.ScriptModule):
                return
            if type(module) is DistributedDataParallel:
                # The wrapper communicates, but only its module computes.
                (module,) = _members(module, "_modules")
            _, parameters, buffers = _owned(module)
            call = Call(module, args, innermost.f_locals["kwargs"], torch.is_grad_enabled())
            with torch._C.DisableTorchFunction():
                self._tried = self.trials.add(type(module).__name__, call, parameters, buffers)

    def _frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The frames that call modules, from the innermost."""
        while frame is not None:
            if frame.f_code is self._code:
                yield frame
            frame = frame.f_back

    def _calls_here(self, frame: FrameType | None) -> list[_Called]:
        """The modules that are being called, from the outermost. Like the profiler, number them in the order in which
        their first calls begin."""
        modules = [one.f_locals["self"] for one in self._frames(frame)]
        found: list[_Called] = []
        for module in reversed(modules):
            called = self._modules.get(id(module))
            if called is None or called.module() is not module:
                kind = type(module)
                path = INSIDE.join((*(one.kind.__name__ for one in found), kind.__name__))
                called = self._modules[id(module)] = _Called(weakref.ref(module), kind, self._kinds[kind], path)
                self._kinds[kind] += 1
            found.append(called)
        return found

    def _is_repeated(self, called: _Called, module: torch.nn.Module, given: Any, result: Any) -> bool:
        differentiated = torch.is_grad_enabled()
        with torch.no_grad(), torch._C.DisableTorchFunction():
            described = _described(given)
            modules, parameters, buffers = _owned(module)
            self._states += len(parameters) + len(buffers)
            if not parameters or not all(map(is_plain, (*parameters, *buffers))):
                return False
            inputs = (differentiated, described, tuple(map(_version, (*parameters, *buffers))))
            results = _tensors(result)
            sample = list(map(_sampled, results))
            before = called.results.get(inputs)
            own = _Result(sample) if before is None or before.is_used else before
            self._watch(results, own)
            if own is not before:
                called.results[inputs] = own
                if len(called.results) > _MOST_INPUTS:
                    del called.results[next(iter(called.results))]
                return False
            same = len(own.sample) == len(sample) and all(map(torch.equal, own.sample, sample))
            return same and not any(map(_is_changing, modules))

    def _watch(self, results: list[torch.Tensor], own: _Result | Counted) -> None:
        """Let a backward pass through ``results`` mark ``own`` as used. If the program then writes into a view, the
        backward pass goes through the tensor that owns the memory instead."""
        bases = [tensor._base for tensor in results if tensor._base is not None]
        for node in dict.fromkeys(tensor.grad_fn for tensor in (*results, *bases)):
            if node is not None:
                self._handles.append(node.register_hook(own.use))

    def _repeating(self) -> list[dict[str, Any]]:
        """The outermost modules that repeat calls. Classes with the same name have the same names in the trace."""
        names = Counter(kind.__name__ for kind in self._kinds)
        repeating = {(one.kind, one.number): one for one in self._modules.values() if one.repeated}
        found: list[dict[str, Any]] = [
            {
                "module": f"{one.kind.__name__}_{one.number}",
                "path": one.path,
                "calls": one.calls,
                "repeated": one.repeated,
                "modules": self._kinds[one.kind],
            }
            for one in repeating.values()
            if not one.around & repeating.keys() and names[one.kind.__name__] == 1 and len(one.path) <= LONGEST_PATH
        ]
        return sorted(found, key=lambda one: (one["path"], one["module"]))[:_MOST_MODULES]


def _values(given: Any) -> Iterator[Any]:
    """The tensors and plain values in ``given``, with the structure around them."""
    kind = type(given)
    if issubclass(kind, dict):
        yield from (dict, dict.__len__(given))
        for key, value in dict.items(given):
            yield key if type(key) is str else None
            yield from _values(value)
    elif issubclass(kind, (tuple, list)):
        sequence: Any = tuple if issubclass(kind, tuple) else list
        yield from (sequence, sequence.__len__(given))
        for value in sequence.__iter__(given):
            yield from _values(value)
    elif kind in _PLAIN or issubclass(kind, torch.Tensor):
        yield given
    else:
        raise _UnknownError


def _tensors(given: Any) -> list[torch.Tensor]:
    """The tensors in ``given``, which has at least one. Raise ``_UnknownError`` if one of them is not plain."""
    found = []
    for number, value in enumerate(_values(given)):
        if isinstance(value, torch.Tensor):
            if not is_plain(value):
                raise _UnknownError
            found.append(value)
        if number > _MOST_VALUES:
            raise _UnknownError
    if not found:
        raise _UnknownError
    return found


def _described(given: Any) -> Hashable:
    """The inputs of a call. Equal descriptions mean the same memory, which was not written in between. A weak reference
    keeps the address of the memory from being used again, but not the memory itself. Raise ``_UnknownError`` if a
    tensor is not plain."""
    _tensors(given)
    return tuple(_memory(value) if isinstance(value, torch.Tensor) else value for value in _values(given))


def _memory(tensor: torch.Tensor) -> Hashable:
    storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    return (
        storage,
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor._version,
        tensor.requires_grad,
    )


def _owned(module: torch.nn.Module) -> tuple[list[torch.nn.Module], list[Any], list[Any]]:
    """``module`` and its submodules, and their parameters and buffers, with any object of unknown contents. This does
    not call ``parameters()`` and ``buffers()``, because they spend most of their time building names."""
    parameters: list[Any] = []
    buffers: list[Any] = []
    modules = {id(module): module}
    left = [module]
    while left:
        one = left.pop()
        parameters += _members(one, "_parameters")
        buffers += _members(one, "_buffers")
        for inner in _members(one, "_modules"):
            if not issubclass(type(inner), torch.nn.Module):
                parameters.append(inner)
            elif id(inner) not in modules:
                modules[id(inner)] = inner
                left.append(inner)
    return list(modules.values()), parameters, buffers


def _members(module: torch.nn.Module, kind: str) -> list[Any]:
    members: Any = _state(module).get(kind)
    known = type(members) in (dict, OrderedDict)
    return [one for one in members.values() if one is not None] if known else [members]


def _state(module: torch.nn.Module) -> dict[str, Any]:
    """The attributes of ``module`` itself."""
    state: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return state


def _version(tensor: torch.Tensor) -> Hashable:
    """Changes when the program writes ``tensor`` or its gradient."""
    grad = tensor.grad if tensor.is_leaf else None
    if type(grad) not in (type(None), torch.Tensor):
        raise _UnknownError
    return id(tensor), tensor._version, None if grad is None else (id(grad), grad._version)


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    most = int(_MOST_ELEMENTS ** (1 / tensor.dim())) if tensor.dim() else 1
    return tensor.detach()[tuple(slice(None, None, max(1, -(-size // most))) for size in tensor.shape)].clone()


def _is_changing(module: torch.nn.Module) -> bool:
    """Whether two calls to ``module`` with the same input differ, because it draws random numbers or counts batches."""
    kind, state = type(module), _state(module)
    if state.get("training") is False:
        return False
    if issubclass(kind, _DropoutNd):
        rate = state.get("p", True)
    elif issubclass(kind, (torch.nn.RNNBase, torch.nn.MultiheadAttention)):
        rate = state.get("dropout", True)
    elif issubclass(kind, _NormBase):
        rate = state.get("track_running_stats", True)
    else:
        rate = issubclass(kind, torch.nn.RReLU)
    return type(rate) not in _PLAIN or bool(rate)
