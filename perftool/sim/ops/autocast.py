"""Implements ``torch.autocast("hpu")`` with Gaudi's lists of ops, as kernels for PyTorch's dispatch key.

The lists differ from the CPU's: softmax, norms, matmuls and means run in the lower precision, losses and embeddings in
fp32. As in the bridge, casts are not cached, so every call casts its arguments again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import library

from perftool.model.hpu_bridge import hpu_bridge
from perftool.sim.ops.op_work import leaves
from perftool.sim.patches import attribute

_KEY: Any = torch._C._dispatch_key_parse("AutocastHPU")
_KEYS = torch._C.DispatchKeySet(_KEY)
# For each list, the variables that can name a file to replace it. The second variable is the older name.
LOWER_VARIABLES = ("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "LOWER_LIST")
FP32_VARIABLES = ("PT_HPU_AUTOCAST_FP32_OPS_LIST", "FP32_LIST")

_Policy = Callable[[Sequence[torch.Tensor]], tuple[torch.dtype, bool]]


class HpuAutocast:
    """Casts the arguments of listed ops while autocast for ``hpu`` is on.

    ``on_device`` returns whether a tensor is on the simulated device; ``note`` is called with problems in the settings.
    The lists are read when autocast is first switched on, so that a script can set the variables that name lists before
    that.
    """

    def __init__(self, on_device: Callable[[torch.Tensor], bool], note: Callable[[str], object]) -> None:
        self._on_device = on_device
        self._note = note
        self._libraries: list[Any] = []

    @contextmanager
    def available(self) -> Iterator[None]:
        """Within the block, ``torch.autocast("hpu")`` works for tensors on the simulated device."""
        plain = torch.set_autocast_enabled

        def switch(*args: Any) -> None:
            """Register the casts at the first call for ``hpu``, then call ``torch.set_autocast_enabled``."""
            if "hpu" in args and not self._libraries:
                self._install()
            plain(*args)

        with ExitStack() as stack:
            stack.callback(self._remove)
            stack.enter_context(attribute(torch, "set_autocast_enabled", switch))
            # The tensors are CPU tensors, which do not have this dispatch key.
            stack.enter_context(torch._C._IncludeDispatchKeyGuard(_KEY))
            yield

    def _install(self) -> None:
        new: Any = library.Library
        rest, ops = (new(namespace, "IMPL", _KEY.name) for namespace in ("_", "aten"))
        self._libraries = [rest, ops]
        rest.fallback(library.fallthrough_kernel)
        for name, policy in self._policies().items():
            for op in _forms(name):
                ops.impl(op.name(), self._kernel(op, policy))

    def _remove(self) -> None:
        for each in self._libraries:
            each._destroy()
        self._libraries = []

    def _policies(self) -> dict[str, _Policy]:
        """Return the policy for each op. If an op is in several lists, the lower precision wins, then fp32."""
        facts = hpu_bridge()
        policies: dict[str, _Policy] = dict.fromkeys(facts.autocast_promote, _widest)
        policies |= dict.fromkeys(self._listed(FP32_VARIABLES, facts.autocast_fp32), _fp32)
        for name in self._listed(LOWER_VARIABLES, facts.autocast_lower):
            policies[name] = _lower_first if name in facts.autocast_lower_first else _lower
        return policies

    def _listed(self, variables: tuple[str, ...], default: frozenset[str]) -> frozenset[str]:
        """Read a list of ops, one per line, from the file that a variable names; return the default if none is set."""
        variable = next((each for each in variables if each in os.environ), None)
        if variable is None:
            return default
        path = os.environ[variable]
        try:
            return frozenset(Path(path).read_text(encoding="utf-8").split("\n"))
        except (OSError, UnicodeDecodeError):
            self._note(f"{variable} names {path}, which cannot be read: autocast uses its default list")
            return default

    def _kernel(self, op: Any, policy: _Policy) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            """Call ``op`` with cast arguments, without nested casts."""
            dtype, only_first = policy([each for each in leaves((args, kwargs)) if self._eligible(each)])
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                if only_first:
                    return op(self._cast(args[0], dtype), *args[1:], **kwargs)
                cast = {name: self._cast(value, dtype) for name, value in kwargs.items()}
                return op(*(self._cast(each, dtype) for each in args), **cast)

        return kernel

    def _cast(self, argument: Any, dtype: torch.dtype) -> Any:
        if isinstance(argument, (list, tuple)):
            return [self._cast(each, dtype) for each in argument]
        return argument.to(dtype) if self._eligible(argument) and argument.dtype is not dtype else argument

    def _eligible(self, argument: Any) -> bool:
        """Whether autocast casts ``argument``: floating-point tensors on the device, except double precision."""
        if not isinstance(argument, torch.Tensor) or argument.dtype is torch.float64:
            return False
        return argument.is_floating_point() and self._on_device(argument)


@contextmanager
def without_autocast() -> Iterator[None]:
    """Within the block, autocast is off."""
    with torch._C._ExcludeDispatchKeyGuard(_KEYS):
        yield


def _forms(name: str) -> list[Any]:
    """Return the overloads of an op that autocast covers: those that return new tensors."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return []
    forms = [getattr(packet, overload) for overload in packet.overloads()]
    return [op for op in forms if not any(each.alias_info for each in op._schema.arguments)]


def _lower(inputs: Sequence[torch.Tensor]) -> tuple[torch.dtype, bool]:
    return torch.get_autocast_dtype("hpu"), False


def _lower_first(inputs: Sequence[torch.Tensor]) -> tuple[torch.dtype, bool]:
    """Return the lower type, and that only the first argument is cast: weights and statistics of norms are not."""
    return torch.get_autocast_dtype("hpu"), True


def _fp32(inputs: Sequence[torch.Tensor]) -> tuple[torch.dtype, bool]:
    return torch.float32, False


def _widest(inputs: Sequence[torch.Tensor]) -> tuple[torch.dtype, bool]:
    wide = any(each.dtype is torch.float32 for each in inputs)
    return torch.float32 if wide else torch.get_autocast_dtype("hpu"), False
