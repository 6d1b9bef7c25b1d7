"""Finds the op, module and line of each memory allocation. Processes one period of the recording at a time, with NumPy,
so that it can handle millions of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.model.own_code import innermost, is_own
from perftool.store.catalog import catalog
from perftool.store.derive import columns_of, inside_of, periods_of
from perftool.store.nesting import Nested, Nesting, Slices

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

# The roles of a slice around an allocation, as bit positions. If several slices have the same role, the innermost is
# used for the roles in _INNERMOST, and the outermost for the others.
_COMPUTING, _MODULE, _LINE, _CALL, _OP, _SETUP = range(6)
_MEANINGS = f"""
WITH caller AS (
    SELECT *, cat = 'cpu_op' AND NOT is_step(name)
              AND NOT list_has_any(roles, ['wrapper', 'autograd', 'dataloader']) AS op
    FROM _name_roles
)
SELECT name, cat,
       (op AND NOT list_contains(roles, 'bookkeeping'))::BIGINT | (list_contains(roles, 'module')::BIGINT << {_MODULE})
       | (op::BIGINT << {_OP}) | (list_contains(roles, 'module_setup')::BIGINT << {_SETUP}) AS meaning
FROM caller
"""
_INNERMOST = (_COMPUTING, _MODULE, _LINE, _CALL)
_NONE = -1
# Limit for paths and for function names, in characters.
_LONGEST = 200
# Slices without a role are left out. An allocation inside such a slice gets the roles of the slices around it.
_SLICES = """
WITH meanings AS ({meanings})
SELECT s.id, s.track, s.ts, s."end",
       coalesce(m.meaning, 0) | ((l.id IS NOT NULL)::BIGINT << {line})
       | ((f.call_line IS NOT NULL)::BIGINT << {call}) AS meaning
FROM slices AS s LEFT JOIN meanings AS m ON m.name = s.name AND m.cat = s.cat LEFT JOIN _own_lines AS l ON l.id = s.id
LEFT JOIN frames AS f ON f.id = s.id
WHERE s.side = 'host' AND s."end" >= s.ts AND s.track IN (SELECT track FROM _memory_blocks)
  AND (m.meaning > 0 OR l.id IS NOT NULL OR f.call_line IS NOT NULL)
UNION ALL
SELECT id, track, ts, ts, {event} FROM _memory_blocks WHERE track IS NOT NULL
"""
# The bit that marks a row as an allocation rather than a slice.
_ALLOCATION = 1 << (_SETUP + 1)


def place_allocations(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Create the table ``_memory_places`` from ``_memory_blocks`` and the slices around them. Return no issues."""
    connection.execute(f"CREATE TABLE {catalog()['_memory_places'].definition}")
    _find_own_lines(connection)
    rows = _SLICES.format(meanings=_MEANINGS, line=_LINE, call=_CALL, event=_ALLOCATION)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE _around AS {rows}")
    nesting, open_slices = Nesting(), _Open.none()
    for begin, until in periods_of(connection, "_around"):
        period = inside_of("ts >=", begin, until)
        slices = Slices(*columns_of(connection, f'id, track, ts, "end", meaning FROM _around WHERE {period}'))
        around = open_slices.extended(slices, nesting.add(slices, until))
        _insert(connection, around, slices.id[slices.kind == _ALLOCATION])
        open_slices = around.after(until) if until is not None else around
    connection.execute("DROP TABLE _around; DROP TABLE _own_lines")
    return ()


class _Open(NamedTuple):
    """Open slices by ascending id. Row ``r`` of ``found`` contains, for each open slice, the id of the slice that has
    role ``r`` for allocations directly inside it; -1 if there is none."""

    id: Int64s
    end: Int64s
    found: Int64s

    @classmethod
    def none(cls) -> _Open:
        import numpy as np

        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, np.zeros((_SETUP + 1, 0), dtype=np.int64))

    def extended(self, slices: Slices, nested: Nested) -> _Open:
        """Add ``slices``, whose kinds are bit masks of roles. For each role, a slice maps to itself if it has the role,
        and if the role uses the innermost slice or no slice around it has the role. Otherwise, it maps to the same
        slice as its parent."""
        import numpy as np

        known = len(self.id)
        ids = np.concatenate([self.id, slices.id])
        order = np.argsort(ids, kind="stable")
        parent = _positions(ids, order, nested.parent)
        own = [np.where(slices.kind >> bit & 1, slices.id, _NONE) for bit in range(_SETUP + 1)]
        found = np.concatenate([self.found, np.stack(own)], axis=1)
        for level in _levels(nested.depth):
            above = parent[level]
            inherited = np.where(above >= 0, found[:, above], _NONE)
            here = found[:, known + level]
            inner = np.arange(_SETUP + 1)[:, None] <= _INNERMOST[-1]
            own_first = inner & (here != _NONE) | (inherited == _NONE)
            found[:, known + level] = np.where(own_first, here, inherited)
        ends = np.concatenate([self.end, slices.end])
        return _Open(ids[order], ends[order], found[:, order])

    def after(self, until: int) -> _Open:
        """Return the slices still open at ``until``."""
        kept = self.end > until
        return _Open(self.id[kept], self.end[kept], self.found[:, kept])


def _positions(ids: Int64s, order: Int64s, wanted: Int64s) -> Int64s:
    """Return the positions of the ids ``wanted`` in ``ids``, or -1 for missing ids. ``order`` sorts ``ids``."""
    import numpy as np

    if not len(ids):
        return np.full(len(wanted), _NONE, dtype=np.int64)
    place = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[place] == wanted, place, _NONE)


def _levels(depth: Int64s) -> list[Int64s]:
    """Return the positions of the slices at each depth, from the outermost depth inwards."""
    import numpy as np

    by_depth = np.argsort(depth, kind="stable")
    return np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1) if len(depth) else []


def _insert(connection: duckdb.DuckDBPyConnection, around: _Open, allocations: Int64s) -> None:
    import numpy as np

    at = np.searchsorted(around.id, allocations)
    found = around.found[:, at]
    names = ("computing", "module", "line", "call", "op", "setup")
    arrays = {"id": allocations, **dict(zip(names, found, strict=True))}
    connection.register("_found", {name: np.ascontiguousarray(values) for name, values in arrays.items()})
    # The line of a call inside the function is more precise than the first line of the function.
    connection.execute(
        """INSERT INTO _memory_places
           SELECT f.id, coalesce(nullif(f.computing, -1), nullif(f.op, -1)), nullif(f.module, -1),
                  l.file || coalesce('(' || CASE WHEN c.ts > o.ts THEN c.call_line ELSE l.line END || ')', '')
                      || ': ' || l.function,
                  nullif(f.setup, -1)
           FROM _found AS f LEFT JOIN _own_lines AS l ON l.id = coalesce(nullif(f.line, -1), f.id)
           LEFT JOIN frames AS o ON o.id = l.id LEFT JOIN frames AS c ON c.id = f.call"""
    )
    connection.unregister("_found")


def _find_own_lines(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the table ``_own_lines``: the user's own functions, and calls whose stacks contain the user's own lines.

    In a snapshot of the allocator, the memory events themselves carry the stacks.
    """
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE _stacked AS
           SELECT id, file, line, function, stack FROM frames
           UNION ALL
           SELECT rowid, NULL, NULL, name, arg(args, 'Call stack') FROM raw
           WHERE ph IN ('i', 'I') AND name = '[memory]' AND args LIKE '%"Call stack"%'"""
    )
    calls = connection.execute("SELECT DISTINCT file, line, function, stack FROM _stacked").fetchall()
    own = []
    for file, line, function, stack in calls:
        caller = innermost(stack) if stack is not None else (file, line, function) if file and is_own(file) else None
        if caller:
            own_file, own_line, own_function = caller
            # Truncate long paths and function names, because the table repeats them for each allocation.
            shown = f"…{own_file[-_LONGEST:]}" if own_file and len(own_file) > _LONGEST else own_file
            named = f"{own_function[:_LONGEST]}…" if len(own_function) > _LONGEST else own_function
            own.append((file, line, function, stack, shown, own_line, named))
    kinds = list(zip(*own, strict=True)) or [()] * 7
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE _own_lines AS
           WITH own AS (
               SELECT unnest($1::VARCHAR[]) AS file, unnest($2::INTEGER[]) AS line, unnest($3::VARCHAR[]) AS function,
                      unnest($4::VARCHAR[]) AS stack, unnest($5::VARCHAR[]) AS own_file,
                      unnest($6::INTEGER[]) AS own_line, unnest($7::VARCHAR[]) AS own_function)
           SELECT f.id, o.own_file AS file, o.own_line AS line, o.own_function AS function
           FROM _stacked AS f JOIN own AS o ON f.function = o.function AND f.file IS NOT DISTINCT FROM o.file
               AND f.line IS NOT DISTINCT FROM o.line AND f.stack IS NOT DISTINCT FROM o.stack""",
        [list(kind) for kind in kinds],
    )
    connection.execute("DROP TABLE _stacked")
