"""Translates the device `hpu` in torch calls to the device that replaces it."""

from __future__ import annotations

import multiprocessing.spawn
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Call = Callable[..., Any]


class DeviceRemap(TorchFunctionMode):
    """Replaces `hpu` with another device in the arguments of torch's operators."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func` with every `hpu` in its arguments replaced."""
        options = {name: self.translated(value) for name, value in (kwargs or {}).items()}
        result = func(*map(self.translated, args), **options)
        if func is torch.device and self._device == "cpu" and any(map(_is_hpu, (*args, *(kwargs or {}).values()))):
            return torch.device("cpu")  # torch.load does not accept `cpu:0`
        return result

    def translated(self, value: Any) -> Any:
        """Return the device that replaces `value`; values other than `hpu` devices are unchanged."""
        if not _is_hpu(value):
            return value
        name = "cpu" if self._device == "cpu" else str(value).replace("hpu", self._device, 1)
        return name if isinstance(value, str) else torch.device(name)


def _is_hpu(value: Any) -> bool:
    if isinstance(value, str):
        return value == "hpu" or value.startswith("hpu:")
    return isinstance(value, torch.device) and value.type == "hpu"


def enter(device: str) -> None:
    """Replace `hpu` with `device` from now on, in this thread and in threads and processes that it starts, including in
    functions of torch that are not operators.
    """
    here = DeviceRemap(device)
    here.__enter__()  # type: ignore[no-untyped-call]
    _replace_past_operators(here, device)
    _follow_into_threads(device)
    _follow_into_processes(device)
    _replace_groups("nccl" if device == "cuda" else "gloo", device)


def _replace_past_operators(here: DeviceRemap, device: str) -> None:
    """Replace the torch functions that accept devices but bypass torch's modes."""
    autocast: Any = torch.amp.autocast_mode.autocast
    autocast.__init__ = _autocast(autocast.__init__, device)
    tensor: Any = torch.Tensor
    tensor.hpu = torch.nn.Module.hpu = lambda self, *args, **options: self.to(device)  # type: ignore[attr-defined]
    tensor.is_hpu = property(lambda self: self.device.type == device)
    torch.random.fork_rng = _forking(torch.random.fork_rng, device)
    _follow_into_backward(device)
    for owner, name in ((torch, "load"), (torch, "set_default_device"), (torch, "get_autocast_dtype")):
        setattr(owner, name, _translating(getattr(owner, name), here))
    torch.is_autocast_enabled = _translating(torch.is_autocast_enabled, here)
    torch.compile = _compile(torch.compile, device)
    profile: Any = torch.profiler.profile
    profile.__init__ = _profile(profile.__init__, device)


def _translating(function: Call, here: DeviceRemap) -> Call:
    """Wrap `function` to translate devices in its arguments, including those in a dictionary such as `map_location`."""

    def device(value: Any) -> Any:
        if isinstance(value, dict):
            return {here.translated(key): here.translated(each) for key, each in value.items()}
        return here.translated(value)

    @wraps(function)
    def translating(*args: Any, **options: Any) -> Any:
        return function(*map(device, args), **{name: device(value) for name, value in options.items()})

    return translating


def _autocast(begin: Call, device: str) -> Call:
    def __init__(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **options: Any) -> None:
        if device_type == "hpu":
            # Gaudi's default is bfloat16, CUDA's float16.
            device_type, dtype = device, dtype or torch.bfloat16
        begin(self, device_type, dtype, *args, **options)

    return __init__


def _compile(plain: Call, device: str) -> Call:
    @wraps(plain)
    def compile(*args: Any, **options: Any) -> Any:
        """Like torch.compile, but Gaudi's backend becomes inductor on CUDA, and plain PyTorch on the CPU."""
        if options.get("backend") == "hpu_backend":
            options = {**options, "backend": "inductor" if device == "cuda" else "eager", "options": None}
        return plain(*args, **options)

    return compile


def _forking(plain: Call, device: str) -> Call:
    @wraps(plain)
    def fork_rng(devices: Any = None, *args: Any, device_type: str = "cuda", **options: Any) -> Any:
        """Like torch.random.fork_rng, which always preserves the CPU generator's state."""
        if device_type == "hpu":
            device_type, devices = "cuda", devices if device == "cuda" else ()
        return plain(devices, *args, device_type=device_type, **options)

    return fork_rng


def _follow_into_backward(device: str) -> None:
    """Also replace devices inside `backward`, where the script's functions run without a mode."""
    autograd: Any = torch.autograd
    plain = autograd._engine_run_backward

    @wraps(plain)
    def run_backward(*args: Any, **options: Any) -> Any:
        with DeviceRemap(device):
            return plain(*args, **options)

    autograd._engine_run_backward = run_backward


def _profile(begin: Call, device: str) -> Call:
    known = torch.profiler.ProfilerActivity
    instead = {known.HPU: known.CUDA if device == "cuda" else known.CPU}

    def __init__(self: Any, *args: Any, activities: Any = None, **options: Any) -> None:
        if activities is not None:
            activities = {instead.get(each, each) for each in activities}
        begin(self, *args, activities=activities, **options)

    return __init__


def _follow_into_threads(device: str) -> None:
    """Also replace devices in new threads, because a mode belongs to one thread."""
    start = threading.Thread.start

    @wraps(start)
    def start_elsewhere(self: threading.Thread) -> None:
        run = self.run

        def run_elsewhere() -> None:
            with DeviceRemap(device):
                run()

        self.run = run_elsewhere  # type: ignore[method-assign]
        start(self)

    threading.Thread.start = start_elsewhere  # type: ignore[method-assign]


def _follow_into_processes(device: str) -> None:
    """Also replace devices in spawned processes, which import the script again."""
    plain = multiprocessing.spawn.get_command_line

    @wraps(plain)
    def get_command_line(**options: Any) -> list[str]:
        line: list[str] = plain(**options)
        if "-c" in line:
            program = line.index("-c") + 1
            line[program] = f"from perftool.fused import install; install({device!r}); {line[program]}"
        return line

    multiprocessing.spawn.get_command_line = get_command_line


def _replace_groups(own: str, device: str) -> None:
    """Replace process groups that use `hccl` with process groups for the device."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    for name in ("init_process_group", "new_group"):
        plain = getattr(distributed, name)

        @wraps(plain)
        def begin(*args: Any, plain: Call = plain, **options: Any) -> Any:
            translated = [_backend(value, own, device) for value in args]
            return plain(*translated, **{key: _backend(value, own, device) for key, value in options.items()})

        setattr(distributed, name, begin)


def _backend(value: Any, own: str, device: str) -> Any:
    """Replace `hccl` in the backend `value`, including in forms such as `cpu:gloo,hpu:hccl`."""
    if not isinstance(value, str) or "hccl" not in value:
        return value
    parts = value.replace("hpu:hccl", f"{device}:{own}").replace("hccl", own).split(",")
    return ",".join(dict.fromkeys(parts))
