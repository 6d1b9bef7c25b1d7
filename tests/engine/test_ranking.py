from __future__ import annotations

from dataclasses import replace

from perftool.engine.rules.ranking import claimed_once, led_by_largest, ranked
from perftool.model.choices import Severity
from perftool.model.report import Cause, Finding, Gain, Location


def finding(code: str, gain: int | None, rank: int | None = 0, severity: Severity = "warning") -> Finding:
    return Finding(
        code=code, name=code.lower(), severity=severity, confidence="high", subject="s", message="m", why="w", fix="f",
        rank=rank, location=Location(), related=(), evidence={}, gain=None if gain is None else Gain(gain, 0.1),
        fingerprint="f", benchmark=None,
    )  # fmt: skip


def codes(*findings: Finding) -> list[str]:
    explained_by = {"GAP101": ("A001", "B")}
    return [found.code for found in ranked(claimed_once(findings, explained_by), explained_by)]


def test_the_largest_gain_comes_first_and_none_last() -> None:
    assert codes(finding("A001", None), finding("B001", 5), finding("C001", 9)) == ["C001", "B001", "A001"]


def test_findings_that_one_fix_mends_stand_together_by_the_gain_of_the_fix() -> None:
    both = Gain(110, 0.2)
    small, large = (
        replace(finding("C001", gain), short_fix="fix", subject=str(gain), fix_gain=both) for gain in (50, 60)
    )
    found = ranked([finding("A001", 100), finding("B001", 55), small, large], {})

    assert [one.gain and one.gain.ns_per_step for one in found] == [60, 50, 100, 55]


def test_a_wait_without_a_gain_ranks_by_its_share_of_the_time() -> None:
    pause = replace(finding("A001", None), evidence={"waited_ratio": 0.5})

    def order(gain: int) -> list[str]:
        return [found.code for found in ranked([finding("B001", gain), finding("C001", None), pause], {}, step_ns=100)]

    # A bound is multiplied by 0.8.
    assert order(62) == ["A001", "B001", "C001"]
    assert order(63) == ["B001", "A001", "C001"]
    for strange in (-1, 1.5, float("nan"), "much", None):
        odd = replace(pause, evidence={"waited_ratio": strange})
        assert [found.code for found in ranked([odd, finding("B001", 0)], {}, step_ns=100)] == ["B001", "A001"]


def test_a_finding_moved_ahead_stays_behind_a_longer_wait() -> None:
    cause = Cause("exposed_collectives", "collectives run", 0.6, 900, ("B001",), None)
    pause = replace(finding("C001", None), evidence={"waited_ratio": 0.9})
    found = [pause, finding("A001", 150), finding("B001", 100)]

    assert [f.code for f in led_by_largest(found, [cause])] == ["C001", "B001", "A001"]


def test_without_gains_the_most_severe_comes_first() -> None:
    assert codes(finding("A001", None, severity="info"), finding("B001", None, severity="error")) == ["B001", "A001"]


def test_a_symptom_ranks_by_what_the_largest_cause_leaves_unexplained() -> None:
    assert codes(finding("GAP101", 100), finding("A001", 60), finding("B001", 30)) == ["A001", "GAP101", "B001"]
    assert codes(finding("GAP101", 100), finding("A001", 3)) == ["GAP101", "A001"]
    assert codes(finding("GAP101", 100), finding("A001", 100)) == ["A001", "GAP101"]


def test_other_findings_explain_nothing() -> None:
    assert codes(finding("GAP101", 100), finding("C001", 60)) == ["GAP101", "C001"]


def test_a_cause_on_another_rank_explains_nothing() -> None:
    assert codes(finding("GAP101", 100, rank=0), finding("A001", 60, rank=1)) == ["GAP101", "A001"]
    assert codes(finding("GAP101", 100, rank=0), finding("A001", 60, rank=None)) == ["A001", "GAP101"]


def test_a_straggler_comes_before_findings_of_single_ranks() -> None:
    def first(own: int, gain: Gain, rank: int = 3) -> str:
        late = replace(finding("COL103", 0, rank=3), gain=gain)
        return ranked([finding("GAP102", own, rank=rank), late], {}, {"COL103"})[0].code

    bound, predicted = Gain(100, 0.1), Gain(100, 0.1, "predicted")
    assert [first(own, gain) for own in (99, 500) for gain in (bound, predicted)] == ["COL103"] * 4
    # Findings about ranks that wait for the late rank do not come first either, because these ranks lose no time once
    # the late rank is on time.
    assert first(500, predicted, rank=2) == "COL103"
    # If a late rank has no gain, it keeps no other rank waiting.
    assert first(1, Gain(0, 0.0, "predicted")) == "GAP102"


def test_a_loose_bound_about_the_same_time_comes_after_its_prediction() -> None:
    predicted = replace(finding("A001", 0), gain=Gain(100, 0.1, "predicted"))
    explains = {"A001": ("python",), "B001": ("python", "sync"), "C001": ("sync",)}

    assert [f.code for f in ranked([finding("B001", 300), predicted], {}, (), explains)] == ["A001", "B001"]
    assert [f.code for f in ranked([finding("B001", 301), predicted], {}, (), explains)] == ["B001", "A001"]
    assert [f.code for f in ranked([finding("C001", 300), predicted], {}, (), explains)] == ["C001", "A001"]


def test_a_slightly_larger_bound_comes_after_a_prediction() -> None:
    predicted = replace(finding("A001", 0), gain=Gain(100, 0.1, "predicted"))

    assert [f.code for f in ranked([finding("B001", 124), predicted], {})] == ["A001", "B001"]
    assert [f.code for f in ranked([finding("B001", 126), predicted], {})] == ["B001", "A001"]


def test_a_symptom_is_explained_by_findings_inside_its_time() -> None:
    symptom = replace(finding("GAP101", 100), evidence={"main_cause": "dataloader"})
    (kept, *_) = claimed_once(
        [symptom, finding("A001", 90), finding("B001", 60)], {"GAP101": ("A", "B")}, (), {"B001": ("dataloader",)}
    )

    assert (kept.explained_by, kept.gain and kept.gain.ns_per_step) == ("B001", 40)


def test_among_similar_gains_the_finding_about_the_largest_cause_leads() -> None:
    cause = Cause("exposed_collectives", "collectives run", 0.6, 900, ("B001",), None)
    found = [finding("A001", 150), finding("B001", 100)]

    assert [f.code for f in led_by_largest(found, [cause])] == ["B001", "A001"]
    assert [f.code for f in led_by_largest([finding("A001", 151), found[1]], [cause])] == ["A001", "B001"]
    foreseen = [replace(finding("A001", 0), gain=Gain(gain, 0.1, "predicted")) for gain in (110, 111)]
    assert [led_by_largest([one, found[1]], [cause])[0].code for one in foreseen] == ["B001", "A001"]
    assert [f.code for f in led_by_largest(found, [])] == ["A001", "B001"]
    explained = [Cause("framework_op", "ops run", share, 900, ("A001",), None) for share in (0.55, 0.5)]
    assert [led_by_largest(found, [cause, own])[0].code for own in explained] == ["A001", "B001"]


def test_a_finding_explains_only_the_idle_time_that_it_shares_with_a_symptom() -> None:
    parts = [{"cause": "framework_op", "ns": 600}, {"cause": "copy", "ns": 200}, {"cause": "optimizer", "ns": 200}]
    symptom = replace(finding("GAP101", 100), evidence={"main_cause": "framework_op", "idle_causes": parts})
    explains = {"A001": ("copy",), "B001": ("queued",)}

    def rest(cause: Finding) -> tuple[str | None, float | None]:
        (kept, *_) = claimed_once([symptom, cause], {"GAP101": ("A", "B")}, (), explains)
        return kept.explained_by, kept.gain and kept.gain.ns_per_step

    assert rest(finding("A001", 90)) == ("A001", 80)
    assert rest(finding("A001", 15)) == ("A001", 85)
    assert rest(finding("A001", 9)) == (None, 100)
    assert rest(finding("B001", 90)) == (None, 100)
    # The idle causes in a finding's own evidence are more exact than those in the findings that it explains.
    own = [{"cause": "copy", "ns": 50}, {"cause": "optimizer", "ns": 300}, {"cause": "queued", "ns": 900}]
    assert rest(replace(finding("A001", 90), evidence={"idle_causes": own})) == ("A001", 75)
    # Third-party rules may put anything into their evidence.
    for wrong in (None, "copy", [1], [{"cause": "copy"}], [{"cause": "copy", "ns": float("nan")}]):
        assert rest(replace(finding("A001", 20), evidence={"idle_causes": wrong})) == ("A001", 80)


def test_a_fix_that_changes_results_follows_one_of_about_the_same_gain() -> None:
    def first(gain: float) -> str:
        return ranked([finding("A001", gain), finding("B001", 100)], {}, altering={"A001"})[0].code

    assert [first(140), first(160)] == ["B001", "A001"]
