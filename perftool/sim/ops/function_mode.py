"""Simulates the device ``hpu``: tensors report it, and copies between host and device are intercepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import _device

from perftool.sim.ops.dispatch_mode import DispatchMode
from perftool.sim.ops.op_work import size, tensors

HPU = torch.device("hpu", 0)
_CPU = torch.device("cpu")
# Functions that copy host data to the device in their arguments.
_FROM_HOST = frozenset({"tensor", "as_tensor", "asarray", "scalar_tensor", "sparse_coo_tensor"})
_NO_NUMPY = "can't convert hpu:0 device type tensor to numpy. Use Tensor.cpu() to copy it to host memory first."


class FunctionMode(TorchFunctionMode):
    """Translates devices in the arguments and results of PyTorch's functions."""

    def __init__(self, dispatch: DispatchMode) -> None:
        super().__init__()
        self._dispatch = dispatch
        self._placement = dispatch.placement
        self.active = True
        tensor: Any = torch.Tensor
        self._special: dict[Any, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {
            tensor.device.__get__: self._device,
            tensor.to: self._to,
            tensor.cpu: self._cpu,
            tensor.pin_memory: self._pin,
            tensor.is_pinned: self._is_pinned,
            tensor.numpy: self._numpy,
            tensor.__array__: self._numpy,
            tensor.tolist: self._shown,
            tensor.__repr__: self._shown,
            tensor.is_cpu.__get__: self._is_cpu,
            tensor.get_device: self._index,
            torch.lstm: _without_onednn,
            torch._pad_packed_sequence: self._padded,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` with ``hpu`` replaced by the CPU, and account for what a Gaudi would do."""
        kwargs = kwargs or {}
        if not self.active:
            return func(*args, **kwargs)
        try:
            special = self._special.get(func)
        except TypeError:
            special = None
        if special is not None:
            return special(func, args, kwargs)
        makes = func in _device._device_constructors()
        if makes and kwargs.get("device") is None and is_hpu(_device.CURRENT_DEVICE):
            kwargs = {**kwargs, "device": HPU}
        if is_hpu(kwargs.get("device")):
            return self._on_device(func, args, {**kwargs, "device": _CPU})
        return self._make(func, args, kwargs) if makes else func(*args, **kwargs)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Activate the mode within the block, unless it is already active."""
        if self in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
            yield
            return
        with self:
            yield

    def _make(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``func``, and note that the script itself is creating a tensor on the host."""
        before, self._dispatch.making = self._dispatch.making, True
        try:
            return func(*args, **kwargs)
        finally:
            self._dispatch.making = before

    def _on_device(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(func, "__name__", "") in _FROM_HOST:
            return self._move(func(*args, **kwargs), False)
        with self._dispatch.creating_on_device():
            result = func(*args, **kwargs)
        for each in tensors(result):
            self._placement.put(each)
        return result

    def _device(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return HPU if self._placement.find(args[0]) is not None else func(*args, **kwargs)

    def _is_cpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._placement.find(args[0]) is None and func(*args, **kwargs)

    def _index(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return 0 if self._placement.find(args[0]) is not None else func(*args, **kwargs)

    def _to(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target: Any = kwargs.get("device", args[1] if len(args) > 1 else None)
        source = args[0]
        if isinstance(target, torch.Tensor):
            kwargs = {"dtype": target.dtype}
            target = HPU if self._placement.find(target) is not None else _CPU
            args = (source, target)
        inside = self._placement.find(source) is not None
        if not isinstance(target, (str, torch.device, int)):
            return func(*args, **kwargs)
        args = (source, *(_CPU if is_hpu(each) else each for each in args[1:]))
        kwargs = {**kwargs, "device": _CPU} if "device" in kwargs else kwargs
        if is_hpu(target) and not inside:
            non_blocking = bool(kwargs.get("non_blocking", len(args) > 3 and args[3]))
            return self._move(func(*args, **kwargs), non_blocking, source)
        if not is_hpu(target) and inside:
            return self._fetch(source, lambda: func(*args, **kwargs))
        return func(*args, **kwargs)

    def _cpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._placement.find(args[0]) is None:
            return func(*args, **kwargs)
        return self._fetch(args[0], lambda: func(*args, **kwargs))

    def _move(self, converted: torch.Tensor, non_blocking: bool, source: torch.Tensor | None = None) -> torch.Tensor:
        """Return a copy of ``converted`` on the simulated device."""
        origin = converted if source is None else source
        self._dispatch.copy_in(origin, non_blocking)
        with self._dispatch.handing_to(_ignore):
            # ``to`` may have returned the source itself.
            moved = converted.clone() if source is None or converted is source else converted
        self._placement.put(moved)
        return moved

    def _fetch(self, source: torch.Tensor, convert: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return a copy of ``source`` on the host."""
        self._dispatch.copy_out(source)
        with self._dispatch.handing_to(_ignore):
            fetched = convert()
            return fetched.clone() if self._placement.find(fetched) is not None else fetched

    def _padded(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._placement.find(args[0]) is None:
            return func(*args, **kwargs)
        # PyTorch creates the result on the host, because to PyTorch the packed data is also there.
        with self._dispatch.handing_to(self._dispatch.device_ops.run):
            padded, lengths = func(*args, **kwargs)
        self._placement.forget(lengths)
        return padded, lengths

    def _pin(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        pinned = args[0].clone()
        self._placement.pin(pinned)
        return pinned

    def _is_pinned(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._placement.is_pinned(args[0])

    def _numpy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._placement.find(args[0]) is not None:
            raise TypeError(_NO_NUMPY)
        return func(*args, **kwargs)

    def _shown(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._placement.find(args[0]) is None:
            return func(*args, **kwargs)
        self._dispatch.read_value("_local_scalar_dense", size(args[0]))
        with self._dispatch.handing_to(_ignore):
            return func(*args, **kwargs)


def is_hpu(device: Any) -> bool:
    """Whether a device argument means the HPU."""
    if isinstance(device, torch.device):
        return device.type == "hpu"
    return isinstance(device, str) and device.split(":")[0] == "hpu"


def _without_onednn(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``func`` as a chain of ops, as an HPU does. Whether oneDNN would use a single kernel depends on the
    processor."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        return func(*args, **kwargs)
    finally:
        torch._C._set_mkldnn_enabled(before)


def _ignore(call: Any) -> None:
    """Do not account for an op."""
