"""The compilations of a run are taken from only one of its inputs."""

from __future__ import annotations

from perftool.model.records import CompilationRecord, LogReading
from perftool.readers.logs.compilation_choice import chosen_compilations

METRICS = CompilationRecord("metrics", count=2, dur_ns=30)
CACHE = (CompilationRecord("recipe_cache", recipe="7"), CompilationRecord("recipe_cache", recipe="8"))


def of(*records: CompilationRecord) -> LogReading:
    return LogReading(compilations=records)


def ranked(source: str, rank: int, count: int) -> CompilationRecord:
    return CompilationRecord(source, count=count, rank=rank)  # type: ignore[arg-type]


def test_sources_of_one_run_are_not_added() -> None:
    assert chosen_compilations([of(*CACHE), of(METRICS)]) == (METRICS,)


def test_source_that_saw_more_wins() -> None:
    # The metrics do not count compilations in eager mode.
    assert chosen_compilations([of(CompilationRecord("metrics", count=1)), of(*CACHE)]) == CACHE


def test_each_rank_has_its_best_source() -> None:
    readings = [of(ranked("metrics", 0, 3)), of(ranked("recipe_cache", 0, 1), ranked("recipe_cache", 1, 4))]
    assert chosen_compilations(readings) == (ranked("metrics", 0, 3), ranked("recipe_cache", 1, 4))


def test_console_without_ranks_against_files_with_them() -> None:
    files = [of(ranked("metrics", 0, 3)), of(ranked("metrics", 1, 3))]
    same = CompilationRecord("print_stats", count=6)
    more = CompilationRecord("print_stats", count=7)
    assert chosen_compilations([*files, of(same)]) == (ranked("metrics", 0, 3), ranked("metrics", 1, 3))
    assert chosen_compilations([*files, of(more)]) == (more,)


def test_statistics_have_a_file_per_graph() -> None:
    graphs = [of(CompilationRecord("compilation_stats", recipe=name)) for name in ("a", "b")]
    assert [record.recipe for record in chosen_compilations(graphs)] == ["a", "b"]


def test_no_input_gives_no_compilation() -> None:
    assert chosen_compilations([]) == ()
