"""The report section on the time that modules take."""

from __future__ import annotations

from perftool.model.modules import ModuleTime
from perftool.store.trace_store import TraceStore

# Ranks of one run have the same modules, so the first rank represents all.
_MODULES = """
SELECT * FROM modules WHERE rank = (SELECT min(rank) FROM modules WHERE depth > 0) ORDER BY depth = 0, path
"""


def modules(store: TraceStore) -> tuple[ModuleTime, ...]:
    """The modules of the first rank that recorded any, each after the module around it; work outside modules last."""
    store.build(["modules"])
    return tuple(ModuleTime(**row) for row in store.select(_MODULES))
