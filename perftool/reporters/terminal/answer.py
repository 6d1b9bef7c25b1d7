"""The one-screen report: the verdict, where the time goes, what to change, and the next command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from perftool.engine.report.across_ranks import grouped
from perftool.engine.report.device_words import is_well_fed
from perftool.engine.report.verdict import NOTICEABLE
from perftool.model.inputs import InputFile
from perftool.model.report import Finding, Report, included_in, sum_of
from perftool.reporters.escape import one_line
from perftool.reporters.naming import facts, run_title
from perftool.reporters.serving import server_lines
from perftool.reporters.sources import shown_sources
from perftool.reporters.terminal.bar import bar
from perftool.reporters.terminal.choice import Choice
from perftool.reporters.terminal.groups import group_lines
from perftool.reporters.time_parts import time_parts
from perftool.reporters.verdict import amount_text, origins, overlap_text
from perftool.units import format_ratio

MOST_LINES = 26
_MOST_FINDINGS = 5
# At least this many findings are shown. Context sentences are left out if the findings would not fit below them.
_LEAST_FINDINGS = 3
_MOST_NOTES = 2
_MOST_NAMED = 4
_SHORTEST_NAME = 12
# The maximum number of characters of context: five lines of 80 columns.
_MOST_CONTEXT = 400
# On a console of at least this width, a finding and its fix are on one line.
_WIDE = 150
_NO_STACKS = "For lines of code: record --stacks, or with_stack=True (slows the run down)."
_ENDINGS = (".gz", ".json.gz", ".json", ".pt.trace.json.gz", ".pt.trace.json")
_SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}


@dataclass(frozen=True)
class _Row:
    """A row of the table. ``cells`` are the finding's name with the number of ranks, its gain, and its line of code."""

    finding: Finding
    cells: tuple[str, str, str]
    fix: str


def print_answer(report: Report, console: Console, choice: Choice | None = None) -> None:
    """Print ``report`` in about ``MOST_LINES`` lines of 80 columns, unless ``choice`` asks for more findings."""
    choice = choice or Choice()
    verdict = report.verdict
    parts = time_parts(report)
    above = [*_header(report, console), *_notes(report, console), Text()]
    above += _wrapped(Text(one_line(verdict.headline), style="bold"), console)
    # The bar shows every cause of idle time, so the detail is printed only for a busy device.
    hidden = any(part.idle for part in parts) and not is_well_fed(report.summary)
    below = " ".join(filter(None, (verdict.steady, "" if hidden else verdict.detail)))
    above += _wrapped(Text(one_line(below)), console) if below else []
    served = [row for line in server_lines(report) for row in _wrapped(Text(one_line(line)), console)]
    above += [Text(), *served] if served else []
    picture = bar(parts, console)
    figures = [Text(), *picture] if picture else []
    groups = group_lines(report)
    figures += [Text(), *(line for row in groups for line in _wrapped(row, console))] if groups else []
    rows = _rows(report, choice)
    room = MOST_LINES - len(above) - len(figures)
    context = _context(verdict.context, room - _height(rows[:_LEAST_FINDINGS], report, console), console)
    shown = rows[: choice.top] if choice.top is not None else _fitting(rows, room - len(context), report, console)
    table = _table(shown, console, _heads(report))
    for line in [*above, *context, *figures, *table, Text(), *_below(report, choice, shown, console)]:
        console.print(line, soft_wrap=True)


def _context(sentences: Sequence[str], room: int, console: Console) -> list[Text]:
    """Wrap as many of the first ``sentences`` as fit in ``room`` lines and in ``_MOST_CONTEXT``, at least one.
    ``--full`` prints all."""
    ends = list(accumulate(len(one) + 1 for one in sentences))
    for count in range(len(sentences), 0, -1):
        lines = _wrapped(Text(one_line(" ".join(sentences[:count]))), console)
        if count == 1 or (ends[count - 1] <= _MOST_CONTEXT and len(lines) <= room):
            return lines
    return []


def _heads(report: Report) -> tuple[str, str, str]:
    return "What to change", f"gain {report.per_step}".rstrip(), "where"


def _fitting(rows: Sequence[_Row], room: int, report: Report, console: Console) -> Sequence[_Row]:
    """Keep the first ``rows`` that fit in ``room`` lines together with the lines below them, at least
    ``_LEAST_FINDINGS``."""
    for count in range(min(_MOST_FINDINGS, len(rows)), _LEAST_FINDINGS, -1):
        if _height(rows[:count], report, console) <= room:
            return rows[:count]
    return rows[:_LEAST_FINDINGS]


def _height(rows: Sequence[_Row], report: Report, console: Console) -> int:
    """Return the number of lines of a table of ``rows`` and of the lines below it."""
    return len(_table(rows, console, _heads(report))) + 1 + len(_below(report, Choice(), rows, console))


def _header(report: Report, console: Console) -> list[Text]:
    known = [f"   {one_line(fact)}" for fact in facts(report)]
    # Facts that would leave too little room for the name continue on the next line.
    kept = next((count for count in range(len(known), 1, -1) if _room(known[:count], console) >= _SHORTEST_NAME), 1)
    name = _shortened(one_line(run_title(report)), max(_SHORTEST_NAME, _room(known[:kept], console)))
    more = Text("".join(known[kept:]).strip())
    return [Text.assemble((name, "bold"), *known[:kept]), *(_wrapped(more, console) if more else [])]


def _room(facts_beside: Sequence[str], console: Console) -> int:
    return console.width - sum(map(cell_len, facts_beside))


def _shortened(name: str, width: int) -> str:
    """Shorten ``name`` to ``width`` cells: drop its suffixes, then cut it."""
    short = name
    for ending in _ENDINGS:
        if len(short) > width and name.endswith(ending):
            short = name.removesuffix(ending)
    return _cut(short, width)


def _cut(text: str, width: int) -> str:
    """Cut out the middle of ``text`` if it is longer than ``width``."""
    if len(text) <= width:
        return text
    tail = width // 2
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def _notes(report: Report, console: Console) -> list[Text]:
    """List important notes on the inputs: that they were not recorded on a device, and what was dropped or repaired."""
    strange = [f"Not a measurement. {text}." for text in origins(report)]
    printed = set(strange)
    issues = [_remark(read, issue.message) for read in report.inputs for issue in read.issues
              if issue.kind not in ("handMade", "simulated", "rank assumed")]  # fmt: skip
    notes = [*strange, *(text for text in dict.fromkeys(issues) if text not in printed)]
    shown = [line for note in notes[:_MOST_NOTES] for line in _wrapped(Text(one_line(note), style="yellow"), console)]
    more = len(notes) - _MOST_NOTES
    return [*shown, *([Text(f"and {more} more notes on the inputs; --full prints them", style="dim")] * (more > 0))]


def _remark(read: InputFile, message: str) -> str:
    """Prefix ``message`` with the path of its file, unless it has that prefix."""
    return one_line(message if message.startswith(f"{read.path}: ") else f"{read.path}: {message}")


def _rows(report: Report, choice: Choice) -> list[_Row]:
    """List the advice that is severe enough, most worthwhile first, with one row per rule and fix. The gain of a row is
    that of its first finding or, if the times of its findings are disjoint, the sum of their gains."""
    chosen = choice.of(report.findings)
    of_fix: dict[tuple[str, str], list[Sequence[int]]] = {}
    for group in grouped(chosen):
        finding = chosen[group[0]]
        if finding.advice and not finding.suppressed and _is_noticeable(finding):
            of_fix.setdefault((finding.code, finding.short_fix), []).append(group)
    return [_row([chosen[group[0]] for group in groups], max(map(len, groups))) for groups in of_fix.values()]


def _is_noticeable(finding: Finding) -> bool:
    """Whether the fix makes a noticeable difference. Other findings are listed under ``Also``."""
    if finding.gain is None:
        return finding.explained_by is None
    return finding.gain.share_of_step >= NOTICEABLE


def _row(findings: Sequence[Finding], ranks: int) -> _Row:
    first = findings[0]
    times = f" x {len(findings)}" if len(findings) > 1 else ""
    where = f" on {ranks} ranks" if ranks > 1 else _awaited(findings)
    mended = included_in(first, findings)
    cells = (f"{first.code} {first.name}{times}{where}", amount_text(sum_of(mended)), shown_sources(first, 1))
    overlaps = tuple(dict.fromkeys(overlap for one in mended for overlap in one.overlaps))
    overlap = overlap_text(replace(first, overlaps=overlaps))
    return _Row(first, cells, one_line(f"{first.short_fix} ({overlap})" if overlap else first.short_fix))


def _awaited(findings: Sequence[Finding]) -> str:
    """Return the subject of a finding about a rank that others wait for; otherwise an empty string."""
    first = findings[0]
    return f": {one_line(first.subject)}" if len(findings) == 1 and first.late_ranks else ""


def _table(rows: Sequence[_Row], console: Console, names: tuple[str, str, str]) -> list[Text]:
    if not rows:
        return []
    rows = [_spelled(row, console) for row in rows]
    heads = tuple(head if not at or any(row.cells[at] for row in rows) else "" for at, head in enumerate(names))
    widths = [max(map(cell_len, column)) for column in zip(heads, *(row.cells for row in rows), strict=True)]
    # If the lines of code do not fit next to the gains, each is printed on a separate line.
    fits = sum(widths) + 4 <= console.width
    lines = [Text(), Text(_aligned(heads if fits else (*heads[:2], ""), widths), style="dim")]
    for number, row in enumerate(rows):
        line = Text(_aligned(row.cells if fits else (*row.cells[:2], ""), widths))
        line.stylize(_SEVERITY_STYLE[row.finding.severity], 0, len(row.finding.code))
        if console.width >= _WIDE:
            lines.append(line + Text(f"{' ' * (sum(widths) + 6 - line.cell_len)}{row.fix}"))
        else:
            lines += [line, *_wrapped(Text(row.fix), console, indent=7)]
        if row.cells[2] and not fits and console.width < _WIDE:
            lines.append(Text(f"       {_without_leading_folders(row.cells[2], console.width - 7)}"))
        # If the first row has no gain, its message shows the evidence.
        if not number and not row.finding.gain:
            lines += _wrapped(Text(one_line(row.finding.message)), console, indent=7)
    return lines


def _without_leading_folders(place: str, width: int) -> str:
    """Shorten a line of code to ``width`` cells by dropping leading folders."""
    shown = place
    while cell_len(shown) > width and "/" in shown:
        shown = shown.split("/", 1)[1]
    return shown


def _spelled(row: _Row, console: Console) -> _Row:
    """Replace ``≤`` if the console's encoding does not support it."""
    if console.encoding.lower().startswith("utf"):
        return row
    name, gain, where = row.cells
    return replace(row, cells=(name, gain.replace("≤", "up to"), where))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, gain, where = cells
    return f"{_padded(name, widths[0])}  {' ' * (widths[1] - cell_len(gain))}{gain}  {where}".rstrip()


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _below(report: Report, choice: Choice, shown: Sequence[_Row], console: Console) -> list[Text]:
    """State the gain of all fixes together, what qualifies the figures, the remaining findings, and what to do next."""
    seen = {row.finding.code for row in shown}
    rest = [finding for finding in choice.of(report.findings) if finding.code not in seen]
    parts = [f"{len(rest)} more finding{'s' if len(rest) > 1 else ''} ({_names(rest)})"] if rest else []
    hidden = len(report.findings) - len(choice.of(report.findings))
    parts += [f"{hidden} below --min-severity"] if hidden else []
    lines: list[Text] = []
    for text in filter(None, (report.verdict.together, report.verdict.caveats)):
        lines += _wrapped(Text(one_line(text)), console)
    lines += _wrapped(Text(f"Also: {'; '.join(parts)}.", style="dim"), console) if parts else []
    # If there are no host ops, there can be no lines of code. If there are modules, the recording already has stacks.
    recorded = bool(report.top_ops) and not report.modules and not origins(report)
    if shown and not any(row.cells[2] for row in shown) and recorded:
        lines += _wrapped(Text(_NO_STACKS, style="dim"), console)
    return [*lines, *_wrapped(Text(_next(shown), style="dim"), console)]


def _names(findings: Sequence[Finding]) -> str:
    """Return the names of the rules of the first ``findings``, each once and with its largest gain, and the number of
    findings of other rules."""
    of_name: dict[str, list[Finding]] = {}
    for one in findings:
        of_name.setdefault(one.name, []).append(one)
    others = sum(map(len, list(of_name.values())[_MOST_NAMED:]))
    named = [_with_gain(name, group) for name, group in list(of_name.items())[:_MOST_NAMED]]
    return ", ".join(named) + (f" and {others} more" if others else "")


def _with_gain(name: str, findings: Sequence[Finding]) -> str:
    words = name.replace("-", " ")
    gain = max(
        (one.gain for one in findings if one.gain and one.advice), key=lambda gain: gain.share_of_step, default=None
    )
    if gain is None or gain.share_of_step < NOTICEABLE:
        return words
    return f"{words} {'up to ' if gain.kind == 'bound' else ''}{format_ratio(gain.share_of_step)}"


def _next(shown: Sequence[_Row]) -> str:
    explain = f"habana_perf_tool rule {shown[0].finding.code} explains row 1; " if shown else ""
    return f"Next: {explain}--full prints all tables."


def _wrapped(text: Text, console: Console, indent: int = 0) -> list[Text]:
    """Wrap ``text`` for a terminal, or keep it on one line for a pipe."""
    width = max(20, console.width - indent)
    lines = list(text.wrap(console, width)) if text.cell_len > width else [text]
    for line in lines:
        line.rstrip()
    return [Text(" " * indent) + line for line in lines]
