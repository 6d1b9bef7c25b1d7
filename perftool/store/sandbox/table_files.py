"""Exports tables of a store as files that the sandbox can read."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from perftool.store.catalog import catalog
from perftool.store.database import literal


class SandboxTables:
    """Exports each table of ``connection`` once to ``folder``, as a DuckDB database with one table.

    This format keeps all types, can be written as a stream, and lets queries read only the columns that they need.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._files: dict[str, Path] = {}

    def files(self, sql: str) -> dict[str, Path]:
        """Return the files of the tables whose names occur in ``sql`` as words, in any case."""
        words = set(re.findall(r"\w+", sql.lower()))
        wanted = sorted(name for (name,) in self._connection.execute(_TABLES).fetchall() if name.lower() in words)
        return {name: self._files.get(name) or self._write(name) for name in wanted}

    def _write(self, name: str) -> Path:
        path = self._folder / f"{name}.duckdb"
        path.unlink(missing_ok=True)
        self._connection.execute(f"ATTACH {literal(str(path))} AS exported")
        rows = catalog()[name].as_text if name in catalog() else f'SELECT * FROM main."{name}"'
        try:
            # Compression would double the export time.
            self._connection.execute("SET force_compression = 'uncompressed'")
            self._connection.execute(f'CREATE TABLE exported."{name}" AS {rows}; CHECKPOINT exported')
        finally:
            self._connection.execute("SET force_compression = 'auto'; DETACH exported")
        self._files[name] = path
        return path


_TABLES = "SELECT table_name FROM duckdb_tables() WHERE NOT internal"
