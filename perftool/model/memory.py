"""What fills the memory of a device at the peak of its allocation."""

from __future__ import annotations

from dataclasses import dataclass

from perftool.units import format_bytes

_HOST = "host memory"


@dataclass(frozen=True)
class MemoryUse:
    """The memory that one kind of block takes at the peak of ``device`` of ``rank``, at ``ts_ns``.

    ``count`` is None where the blocks were made before the recording. ``makers`` lists the ops that made most of it.
    ``allocated`` is the whole peak, ``reserved`` the memory of the allocator at that time, None if unknown.
    """

    rank: int
    device: str
    ts_ns: int
    kind: str
    bytes: int
    count: int | None
    makers: str
    allocated: int
    reserved: int | None

    @property
    def whole(self) -> str:
        """A text on the whole peak. PyTorch does not report host memory allocated before the recording."""
        held = "" if self.reserved is None else f", {format_bytes(self.reserved)} reserved"
        since = " since the recording began" if self.device == _HOST else ""
        return f"{format_bytes(self.allocated)} allocated{since}{held}"


def memory_place(device_type: int | None, device: int | None) -> str:
    """The name of the memory of a device; 0 is PyTorch's device type for the host."""
    return f"device {device or 0}" if device_type and device_type > 0 else _HOST
