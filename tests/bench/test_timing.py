"""Forms are timed in turns until their ratio is known or no more effort is allowed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from perftool.bench.harness.team import Team  # noqa: E402
from perftool.bench.harness.timing import Clock, Effort, Timed, _enough, race, time_alone  # noqa: E402

CPU = torch.device("cpu")


class FakeClock(Clock):
    """A clock that advances only while a form runs."""

    def __init__(self) -> None:
        super().__init__("cpu", CPU)
        self.now, self.ran = 0.0, ""
        self._now = lambda: self.now

    def time(self, run: Callable[[], object], repeats: int) -> float:
        """Return the seconds per run. The pass over memory, which takes no time on this clock, counts as one second."""
        return super().time(run, repeats) or 1.0

    def taking(self, name: str, seconds: Iterator[float]) -> Callable[[], None]:
        """Return a form whose successive runs take ``seconds``."""

        def run() -> None:
            self.ran += name
            self.now += next(seconds)

        return run

    def always(self, name: str, seconds: float) -> Callable[[], None]:
        return self.taking(name, iter(lambda: seconds, None))


def test_forms_take_turns_and_stop_when_the_ratio_is_known() -> None:
    clock = FakeClock()

    outcome = race([clock.always("n", 0.5), clock.always("a", 0.25)], clock, Effort(100, 1e9), Team())

    # Each form runs twice to warm up. Six rounds follow, and the forms take turns to go first.
    assert clock.ran == "nnaa" + "naan" * 3
    assert outcome.timed[0].seconds == (0.5,) * 6
    (ratio,) = outcome.ratios
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 2.0)


def test_noisy_rounds_continue_until_the_time_is_spent() -> None:
    clock = FakeClock()
    scattered = iter([0.5, 0.5, *(0.25 + 0.25 * (index % 4) for index in range(20))])

    outcome = race([clock.taking("n", scattered), clock.always("a", 0.25)], clock, Effort(15, 1e9), Team())

    assert len(outcome.timed[0].seconds) == 15


def test_no_round_begins_after_the_time_is_spent() -> None:
    clock = FakeClock()
    scattered = iter([0.5, 0.5, *(0.25 + 0.25 * (index % 4) for index in range(20))])

    outcome = race([clock.taking("n", scattered), clock.always("a", 0.25)], clock, Effort(15, 0.0), Team())

    assert len(outcome.timed[0].seconds) == 3


@pytest.mark.parametrize(
    ("rounds", "took", "enough"),
    [(2, 99.0, False), (3, 3.9, False), (3, 4.0, True), (5, 3.9, False), (6, 0.9, False), (6, 1.0, True)],
)
def test_at_least_six_rounds_run_or_three_long_ones(rounds: int, took: float, enough: bool) -> None:
    scattered = [1.0 + index % 2 for index in range(rounds)]

    assert _enough([scattered, [1.0] * rounds], took, 1.0) == enough


def test_every_further_form_is_compared_with_the_first() -> None:
    clock = FakeClock()
    runs = [clock.always(name, seconds) for name, seconds in (("n", 0.5), ("a", 0.25), ("t", 0.125))]

    outcome = race(runs, clock, Effort(2, 1e9), Team())

    assert clock.ran == "nnaatt" + "nat" + "tan"
    assert [ratio.value for ratio in outcome.ratios] == [2.0, 4.0]


def test_a_short_run_is_repeated_within_a_timing() -> None:
    clock = FakeClock()

    outcome = race([clock.always("n", 0.001), clock.always("a", 0.5)], clock, Effort(6, 1e9), Team())

    assert clock.ran.count("n") == 2 + 6 * 5
    assert outcome.timed[0].seconds == pytest.approx((0.001,) * 6)


def test_time_alone_includes_the_first_run() -> None:
    clock = FakeClock()

    timed = time_alone(clock.taking("n", iter([4.0, 0.5])), clock, 2)

    assert timed.seconds == (4.0, 0.5)


def test_the_spread_is_between_quartiles() -> None:
    assert Timed((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), 0).spread == 1.0
    assert Timed((1.0, 9.0, 1.0), 0).spread == 0.0


def test_cpu_time_does_not_pass_while_the_process_sleeps() -> None:
    took = Clock("cpu", CPU).time(lambda: time.sleep(0.05), 1)

    assert took < 0.04


def test_cpu_time_includes_child_processes() -> None:
    work = "import time\nwhile time.process_time() < 0.3: pass"
    took = Clock("cpu", CPU).time(lambda: subprocess.run([sys.executable, "-c", work], check=True), 1)

    assert took >= 0.3
