"""Which implementation of a fused op runs on which device, and why.

Every op module registers its implementations when it is imported. Four names are known, tried in this order:

| name | what it is |
|---|---|
| `habana` | the native class or op of `habana_frameworks` |
| `fast` | the fast path of the device: private `torch._fused_*` kernels, tiled or sorted algorithms |
| `fallback` | the second stage: the same work through public PyTorch functions only |
| `reference` | the plain form in `perftool.fused.reference`: always usable, never fast |

The automatic choice is the first of them that is usable. A choice made by the caller, or by the variable
`PERFTOOL_FUSED_BACKEND` of the environment, is never replaced: it runs, or `BackendError` says why it cannot.

The variable is read when an op runs, but by an optimizer before its first step alone.

A fifth, `native`, is compiled on this machine and therefore only taken when it is asked for. It is a wish: where it
cannot be had, a warning says why, once, and the automatic choice runs.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perftool.errors import PerfToolError

PREFERENCE = ("habana", "fast", "fallback", "reference")
NATIVE = "native"
ANY_DEVICE = ("*",)
ENVIRONMENT_VARIABLE = "PERFTOOL_FUSED_BACKEND"


class BackendError(PerfToolError):
    """An implementation that was asked for by name cannot run here; the text says why."""


@dataclass(frozen=True)
class Implementation:
    """One way to run an op: on which device types, and `available()`, which is None or the reason why not."""

    op: str
    name: str
    devices: tuple[str, ...]
    available: Callable[[], str | None]

    def obstacle(self, device_type: str) -> str | None:
        """None when usable for tensors on `device_type`, else the reason why not."""
        if self.devices != ANY_DEVICE and device_type not in self.devices:
            return f"runs on {', '.join(self.devices)}, not on {device_type}"
        return self.available()


@dataclass(frozen=True)
class Choice:
    """The implementation that runs, and the reason it was taken."""

    op: str
    name: str
    reason: str


@dataclass(frozen=True)
class Candidate:
    """One registered implementation; `obstacle` is None when it is usable."""

    name: str
    obstacle: str | None


@dataclass(frozen=True)
class BackendReport:
    """What an op uses on a device, why, and all it could have used in order of preference."""

    op: str
    device: str
    chosen: str
    why: str
    candidates: tuple[Candidate, ...]


_registry: dict[str, list[Implementation]] = {}
_first_choices: dict[tuple[str, str], Choice] = {}
_native_choices: dict[tuple[str, str], Choice] = {}
_said: set[str] = set()
_generation = 0


def always() -> None:
    """`available` of an implementation that needs nothing."""


def register(implementation: Implementation) -> Implementation:
    """Add an implementation, or replace the one of the same op, name and devices; returns it."""
    if implementation.name not in (*PREFERENCE, NATIVE):
        raise ValueError(f"{implementation.name!r} is none of {', '.join((*PREFERENCE, NATIVE))}")
    known = _registry.setdefault(implementation.op, [])
    known[:] = [each for each in known if (each.name, each.devices) != (implementation.name, implementation.devices)]
    known.append(implementation)
    forget_choices()
    return implementation


def forget_choices() -> None:
    """Look at all implementations again; a choice among them costs an op of few tokens a noticeable time."""
    global _generation
    _generation += 1
    _first_choices.clear()
    _native_choices.clear()


def generation() -> int:
    """A number that changes when choices are forgotten, for those who remember theirs."""
    return _generation


def candidates(op: str, device_type: str) -> tuple[Candidate, ...]:
    """The names under which an op is registered in order of preference, with what keeps each from running."""
    return tuple(_candidates(op, device_type))


def _candidates(op: str, device_type: str) -> Iterator[Candidate]:
    for name in PREFERENCE:
        named = [each for each in _registry.get(op, []) if each.name == name]
        if named:
            yield Candidate(name, _obstacle(named, device_type))


def _obstacle(named: list[Implementation], device_type: str) -> str | None:
    reasons = [implementation.obstacle(device_type) for implementation in named]
    return None if None in reasons else "; ".join(reason for reason in reasons if reason)


def choose(op: str, device_type: str, requested: str | None = None) -> Choice:
    """The implementation of `op` for tensors on `device_type`.

    `requested`, or else the environment variable, is an explicit choice: if it is unknown or not usable,
    BackendError tells the reason; `native` alone is replaced, with a warning. Without a choice the first usable
    implementation is taken.
    """
    wanted = requested or os.environ.get(ENVIRONMENT_VARIABLE) or None
    if wanted is None:
        return _automatic(op, device_type)
    if wanted == NATIVE:
        if (op, device_type) not in _native_choices:
            _native_choices[op, device_type] = _native_or_automatic(op, device_type)
        return _native_choices[op, device_type]
    by_name = {candidate.name: candidate.obstacle for candidate in candidates(op, device_type)}
    if wanted not in by_name:
        raise BackendError(f"{op} has no implementation {wanted!r}; it has {', '.join(by_name) or 'none'}.")
    if (obstacle := by_name[wanted]) is not None:
        raise BackendError(f"{op} cannot use {wanted!r}: {obstacle}.")
    source = "asked for by the caller" if requested else f"asked for by {ENVIRONMENT_VARIABLE}"
    return Choice(op, wanted, source)


def _automatic(op: str, device_type: str) -> Choice:
    if (op, device_type) not in _first_choices:
        _first_choices[op, device_type] = _first_usable(op, device_type, _candidates(op, device_type))
    return _first_choices[op, device_type]


def _native_or_automatic(op: str, device_type: str) -> Choice:
    named = [each for each in _registry.get(op, []) if each.name == NATIVE]
    if not named:  # an op without native kernels, when the environment asks all ops for them
        return _automatic(op, device_type)
    obstacle = _obstacle(named, device_type)
    if obstacle is None:
        return Choice(op, NATIVE, "asked for")
    choice = _automatic(op, device_type)
    if obstacle not in _said and choice.name != "habana":
        _said.add(obstacle)
        warnings.warn(f"{op} runs {choice.name!r} instead of {NATIVE!r}: {obstacle}.", stacklevel=5)
    return Choice(op, choice.name, f"{NATIVE}: {obstacle}")


def _first_usable(op: str, device_type: str, tried: Iterable[Candidate]) -> Choice:
    passed_over: list[str] = []
    for candidate in tried:
        if candidate.obstacle is None:
            return Choice(op, candidate.name, "; ".join(passed_over) or "first in the order of preference")
        passed_over.append(f"{candidate.name}: {candidate.obstacle}")
    raise BackendError(f"{op} has no usable implementation on {device_type} ({'; '.join(passed_over)}).")


def backends(device_types: Iterable[str] | None = None) -> tuple[BackendReport, ...]:
    """What every op uses and why, sorted by op, then device.

    `device_types` defaults to the devices of this machine: `cpu`, and `cuda` or `hpu` where present.
    An explicit choice that cannot run is reported as chosen `none`, with the reason.
    """
    package = importlib.import_module("perftool.fused")
    for name in package.__all__:
        getattr(package, name)  # an op registers itself when its module is imported
    devices = tuple(device_types) if device_types is not None else _present_devices()
    return tuple(_report(op, device) for op in sorted(_registry) for device in devices)


def _report(op: str, device: str) -> BackendReport:
    tried = candidates(op, device)
    try:
        choice = choose(op, device)
    except BackendError as error:
        return BackendReport(op, device, "none", str(error), tried)
    return BackendReport(op, device, choice.name, choice.reason, tried)


def _present_devices() -> tuple[str, ...]:
    import torch

    present = ["cpu"]
    if torch.cuda.is_available():
        present.append("cuda")
    if native_obstacle("hpu", "is_available") is None and native("hpu", "is_available")():
        present.append("hpu")
    return tuple(present)


def native(module: str, name: str) -> Any:
    """`habana_frameworks.torch.<module>.<name>`; ImportError or AttributeError without it.

    A module that stands in for Gaudi's, as ported and simulated scripts get it, is not native: it leads back here.
    """
    found = importlib.import_module(f"habana_frameworks.torch.{module}")
    if "__stands_in__" in vars(found):
        raise ImportError("habana_frameworks is a stand-in here")
    return getattr(found, name)


def native_obstacle(module: str, name: str) -> str | None:
    """None when `habana_frameworks.torch.<module>.<name>` can be imported, else the reason why not."""
    try:
        native(module, name)
    except (ImportError, AttributeError) as error:
        return str(error)
    return None


def register_native(op: str, module: str, name: str) -> Implementation:
    """Register the Gaudi class or function of an op; it is imported when it is first considered on an hpu."""
    return register(Implementation(op, "habana", ("hpu",), lambda: native_obstacle(module, name)))
