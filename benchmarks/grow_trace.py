"""Grows a trace: ``python benchmarks/grow_trace.py SOURCE TARGET MEGABYTES``.

The repetitions of SOURCE's events follow each other in time. Each repetition has its own steps, correlations and flows,
so analysing it costs as much as analysing SOURCE. The layout is the profiler's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

GZIP = b"\x1f\x8b"
# Arguments that refer to another event; in each repetition they refer to the event of that repetition.
LINKS = (
    "correlation",
    "External id",
    "external id",
    "Ev Idx",
    "Python id",
    "Python parent id",
    "Sequence number",
)
STEP = re.compile(r"(ProfilerStep#)(\d+)")
HOLE = "\0"
# Pause between two repetitions, in us.
PAUSE = 1000

Number = int | Decimal
Event = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """The text of one repetition, with a placeholder for each number that changes between repetitions.

    ``numbers`` are the numbers of the first repetition, and ``strides`` are what each repetition adds to them.
    """

    template: str
    numbers: tuple[Number, ...]
    strides: tuple[int, ...]

    def text(self, repetition: int) -> str:
        """Return the events of a repetition (counted from 0) as the contents of a JSON array."""
        shifted = zip(self.numbers, self.strides, strict=True)
        return self.template % tuple(number + repetition * stride for number, stride in shifted)


@dataclass(frozen=True)
class Strides:
    """The increments of a repetition: times (us), linking arguments, flow ids and step numbers."""

    time: int
    link: int
    flow: int
    step: int


def grow(source: Path, target: Path, megabytes: float) -> int:
    """Repeat ``source`` until it fills about ``megabytes`` (10^6 bytes), and write it to ``target``.

    Only whole repetitions are written, and at least one. Return the number of bytes written.
    """
    trace = read(source)
    events = trace.pop("traceEvents")
    block = make_block([event for event in events if "ts" in event and event["ph"] != "M"])
    names = [layout(event) for event in events if event["ph"] == "M"]
    # The text before the events: all other keys, then the opening bracket of the array.
    head = json.dumps({**trace, "traceEvents": []}, indent=2, default=float).removesuffix("]\n}")
    with target.open("w", encoding="utf-8") as stream:
        stream.write(head + "\n" + ",\n".join([*names, block.text(0)]))
        for repetition in count(1):
            if (size := stream.tell()) + size / (2 * repetition) > megabytes * 1e6:
                break
            stream.write(",\n" + block.text(repetition))
        stream.write("\n  ]\n}\n")
    return target.stat().st_size


def read(source: Path) -> dict[str, Any]:
    """Decode the JSON of a trace, with exact decimal times."""
    content = source.read_bytes()
    if content.startswith(GZIP):
        content = gzip.decompress(content)
    trace = json.loads(content, parse_float=Decimal)
    return trace if isinstance(trace, dict) else {"traceEvents": trace}


def make_block(events: list[Event]) -> Block:
    """Build the text of ``events`` with its placeholders."""
    strides = strides_of(events)
    texts, numbers, steps = [], [], []
    for event in events:
        holed = dict(event)
        for number, stride in cut_holes(holed, strides):
            numbers.append(number)
            steps.append(stride)
        texts.append(layout(holed))
    template = ",\n".join(texts).replace("%", "%%")
    escaped = json.dumps(HOLE)
    template = template.replace(escaped, "%s").replace(escaped.strip('"'), "%s")
    return Block(template, tuple(numbers), tuple(steps))


def cut_holes(event: Event, strides: Strides) -> Iterator[tuple[Number, int]]:
    """Replace the changing numbers of ``event`` with placeholders, and yield these numbers in the order of the text."""
    links = event.get("args", {})
    if found := STEP.fullmatch(str(event.get("name"))):
        event["name"] = found[1] + HOLE
    holes = {"name": (int(found[2]), strides.step) if found else None}
    holes["id"] = (event["id"], strides.flow) if isinstance(event.get("id"), int) else None
    holes["ts"] = (event["ts"], strides.time)
    for key in event:
        if hole := holes.get(key):
            event[key] = event[key] if key == "name" else HOLE
            yield hole
    # The layout puts the arguments last.
    event["args"] = {key: HOLE if is_link(key, value) else value for key, value in links.items()}
    yield from ((value, strides.link) for key, value in links.items() if is_link(key, value))


def is_link(key: str, value: object) -> bool:
    """Whether an argument refers to another event; 0 refers to no event."""
    return key in LINKS and isinstance(value, int) and value > 0


def strides_of(events: list[Event]) -> Strides:
    """Return strides that keep repetitions apart."""
    start = min(event["ts"] for event in events)
    end = max(event["ts"] + event.get("dur", 0) for event in events)
    links = (value for event in events for key, value in event.get("args", {}).items() if is_link(key, value))
    flows = (event["id"] for event in events if isinstance(event.get("id"), int))
    steps = [int(found[2]) for event in events if (found := STEP.fullmatch(str(event.get("name"))))]
    return Strides(int(end - start) + PAUSE, above(links), above(flows), above(steps) - min(steps, default=0))


def above(numbers: Iterable[int]) -> int:
    """Return a number that is larger than all ``numbers``."""
    return max(numbers, default=0) + 1


def layout(event: Event) -> str:
    """Return the event as JSON in the profiler's layout: the arguments on a separate line, after the other fields."""
    head = json.dumps({key: value for key, value in event.items() if key != "args"}, default=float)[1:-1]
    args = json.dumps(event.get("args", {}), default=float)[1:-1]
    tail = f',\n    "args": {{\n      {args}\n    }}' if args else ""
    return f"  {{\n    {head}{tail}\n  }}"


def main() -> None:
    """Grow the trace that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("megabytes", type=float)
    given = parser.parse_args()
    print(f"{given.target}: {grow(given.source, given.target, given.megabytes) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
