"""The report section on what fills the memory at its peak."""

from __future__ import annotations

from typing import Any

from perftool.model.memory import MemoryUse, memory_place
from perftool.store.trace_store import TraceStore

# Only the rank with the highest peak is shown, because the ranks of a run use their memory in similar ways. If the
# input is corrupt, the stated total may be smaller than the sum of the blocks.
_USES = """
SELECT rank, device_type, device, ts AS ts_ns, kind, bytes, count, makers,
       greatest(allocated, sum(bytes) OVER ())::BIGINT AS allocated, reserved
FROM _memory_uses WHERE rank = (SELECT arg_max(rank, (allocated, -rank)) FROM _memory_uses) AND bytes > 0
ORDER BY bytes DESC, kind
"""


def memory_uses(store: TraceStore) -> tuple[MemoryUse, ...]:
    """Return the memory in use at the highest peak of any rank, largest kind first. The result is empty if there are no
    memory events.
    """
    store.build(["_memory_uses"])
    return tuple(_use(**row) for row in store.select(_USES))


def _use(device_type: int, device: int, **row: Any) -> MemoryUse:
    return MemoryUse(device=memory_place(device_type, device), **row)
