"""Selects the implementation of a fused op on each device, and explains the choice.

Every op module registers its implementations when it is imported: `habana` is Gaudi's own, `fast` PyTorch's, and
`reference` the plain form. The first usable one runs. If the environment variable `PERFTOOL_FUSED_BACKEND` has one of
these names when this module is imported, that implementation runs, or `BackendError` says why it cannot.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from perftool.errors import PerfToolError
from perftool.fused import NAMES

PREFERENCE = ("habana", "fast", "reference")
ANY_DEVICE = ("*",)
ENVIRONMENT_VARIABLE = "PERFTOOL_FUSED_BACKEND"
_PLACE = {name: place for (_, place), names in NAMES.items() for name in names}


class BackendError(PerfToolError):
    """No implementation can run here, or the environment selects an implementation that cannot; the message says
    why.
    """


@dataclass(frozen=True)
class BackendReport:
    """The implementation of an op on a device, and why it was chosen; `obstacles` is the result of `candidates`."""

    op: str
    device: str
    chosen: str
    why: str
    obstacles: dict[str, str | None]


wanted = os.environ.get(ENVIRONMENT_VARIABLE)
"""The value of the environment variable. It is read only once, because reading it in each call would slow down
attention over one token by 1 %. The simulator overwrites it."""

_registry: dict[str, dict[tuple[str, tuple[str, ...]], Callable[[], str | None]]] = {}
_choices: dict[tuple[str, str, str | None], str] = {}


def register(
    op: str, name: str, devices: tuple[str, ...] = ANY_DEVICE, obstacle: Callable[[], str | None] = lambda: None
) -> None:
    """Register an op's implementation for some device types. `obstacle()` returns why it cannot run here, or None."""
    _registry.setdefault(op, {})[name, devices] = obstacle
    _choices.clear()


def candidates(op: str, device_type: str) -> dict[str, str | None]:
    """Return an op's implementations in order of preference, each with the reason why it cannot be used, or None."""
    found: dict[str, str | None] = {}
    for name in PREFERENCE:
        ways = [(devices, obstacle) for (each, devices), obstacle in _registry.get(op, {}).items() if each == name]
        reasons = [_reason(device_type, *way) for way in ways]
        if reasons:
            found[name] = None if None in reasons else "; ".join(filter(None, reasons))
    return found


def _reason(device_type: str, devices: tuple[str, ...], obstacle: Callable[[], str | None]) -> str | None:
    if devices != ANY_DEVICE and device_type not in devices:
        return f"runs on {', '.join(devices)}, not on {device_type}"
    return obstacle()


def choose(op: str, device_type: str) -> str:
    """Return the name of the implementation of `op` on a device type. Raise BackendError if none can run, or if the
    environment selects an implementation that cannot."""
    key = op, device_type, wanted
    if key not in _choices:
        _choices[key] = _chosen(op, device_type)[0]
    return _choices[key]


def _chosen(op: str, device_type: str) -> tuple[str, str]:
    """Return the name of the implementation of `op` to use, and the reason. Raise BackendError like `choose`."""
    obstacles = candidates(op, device_type)
    if not wanted:
        passed_over: list[str] = []
        for name, obstacle in obstacles.items():
            if obstacle is None:
                return name, "; ".join(passed_over) or "first in the order of preference"
            passed_over.append(f"{name}: {obstacle}")
        raise BackendError(f"{op} has no usable implementation on {device_type} ({'; '.join(passed_over)}).")
    if wanted not in obstacles:
        raise BackendError(f"{op} has no implementation {wanted!r}; it has {', '.join(obstacles) or 'none'}.")
    if (obstacle := obstacles[wanted]) is not None:
        raise BackendError(f"{op} cannot use {wanted!r}: {obstacle}.")
    return wanted, f"asked for by {ENVIRONMENT_VARIABLE}"


def backends(device_types: Iterable[str] | None = None) -> tuple[BackendReport, ...]:
    """Return the chosen implementation of every op and the reason for the choice, sorted by op and device type. By
    default, the device types are those of this machine.

    If no implementation can run, or the environment selects an implementation that cannot, `chosen` is `none`.
    """
    import torch

    package = importlib.import_module("perftool.fused")
    for name in package.__all__:
        getattr(package, name)  # imports the module, which registers the op
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "hpu": has_gaudi()}
    devices = tuple(device_types or (name for name, here in present.items() if here))
    return tuple(_report(op, device) for op in sorted(_registry) for device in devices)


def _report(op: str, device: str) -> BackendReport:
    try:
        name, reason = _chosen(op, device)
    except BackendError as error:
        name, reason = "none", str(error)
    return BackendReport(op, device, name, reason, candidates(op, device))


def has_gaudi() -> bool:
    """Whether this machine has an `hpu`."""
    return native_obstacle("hpu", "is_available") is None and bool(native("hpu", "is_available")())


def native(module: str, name: str) -> Any:
    """Import `habana_frameworks.torch.<module>.<name>`. Raise ImportError or AttributeError if it is missing.

    The stub modules of ported and simulated scripts are not native.
    """
    found = importlib.import_module(f"habana_frameworks.torch.{module}")
    if "__stands_in__" in vars(found):
        raise ImportError("habana_frameworks is a stub here")
    return getattr(found, name)


def native_obstacle(module: str, name: str) -> str | None:
    """Return why `habana_frameworks.torch.<module>.<name>` cannot be imported, or None if it can."""
    try:
        native(module, name)
    except (ImportError, AttributeError) as error:
        return str(error)
    return None


def native_op(op: str) -> Any:
    """Return Gaudi's class for a public name. Raise ImportError or AttributeError if it is missing."""
    return native(_PLACE[op], op)


def register_native(op: str, module: str | None = None) -> None:
    """Register Gaudi's class for `op`, imported on first use. Pass `module` if the op has no public name."""
    place, name = module or _PLACE[op], op.rpartition(".")[2]
    register(op, "habana", ("hpu",), lambda: native_obstacle(place, name))


def register_everywhere(op: str, obstacle: Callable[[], str | None] | None = None) -> None:
    """Register an op's three implementations: Gaudi's own, usable unless `obstacle()` returns a reason (by default, if
    its class can be imported), and `fast` and `reference` for every device."""
    if obstacle is None:
        register_native(op)
    else:
        register(op, "habana", ("hpu",), obstacle)
    for name in ("fast", "reference"):
        register(op, name)
