"""What the memory of a device contains at the peak."""

from __future__ import annotations

from dataclasses import dataclass

from perftool.units import format_bytes

_HOST = "host memory"


@dataclass(frozen=True)
class MemoryUse:
    """The memory that one kind of block takes when the memory of ``device`` on ``rank`` is at its peak (``ts_ns``).

    ``count`` is None for blocks allocated before the recording. ``makers`` lists the ops that allocated the most.
    ``allocated`` is all memory allocated at the peak, and ``reserved`` is what the allocator holds at that time (None
    if unknown).
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
        """The totals at the peak as text. For the host, PyTorch reports only memory allocated during the recording."""
        held = "" if self.reserved is None else f", {format_bytes(self.reserved)} reserved"
        since = " since the recording began" if self.device == _HOST else ""
        return f"{format_bytes(self.allocated)} allocated{since}{held}"


def memory_place(device_type: int | None, device: int | None) -> str:
    """Return the name of the memory of a device; 0 is PyTorch's device type for the host."""
    return f"device {device or 0}" if device_type and device_type > 0 else _HOST
