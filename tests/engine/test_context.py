"""The values that rules use in addition to tables agree with those tables."""

from __future__ import annotations

from events import launch, step
from stores import store_over

from perftool.engine.report import overview
from perftool.engine.report.compose import context_of


def test_the_window_is_that_of_the_table() -> None:
    """Time between steps makes the window longer than the sum of the steps."""
    events = [step(1, 0, 100), *launch(1, 10, 5, 20, 50), step(2, 300, 100), *launch(2, 310, 5, 320, 80)]
    with store_over(events, events) as store:
        context = context_of(store, tuple(overview.steps(store)), "cuda")
        windows = store.rows("windows")

    assert (context.steps, context.window_ns) == (4, sum(row["dur"] for row in windows))
    assert context.window_ns > sum(row["dur"] for row in store_steps(events)) * 2


def store_steps(events: list[dict[str, object]]) -> list[dict[str, object]]:
    with store_over(events) as store:
        return store.rows("steps")


def test_without_a_trace_there_is_no_window() -> None:
    with store_over([]) as store:
        context = context_of(store, (), None)

    assert (context.steps, context.step_ns, context.window_ns) == (0, 0, 0)
