"""Tracks which storages are on the simulated device; in reality, all storages are in host memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_SWEEP_AT_LEAST = 4096


@dataclass
class DeviceStorage:
    """A storage on the device. ``node`` is the node that wrote it last: its graph's serial, and its index there."""

    ref: StorageWeakRef
    serial: int
    size: int
    node: tuple[int, int] = (-1, -1)


class Placement:
    """The storages on the device, and the host storages that are pinned in the simulation."""

    def __init__(self) -> None:
        self.peak = 0
        self._storages: dict[int, DeviceStorage] = {}
        self._pinned, self._undecided = _MarkedTensors(), _MarkedTensors()
        self._serial = 0
        self._sweep_at = _SWEEP_AT_LEAST

    def put(self, tensor: torch.Tensor) -> DeviceStorage:
        """Put the storage of ``tensor`` on the simulated device."""
        found = self.find(tensor)
        if found is not None:
            return found
        storage = tensor.untyped_storage()
        self._serial += 1
        # The weak reference does not keep the memory alive, but prevents reuse of the address that identifies the
        # storage.
        entry = DeviceStorage(_weak(storage), self._serial, storage.nbytes())
        self._storages[storage._cdata] = entry
        if len(self._storages) >= self._sweep_at:
            self._sweep()
        return entry

    def find(self, tensor: torch.Tensor) -> DeviceStorage | None:
        """Return the record of the storage of ``tensor``, or None if it is on the host."""
        if not self._storages or tensor.layout is not torch.strided:
            return None
        entry = self._storages.get(tensor.untyped_storage()._cdata)
        return entry if entry is not None and not _is_freed(entry.ref) else None

    def forget(self, tensor: torch.Tensor) -> None:
        """Put the storage of ``tensor`` on the host."""
        self._storages.pop(tensor.untyped_storage()._cdata, None)

    def pin(self, tensor: torch.Tensor) -> None:
        """Mark a host tensor as pinned."""
        self._pinned.add(tensor)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a host tensor is pinned in the simulation."""
        return tensor in self._pinned

    def leave_open(self, tensor: torch.Tensor) -> None:
        """Mark a host tensor that PyTorch created; it moves to the device if a device tensor is copied into it."""
        self._undecided.add(tensor)

    def is_open(self, tensor: torch.Tensor) -> bool:
        """Whether PyTorch created this host tensor, so that it may be on the device on a real Gaudi."""
        return tensor in self._undecided

    def allocated(self) -> int:
        """Return the number of bytes that are on the device now."""
        self._sweep()
        return sum(entry.size for entry in self._storages.values())

    def count(self) -> int:
        """Return the number of storages that are on the device now."""
        self._sweep()
        return len(self._storages)

    def _sweep(self) -> None:
        self._storages = {key: entry for key, entry in self._storages.items() if not _is_freed(entry.ref)}
        self._pinned.sweep()
        self._undecided.sweep()
        self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._storages))
        self.peak = max(self.peak, sum(entry.size for entry in self._storages.values()))


class _MarkedTensors:
    """The live tensors whose storages are marked."""

    def __init__(self) -> None:
        self._refs: dict[int, StorageWeakRef] = {}

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._refs[storage._cdata] = _weak(storage)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        ref = self._refs.get(tensor.untyped_storage()._cdata)
        return ref is not None and not _is_freed(ref)

    def sweep(self) -> None:
        self._refs = {key: ref for key, ref in self._refs.items() if not _is_freed(ref)}


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_freed(ref: StorageWeakRef) -> bool:
    return bool(ref.expired())  # type: ignore[no-untyped-call]
