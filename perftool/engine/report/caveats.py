"""Sentences about what limits the conclusions from a recording, such as an overloaded machine or missing ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perftool.engine.report.verdict_input import VerdictInput
from perftool.model.report import Finding
from perftool.units import format_ns, format_ratio

# The rule that reports an overloaded machine.
_OVERLOADED = "TRC111"
# If a run has more threads and children than cores, it overloaded the machine by itself under two conditions: the
# cores were busy for more than the first share of the time, and other processes used less than the second share of the
# time that threads waited.
_BUSY, _OTHERS = 0.9, 0.5
# On an overloaded machine, the report names child processes that take this share of the run's CPU time. It also names
# threads that run no steps, if they take this share of the process's CPU time.
_WORKING = 0.15
# Children that take a smaller share do not crowd the cores.
_WORKED = 0.01
# If threads wait for a core for a larger share of the time, op times say little about the run.
_HIDING = 0.25
# The rule that reports the time that the profiler takes.
_PROFILED = "TRC105"
# The rule for steps that take longer than others.
UNSTABLE = "STP101"
# The rule for ranks without a trace.
_MISSING = "TRC107"


def caveat_sentences(run: VerdictInput, headline: str) -> tuple[str, ...]:
    """Return sentences that do not repeat the ``headline``. Any of them may be empty."""
    return (
        _lengths(run, headline), _spread(run), run.on_cpu.growing, run.on_cpu.waiting, run.on_cpu.one_off,
        run.passed_on, _missing(run.findings), run.on_cpu.narrow, _inflated(run) or run.on_cpu.lengthened,
        _overloaded(run.findings, headline),
    )  # fmt: skip


def _lengths(run: VerdictInput, headline: str) -> str:
    """Return a sentence about steps of two lengths, and about the extra work in the long ones if the recording shows
    it.

    It is empty if no finding explains the lengths but an overloaded machine might. It does not repeat the ``headline``.
    """
    found = _finding(run.findings, UNSTABLE)
    if not run.run.lengths or (found is None and _finding(run.findings, _OVERLOADED)):
        return ""
    times = []
    for length in run.run.lengths:
        ends = dict.fromkeys((format_ns(length.shortest_ns), format_ns(length.longest_ns)))
        times.append(f"{length.steps} take {' to '.join(ends)}")
    does = found.evidence.get("does", "") if found else ""
    clause = found.evidence.get("clause") if found else None
    more = "" if clause and clause in headline else does
    if found and not does and found.evidence.get("part") not in (None, "other"):
        more = f"; the long ones spend {format_ns(found.evidence['more_ns'])} more on {found.evidence['part_text']}"
    return f"{run.run.step_word.capitalize()}s have two lengths: {', '.join(times)}{more}."


def _spread(run: VerdictInput) -> str:
    """Return a sentence about steps whose lengths vary. The result is empty if another sentence or finding is about
    these lengths.

    On an overloaded machine, waits and varying calls prove nothing, so only the work of the steps is given.
    """
    spread = run.on_cpu.spread
    if spread is None or run.run.lengths or run.on_cpu.one_off or _finding(run.findings, UNSTABLE):
        return ""
    if is_overloaded(run.findings):
        return replace(spread, waits=(), varies="").sentence() if spread.works else ""
    return spread.sentence(explained=bool(run.on_cpu.waiting or run.on_cpu.growing))


def _missing(findings: Sequence[Finding]) -> str:
    """Return a sentence about the ranks without a trace. The result is empty if every rank has one, or if fewer than
    two ranks do.
    """
    found = _finding([one for one in findings if one.evidence.get("kind") == "trace"], _MISSING)
    if found is None or found.evidence["world_size"] - found.evidence["missing"] < 2:
        return ""
    one = found.evidence["missing"] == 1
    return (
        f"{'Rank' if one else 'Ranks'} {found.evidence['ranks']} {'has' if one else 'have'} no trace here, so it is "
        f"unknown whether others wait for {'it' if one else 'them'}."
    )


def _inflated(run: VerdictInput) -> str:
    """Return a sentence about the share of the time that the profiler takes on a CPU. The result is empty if it is
    small.

    With an accelerator, the host may wait for the device anyway, so the profiler's time says little about steps.
    """
    found = [one for one in run.findings if one.code == _PROFILED] if run.device == "cpu" else []
    by_rank: dict[int | None, float] = {}
    for one in found:
        by_rank[one.rank] = by_rank.get(one.rank, 0) + one.evidence["cost_ratio"]
    if not by_rank:
        return ""
    share = format_ratio(min(max(by_rank.values()), 1))
    # If the profiler's cost per op and per frame was not measured, a low estimate is used.
    measured = all(one.evidence["known"] == "measured" for one in found)
    taken = f"{'' if measured else 'at least '}{share} of the recorded time ({'measured' if measured else 'estimated'})"
    if run.on_cpu.growing:
        # New memory slows large ops.
        return f"The profiler takes {taken}. Without it, steps are shorter."
    return (
        f"The profiler takes {taken} and slows small ops most. Without it, steps are shorter: changes to small "
        "ops gain less, and large ops take a larger share."
    )


def are_longer(run: VerdictInput) -> bool:
    """Whether something that the report names made the recorded steps longer than other steps."""
    return is_overloaded(run.findings) or bool(_inflated(run) or run.on_cpu.lengthened or run.on_cpu.growing)


def is_overloaded(findings: Sequence[Finding]) -> bool:
    """Whether the run's threads waited for a core."""
    return _finding(findings, _OVERLOADED) is not None


def overload_sentence(findings: Sequence[Finding]) -> str:
    """Return a sentence about threads that waited for a core. The result is empty if the machine was not overloaded."""
    found = _finding(findings, _OVERLOADED)
    if found is None:
        return ""
    share, waited, recorded = (found.evidence[name] for name in ("waited_ratio", "waited_ns", "recorded_ns"))
    children, working = found.evidence.get("workers", "loader workers"), found.evidence.get("workers_ratio") or 0
    busy = f"threads and {children}" if working > _WORKED else "threads"
    crowded = f"The run has more busy {busy} than cores"
    cause = crowded if _by_itself(found) else "The machine was overloaded"
    line, at = found.evidence.get("workers_line"), found.evidence.get("workers_line_ratio")
    spent = f", and spent {format_ratio(at)} of their CPU time at {line}" if line and at else ""
    workers = (
        f" Its {children} took {format_ratio(working)} of the CPU time of the run{spent}." if working > _WORKING else ""
    )
    threads = found.evidence.get("threads_ratio") or 0
    if threads > _WORKING:
        workers += f" Threads that run no steps took {format_ratio(threads)} of the CPU time of the process."
    return (
        f"{cause}: threads of the run waited for a core for {format_ratio(share)} of the recorded time "
        f"({format_ns(waited)} of {format_ns(recorded)}), which made steps longer.{workers}"
    )


def _overloaded(findings: Sequence[Finding], headline: str) -> str:
    """Return the sentence about an overloaded machine, unless the ``headline`` begins with it."""
    sentence = overload_sentence(findings)
    return "" if sentence and headline.startswith(sentence) else sentence


def unusable_sentence(findings: Sequence[Finding]) -> str:
    """Return a sentence about other processes that overloaded the machine so much that the recording does not show what
    limits the run; otherwise, return an empty string."""
    found = _finding(findings, _OVERLOADED)
    if found is None or found.evidence["waited_ratio"] < _HIDING or _by_itself(found):
        return ""
    return f"{overload_sentence(findings)} Record again on free cores: the times below include this waiting."


def _by_itself(overloaded: Finding) -> bool:
    """Whether the run overloaded the machine by itself, according to ``overloaded``, the finding about the overload."""
    busy, others = overloaded.evidence.get("busy_ratio"), overloaded.evidence.get("others")
    if not overloaded.evidence.get("crowded") or busy is None or others is None or busy <= _BUSY:
        return False
    return bool(others * overloaded.evidence["recorded_ns"] < _OTHERS * overloaded.evidence["waited_ns"])


def _finding(findings: Sequence[Finding], code: str) -> Finding | None:
    """Return the first finding of the rule ``code``."""
    return next((found for found in findings if found.code == code), None)
