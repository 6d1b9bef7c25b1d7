"""Settings of a store's connections."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from perftool.store.connections import Connections


def test_the_connections_of_all_threads_have_the_same_settings() -> None:
    connections = Connections(":memory:")

    def settings() -> list[tuple[str, str]]:
        names = "'enable_progress_bar', 'asof_loop_join_threshold'"
        rows = connections.here().execute(
            f"SELECT name, value FROM duckdb_settings() WHERE name IN ({names}) ORDER BY name"
        )
        return rows.fetchall()

    here = settings()
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(settings).result()

    assert here == there == [("asof_loop_join_threshold", "0"), ("enable_progress_bar", "false")]
