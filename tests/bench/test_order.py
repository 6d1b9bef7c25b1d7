"""Orders to a worker process and its answers arrive unchanged."""

from __future__ import annotations

from pathlib import Path

from perftool.bench.harness.order import Answer, Order, order_from, read_answer, write_answer
from perftool.model.benchmark import FormFigures, Ratio

ORDER = Order("name", ("naive", "advised"), "cpu", "small", None, 6, 0.5, "folder", ranks=2)


def test_an_order_survives_the_command_line() -> None:
    assert order_from(ORDER.as_text()) == ORDER


def test_ranks_write_files_of_their_own() -> None:
    files = {ORDER.of_rank(rank).trace("naive") for rank in (0, 1)} | {ORDER.of_rank(rank).answer for rank in (0, 1)}

    assert len(files) == 4


def test_an_answer_survives_its_file(tmp_path: Path) -> None:
    answer = Answer(
        seconds=((1.0, 2.0), (0.5, 1.0)),
        figures=(FormFigures("one", 1.5, 0.1, None, 3), FormFigures("other", 0.75, 0.0, 4096, 0)),
        ratios=(Ratio(2.0, 1.5, 2.5, 0.97), Ratio(3.0, 1.5, 4.5, 0.97)),
        step_ratio=Ratio(1.5, 1.5, 1.5, 0.0),
        bandwidth=1e10,
        max_error=1e-7,
        threads=1,
        clock="wall",
    )

    write_answer(answer, tmp_path / "answer.json")

    assert read_answer(tmp_path / "answer.json") == answer


def test_an_empty_answer_survives_its_file(tmp_path: Path) -> None:
    write_answer(Answer(), tmp_path / "answer.json")

    assert read_answer(tmp_path / "answer.json") == Answer()
