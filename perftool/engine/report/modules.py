"""The report section on the time that modules take, and the parts of the work that the program names."""

from __future__ import annotations

from perftool.model.modules import ModuleTime, Part
from perftool.store.trace_store import TraceStore

# Ranks of one run have the same modules, so the first rank represents all.
_MODULES = """
SELECT * FROM modules WHERE rank = (SELECT min(rank) FROM modules WHERE depth > 0) ORDER BY depth = 0, path
"""

# Work on small pieces of a recording has many annotations; the largest say enough.
_ANNOTATIONS = """
SELECT annotation AS name, share FROM _annotation_work WHERE rank = (SELECT min(rank) FROM _annotation_work)
ORDER BY share DESC, name LIMIT 3
"""


def modules(store: TraceStore) -> tuple[ModuleTime, ...]:
    """The modules of the first rank that recorded any, each after the module around it; work outside modules last."""
    store.build(["modules"])
    return tuple(ModuleTime(**row) for row in store.select(_MODULES))


def annotated_work(store: TraceStore) -> tuple[Part, ...]:
    """The annotations of the program with most of the work of the first rank that has any, largest first."""
    store.build(["_annotation_work"])
    return tuple(Part(row["name"], row["share"]) for row in store.select(_ANNOTATIONS))
