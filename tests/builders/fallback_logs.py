"""CPU-fallback reports in the four formats that the bridge has used over the years."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HEADER = "Frequency of op and op name that were executed on CPU:"
HEADER_F4 = "CPU Fallback stats:"


@dataclass(frozen=True)
class LogRecord:
    """A record of the bridge's logger. Only the first line of ``text`` gets a prefix."""

    logger: str
    level: str
    text: str
    clock: str = "20:57:12.104233"
    tid: str = "398E"

    def line(self) -> str:
        """Return the record as printed, with time, logger (padded to the longest name), level and thread."""
        return f"[{self.clock}][{self.logger:<19}][{self.level:<5}][tid:{self.tid}] {self.text}"


def per_call(op: str, **types: str) -> str:
    """Return the line printed for one fallback, with the op's name but not its namespace."""
    return f"CPU fallback {op} : " + " ".join(f"{name}={kind}" for name, kind in types.items())


def rows(counts: Mapping[str, int]) -> list[str]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [f"{count}\t{op}" for op, count in ordered]


def table_f1(counts: Mapping[str, int]) -> str:
    """The documented format: a bare header and rows padded with spaces."""
    padded = [row.replace("\t", "       ") for row in rows(counts)]
    return "\n".join([HEADER, *padded]) + "\n"


def table_f2(counts: Mapping[str, int]) -> str:
    """The format of about 2021, with the hint on the header line."""
    hint = "(Set env var PT_HABANA_LOG_TYPE_MASK=0 to disable this print)"
    return "\n".join([f"{HEADER} {hint}", *rows(counts)]) + "\n"


def table_f3(counts: Mapping[str, int]) -> str:
    """A later format, with the hint on its own line."""
    hint = "(Set env var PT_HPU_LOG_TYPE_MASK=0 to disable this print)"
    return "\n".join([HEADER, hint, *rows(counts)]) + "\n"


def table_f4(counts: Mapping[str, int], clock: str = "20:57:12.104233") -> str:
    """The format since release 1.17: one critical record, printed when the process ends."""
    text = "\n".join([HEADER_F4, *rows(counts)])
    return LogRecord("PT_FALLBACK", "critical", text, clock).line() + "\n"
