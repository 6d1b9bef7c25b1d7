"""Sentences about the largest ops of a busy device, how close each is to its peak, and the possible gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perftool.model.cut_text import cut_text
from perftool.model.efficiency import Efficiency, OpRate
from perftool.model.unmodelled import WITHOUT_SHAPES, why_no_model
from perftool.store.trace_store import TraceStore
from perftool.units import format_ratio

# The ops of all ranks together. Shapes and dtypes are those of the op's longest calls without a cost model. ``work_ns``
# is the work of all ops, including those that are too small for the table.
_OPS = """
SELECT name, min(source) AS source, min(kind) AS kind, arg_max(engine, kernel_ns) AS engine,
       CASE WHEN count(*) FILTER (input_dims IS NULL AND unsized_calls > 0) = 0
            THEN arg_max(input_dims, (unsized_ns, -rank)) FILTER (unsized_calls > 0) END AS input_dims,
       arg_max(input_types, (unsized_ns, -rank)) FILTER (unsized_calls > 0) AS input_types,
       sum(calls)::BIGINT AS calls, sum(kernel_ns)::BIGINT AS kernel_ns,
       sum(unsized_ns)::BIGINT AS unsized_ns, sum(unsized_calls)::BIGINT AS unsized_calls,
       sum(bounded_ns)::BIGINT AS bounded_ns, sum(bounded_calls)::BIGINT AS bounded_calls,
       sum(best_ns ORDER BY best_ns) AS best_ns, bool_and(judged) AS judged, sum(lost_ns)::BIGINT AS lost_ns,
       (SELECT sum(work_ns) FROM (SELECT DISTINCT rank, work_ns FROM _efficiency_ops))::BIGINT AS work_ns
FROM _efficiency_ops GROUP BY name ORDER BY kernel_ns DESC, name
"""
_ON_CPU = "SELECT 1 FROM launches WHERE own_work LIMIT 1"
_MOST_NAMED = 4
_LONGEST_NAME = 52
# Calls with a smaller share of their op's time are not mentioned.
_FEW = 0.1
# Ops with a smaller share of the work are not named.
_LARGE = 0.05
# Ops are named until they add up to this share of the work.
_NAMED_SHARE = 0.8
# An op with a smaller share of the work cannot change the step noticeably.
_SMALL = 0.02
# If all ops together lose less than this share of the work, there is little left to gain.
_SMALL_LOSS = 0.05
# With caches, an op may be a little faster than its cost model. Beyond this factor, the model does not fit the op.
_FAR_ABOVE = 2


@dataclass(frozen=True)
class LargeOp:
    """An op, and how close it is to its peak.

    ``share`` is its share of the work. ``reached`` is the share of its peak that it reaches. If that share is unknown,
    ``reached`` is None, and ``why`` gives the reason, if known. ``judged`` is true if it is known whether the op could
    be faster. ``lost`` is the possible gain as a share of the work. ``calls`` is a clause about the calls whose rate is
    known; it is empty if the rate of nearly all calls is known. ``partly_unrated`` is the time of the other calls as a
    share of the work.
    """

    name: str
    share: float
    reached: float | None
    why: str
    judged: bool
    lost: float
    calls: str = ""
    partly_unrated: float = 0.0

    @property
    def unrated(self) -> float:
        """The time of the calls whose peak is unknown (of all calls if no rate is shown for the op), as a share of the
        work."""
        return self.partly_unrated if self.reached is not None and self.reached < _FAR_ABOVE else self.share


@dataclass(frozen=True)
class Left:
    """The ops on the device, largest first. ``missing`` is a sentence about what is needed to judge more of them."""

    ops: Sequence[LargeOp]
    missing: str
    on_cpu: bool = False

    def sentences(self, by_module: Sequence[str] = ()) -> tuple[str, ...]:
        """Return sentences about the largest ops and how close they are to their peaks, then ``by_module``, then a
        sentence about the possible gain, or about what to record."""
        return (f"{self._largest()}.", *by_module, self._ending()) if self.ops else ()

    def reached_by(self, name: str) -> float | None:
        """Return the share of its peak that the op ``name`` reaches, or None if the share is unknown for many of its
        calls."""
        return next((op.reached for op in self.ops if op.name == name and not op.calls), None)

    def _largest(self) -> str:
        named: list[LargeOp] = []
        for op in self.ops[:_MOST_NAMED]:
            if sum(one.share for one in named) < _NAMED_SHARE and op.share >= _LARGE:
                named.append(op)
        # The last sentence already says that shapes are not recorded.
        texts = [_named(op).removesuffix(f", {WITHOUT_SHAPES}") for op in named]
        # Shares are relative to the time ops spend computing, not to the window.
        return "Largest ops, by share of the work: " + "; ".join(texts)

    def _ending(self) -> str:
        judged = sum(op.share for op in self.ops if op.judged)
        lost = sum(op.lost for op in self.ops)
        unjudged = [op for op in self.ops if not op.judged and op.share >= _SMALL]
        unknown = sum(op.unrated for op in unjudged)
        if lost >= _SMALL_LOSS and self.on_cpu:
            return "A CPU's peak is measured with matmuls and copies; other ops may not reach it."
        if lost >= _SMALL_LOSS:
            return (
                f"At the rates that the device reaches on good shapes, the work would take {format_ratio(lost)} less "
                "time; the table op_shortfalls shows why, and what to change."
            )
        if unknown >= _SMALL_LOSS:
            return f"The peak is unknown for {format_ratio(unknown)} of the work. {self.missing}".rstrip()
        # Some shapes of these ops take too little time to be judged individually, but together they are not negligible.
        if sum(op.share for op in unjudged) >= _SMALL_LOSS:
            return ""
        return (
            f"The ops that do {format_ratio(judged)} of the work run as fast as the device can on good shapes, and the "
            "others are small: further savings require less work (fewer operations, smaller types, larger "
            "batches)."
        )


def left(store: TraceStore, efficiency: Efficiency | None) -> Left:
    """Return the ops in ``store``, and how close they are to their peaks. There are no ops if the input shows no device
    work.
    """
    if efficiency is None:
        return Left((), "")
    rows = store.select(_OPS)
    ops = tuple(_op(row, row["work_ns"]) for row in rows if row["work_ns"])
    return Left(ops, efficiency.missing, bool(store.select(_ON_CPU)))


def _op(row: dict[str, Any], work: int) -> LargeOp:
    fields = ("name", "source", "kind", "engine", "input_dims", "input_types", "calls", "kernel_ns")
    # The sizes of an op count as known if they are known for the calls that take most of its time.
    sized = 2 * row["unsized_ns"] < row["kernel_ns"]
    rate = OpRate(
        **{name: row[name] for name in fields}, bytes=0.0 if sized else None,
        flops=None, tflops=None, tbytes=None, bound=None, roofline_ratio=None,
    )  # fmt: skip
    bounded = 2 * row["bounded_ns"] >= row["kernel_ns"] and row["bounded_ns"] > 0
    reached = row["best_ns"] / row["bounded_ns"] if bounded else None
    why = why_no_model(rate)
    if why and row["kernel_ns"] - row["unsized_ns"] > _FEW * row["kernel_ns"]:
        why = f"{why} for {row['unsized_calls']:,} of {row['calls']:,} calls"
    part = bounded and row["kernel_ns"] - row["bounded_ns"] > _FEW * row["kernel_ns"]
    calls = f" in {row['bounded_calls']:,} of {row['calls']:,} calls" if part else ""
    judged = bool(row["judged"]) and (reached is None or reached < _FAR_ABOVE)
    return LargeOp(
        rate.name,
        rate.kernel_ns / work,
        reached,
        why,
        judged or rate.kind == "collective",
        row["lost_ns"] / work,
        calls,
        (row["kernel_ns"] - row["bounded_ns"]) / work,
    )


def _named(op: LargeOp) -> str:
    name = cut_text(op.name, _LONGEST_NAME)
    if op.reached is not None:
        reached = "faster than modelled" if op.reached > 1 else f"at {format_ratio(op.reached)} of its peak"
        return f"{name} {format_ratio(op.share)}, {reached}{op.calls}"
    return ", ".join(filter(None, (f"{name} {format_ratio(op.share)}", op.why)))
