"""Detects the steps of the user's program. A step ends after ``optimizer.step()``. If there is no optimizer,
each batch fetched from a data loader starts a step once a module was called. If there is no loader either, each call
of the module that ran first starts a step. Modules that prepare samples or weights do not count, and neither do calls
while a model is being built. If an optimizer steps after at most two such calls, the calls only inspected the module,
and the optimizer's steps count.

If only other processes of the program have an optimizer, this process helps them, as an actor of reinforcement
learning does. Its batches and calls are then no steps.
"""

from __future__ import annotations

import copy
import gc
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from itertools import compress, repeat
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import _global_forward_hooks_with_kwargs, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import dataloader

from perftool.integrations.compiler import skipped, uncompiled
from perftool.integrations.ignored_warnings import IgnoredWarnings
from perftool.integrations.record.plan import StepsFrom

# After this many batches without a step, an existing optimizer is treated as unused.
_PATIENCE = 50
# If a program calls a module at most this often before its optimizer first steps, the calls only inspect the module
# (its size, its operations, its lazy layers).
_INSPECTIONS = 2
# Modules that are called before the model itself: they prepare samples, compute weights, or observe them while a model
# is quantised.
_NO_MODELS = (
    "torchvision.transforms.",
    "torchaudio.transforms.",
    "torch.nn.utils.parametrize.",
    "torch.ao.quantization.observer.",
    "torch.ao.quantization.fake_quantize.",
)
# The beginning of a PyTorch warning about our own module hook.
_GLOBAL_HOOKS = "Using `torch.compile(module)` when there are global hooks on modules"
# PyTorch numbers hooks from 0.
_UNSEEN_ID = -1


class Steps:
    """Calls ``ended`` at the end of each step of the program, until ``close``. ``only_others_train`` tells whether
    other processes of the program have an optimizer, and this one has none."""

    def __init__(
        self, source: StepsFrom, ended: Callable[[], None], only_others_train: Callable[[], bool] = lambda: False
    ) -> None:
        self._source = source
        self._ended = ended
        self._only_others_train = only_others_train
        self._leader: weakref.ref[Any] | None = None
        # An optimizer that was found among all objects of the program.
        self._found: weakref.ref[Any] | None = None
        self._followers: set[int] = set()
        self._fetches = 0
        # The threads that are fetching a batch. Modules that they call prepare samples.
        self._fetching: set[int] = set()
        self._calls = 0
        # Whether any module was called. Before that, a pass over a loader only computes statistics of the data.
        self._model_ran = False
        # The class of the module whose calls are the steps.
        self.called: str | None = None
        # Whether an optimizer steps inside the backward pass, where no recording can start or end.
        self.in_backward = False
        self._handles: list[Any] = []
        self._fetch: Any = None
        if source in ("auto", "optimizer"):
            self._handles.append(_StepHook(self._stepped))
        if source in ("auto", "loader"):
            self._watch_loaders()
        if source in ("auto", "forward"):
            self._watch_calls()

    @property
    def batches(self) -> int:
        """The number of batches fetched from data loaders, or 0 if steps come from an optimizer or a module."""
        return self._fetches if self._source in ("auto", "loader") else 0

    @property
    def are_of_optimizer(self) -> bool:
        """Whether an optimizer ends the steps, or steps inside the backward pass."""
        return self._source == "optimizer" or self.in_backward

    def start_over(self) -> None:
        """Forget which module was called, and decide again what a step is."""
        self._calls, self._source, self.called = 0, "auto", None
        self._keep(self._handles[:1])
        if self._fetch is None:
            self._watch_loaders()
        # PyTorch would compile again because of a new global hook.
        if not has_seen_compile():
            self._model_ran = False
            self._watch_calls()

    def close(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._release_loaders()

    def _settle(self, source: StepsFrom) -> None:
        """Use only ``source`` from now on."""
        if self._source == "auto":
            self._source = source
            # The optimizer's hook comes first.
            self._keep(self._handles[:1])
            if source != "loader":
                self._release_loaders()

    def _keep(self, handles: list[Any]) -> None:
        """Remove all hooks except ``handles``."""
        for handle in self._handles:
            if handle not in handles:
                handle.remove()
        self._handles = handles

    @uncompiled
    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if _in_backward():
            self.in_backward = True
            return
        if 0 < self._calls <= _INSPECTIONS:
            self._calls, self._source, self.called = 0, "auto", None
        if self._source not in ("auto", "optimizer"):
            return
        self._settle("optimizer")
        leader = self._leader() if self._leader else None
        if leader is None or id(optimizer) in self._followers:
            # Count the first optimizer's steps until another optimizer steps twice in a row without the first one
            # stepping; from then on, count the other's.
            leader, self._leader = optimizer, weakref.ref(optimizer)
        if optimizer is leader:
            self._followers.clear()
            self._ended()
        else:
            self._followers.add(id(optimizer))

    def _watch_loaders(self) -> None:
        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__next__

        @skipped
        @wraps(original)
        def fetch(loader: Any) -> Any:
            if self._fetch is not None:
                self._fetched()
            self._fetching.add(get_ident())
            try:
                return original(loader)
            finally:
                self._fetching.discard(get_ident())

        self._fetch = fetch
        iterator.__next__ = fetch  # type: ignore[assignment, method-assign]

    def _release_loaders(self) -> None:
        # If the program has since wrapped the method, ours stays inside the wrapper and does nothing.
        iterator, fetch, self._fetch = dataloader._BaseDataLoaderIter, self._fetch, None
        if fetch is not None and iterator.__next__ is fetch:
            iterator.__next__ = fetch.__wrapped__  # type: ignore[method-assign, attr-defined]

    @uncompiled
    def _fetched(self) -> None:
        self._fetches += 1
        if self._source == "auto" and (self.in_backward or (self._model_ran and self._has_no_optimizer())):
            self._settle("loader")
        if self._source == "loader":
            self._ended()

    def _has_no_optimizer(self) -> bool:
        return not self._only_others_train() and (self._fetches > _PATIENCE or not self._has_optimizer())

    def _has_optimizer(self) -> bool:
        """Whether an optimizer exists. Search only if the one that was found is gone: a search visits all objects."""
        if self._found is None or self._found() is None:
            optimizer = _first_of(Optimizer)
            self._found = None if optimizer is None else weakref.ref(optimizer)
        return self._found is not None

    def _watch_calls(self) -> None:
        self._first_call = GlobalHook(self._called)
        self._handles.append(self._first_call)

    @uncompiled
    def _called(self, module: torch.nn.Module, args: Any) -> None:
        """Handle the first call to a model that PyTorch does not compile or trace. This removes the global hook."""
        if get_ident() in self._fetching or _is_no_model(type(module)) or _is_preparing(sys._getframe()):
            return
        self._first_call.remove()
        self._model_ran, self._fetches = True, 0
        if self._source == "auto":
            if self._has_optimizer() or self._only_others_train():
                return
            # An iterator may be empty, or fail when it is asked for its length.
            if _first_of(dataloader._BaseDataLoaderIter) is not None:
                return
            self._settle("forward")
        self.called = type(module).__name__
        seen = issubclass(type(module), torch.jit.ScriptModule) or len(module._forward_pre_hooks) > 0
        self._handles.append((_GlobalCallHook if seen else _CallHook)(module, self._call_begun))
        self._call_begun()

    @uncompiled
    def _call_begun(self) -> None:
        """End a step, and count the call: if an optimizer steps after a few calls, they only inspected the module."""
        self._calls += 1
        self._ended()


def _is_no_model(kind: type) -> bool:
    return f"{kind.__module__}.".startswith(_NO_MODELS)


def _is_preparing(frame: FrameType | None) -> bool:
    """Whether ``frame`` runs inside the constructor of a module, which may call a part of it to learn the shape of its
    result, or inside the call of a module that is no model."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("__init__", "forward") and code.co_argcount:
            kind = type(frame.f_locals.get(code.co_varnames[0]))
            if issubclass(kind, torch.nn.Module) and (code.co_name == "__init__" or _is_no_model(kind)):
                return True
        frame = frame.f_back
    return False


class GlobalHook:
    """Calls ``called`` at each call to any module that PyTorch does not compile or trace, until ``remove``.
    ``register`` decides whether this is before or after the call."""

    def __init__(
        self, called: Callable[..., None], register: Callable[[Any], Any] = register_module_forward_pre_hook
    ) -> None:
        self._called = called
        self._removed = False
        self._silence = IgnoredWarnings(message=re.escape(_GLOBAL_HOOKS))
        self._handle = register(self._at_call)

    def remove(self) -> None:
        """Remove the hook. If a module was compiled in place, the hook stays and does nothing: the compiled code is
        valid only for the number of global hooks that it was compiled with."""
        self._removed = True
        if not has_compiled():
            self._handle.remove()
            # PyTorch forgets to remove this, and then behaves as if the hook were still there.
            _global_forward_hooks_with_kwargs.pop(self._handle.id, None)
            self._silence.remove()

    @skipped
    def _at_call(self, module: torch.nn.Module, *details: Any) -> None:
        if not is_traced() and not self._removed:
            self._called(module, *details)


def has_compiled() -> bool:
    """Whether torch.compile has compiled any op."""
    return bool(_compilations("stats").get("unique_graphs"))


def has_seen_compile() -> bool:
    """Whether torch.compile has looked at any function, even if it has compiled no op in it."""
    return has_compiled() or bool(_compilations("frames"))


def _compilations(kind: str) -> Mapping[str, int]:
    """PyTorch's counts of this kind. There are none before a program uses torch.compile."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters.get(kind, {}) if dynamo is not None else {}


class First:
    """Calls ``made`` when the program creates its first object of ``kind``."""

    def __init__(self, kind: Any, made: Callable[[], None]) -> None:
        original, made = kind.__init__, uncompiled(made)

        @skipped
        @wraps(original)
        def create(new: Any, *args: Any, **named: Any) -> None:
            original(new, *args, **named)
            if kind.__init__ is create:
                self.remove()
                made()

        self._kind, self._original, self._create = kind, original, create
        kind.__init__ = create

    @uncompiled
    def remove(self) -> None:
        if self._kind.__init__ is self._create:
            self._kind.__init__ = self._original


class _StepHook:
    """Calls ``stepped`` after each step of any optimizer, until ``remove``, which ``stepped`` may call."""

    def __init__(self, stepped: Callable[..., None]) -> None:
        self._handle = register_optimizer_step_post_hook(stepped)

    def remove(self) -> None:
        """Replace the hook with a function that does nothing. PyTorch may be iterating over the hooks. If the program
        has added another hook, removing ours would make PyTorch fail."""
        hooks = self._handle.hooks_dict_ref()
        if hooks is not None and self._handle.id in hooks:
            hooks[self._handle.id] = _nothing


@skipped
def _nothing(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """Do nothing."""


class _CallHook:
    """Calls ``begun`` before each call to ``module``, until ``remove``. The program does not notice the hook.

    The program may copy, save, script or graph the module, or ask whether it has hooks.
    """

    def __init__(self, module: torch.nn.Module, begun: Callable[[], None]) -> None:
        self._begun = begun
        self._module = weakref.ref(module)
        self._hooks = _WithUnseen(self._called)
        # A compiled module passes attributes on to the module that it contains, and a module may refuse new attributes.
        module.__dict__["_forward_pre_hooks"] = self._hooks

    def remove(self) -> None:
        self._hooks.unseen = None
        module = self._module()
        # Handles of hooks that the program has added refer to our dict.
        if module is not None and not self._hooks and module.__dict__.get("_forward_pre_hooks") is self._hooks:
            module.__dict__["_forward_pre_hooks"] = OrderedDict()

    @skipped
    def _called(self, module: torch.nn.Module, args: Any) -> None:
        if not is_traced():
            self._begun()


class _WithUnseen(OrderedDict[int, Any]):
    """The pre-hooks of a module. Only a call to the module sees the hook ``unseen``."""

    def __init__(self, unseen: Any) -> None:
        super().__init__()
        self.unseen = unseen

    def __bool__(self) -> bool:
        return len(self) > 0 or (self.unseen is not None and _is_module_call(sys._getframe(1)))

    def items(self) -> Any:
        own = super().items()
        if self.unseen is None or not _is_module_call(sys._getframe(1)):
            return own
        return [(_UNSEEN_ID, self.unseen), *own]

    def copy(self) -> OrderedDict[int, Any]:  # type: ignore[override]
        return OrderedDict(super().items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Pickle as an OrderedDict, so that a pickled module has the same bytes as without this class.
        return OrderedDict, (), None, None, iter(super().items())

    def __deepcopy__(self, memo: Any) -> OrderedDict[int, Any]:
        return OrderedDict(copy.deepcopy(list(super().items()), memo))


def _is_module_call(frame: FrameType) -> bool:
    """Whether ``frame`` runs PyTorch's code that calls a module with its hooks."""
    return frame.f_globals is vars(torch.nn.modules.module) and frame.f_code.co_name in ("_call_impl", "inner")


class _GlobalCallHook:
    """Like ``_CallHook``, for modules whose dict of hooks cannot be replaced: TorchScript modules, and modules with
    hooks of the program, whose handles refer to that dict. This hook is slower, because it is called for every
    module.
    """

    def __init__(self, module: torch.nn.Module, begun: Callable[[], None]) -> None:
        self._module = weakref.ref(module)
        self._begun = begun
        self._hook = GlobalHook(self._called)

    def remove(self) -> None:
        self._hook.remove()

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        if module is self._module():
            self._begun()


def is_traced() -> bool:
    """Whether PyTorch is compiling or tracing the program, or recomputing a part of it in the backward pass. A call of
    the module is then not a step."""
    compiled = torch.compiler.is_compiling()
    return compiled or torch.jit.is_tracing() or _in_backward()  # type: ignore[attr-defined, no-untyped-call]


def _in_backward() -> bool:
    """Whether this thread is running a part of a backward pass."""
    return torch._C._current_graph_task_id() != -1


def _first_of(kind: type) -> Any:
    """An object of ``kind``, or None if none exists.

    There may be a million objects. A loop in Python would be slow, and the profiler would record each of its calls.
    """
    objects: list[Any] = []
    # An audit hook of the program may forbid this.
    with suppress(Exception):
        objects = gc.get_objects()
    return next(compress(objects, map(issubclass, map(type, objects), repeat(kind))), None)
