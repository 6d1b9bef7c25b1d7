"""Checks a rule pack: its files, queries, messages and cases."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perftool.engine.rule_tests.cases import differences, load_cases, run_case
from perftool.engine.rules.message import Placeholder, parse_message
from perftool.engine.rules.pack import CASES, load_user_pack, toml_files
from perftool.errors import LONGEST_REASON, UNFORESEEN, PerfToolError, QueryError, RuleError
from perftool.model.rule import Rule
from perftool.store.catalog import catalog
from perftool.store.rank_export import spans_ranks
from perftool.store.trace_store import TraceStore

_PARAM = re.compile(r"\$(\w+)")
_CONTEXT = {"steps": 1, "step_ns": 1_000_000, "window_ns": 1_000_000}
_UNITS = ("_ns", "_bytes")


@dataclass(frozen=True)
class PackCheck:
    """The number of rules and cases checked, and one sentence per problem. Each sentence starts with the code."""

    rules: int
    cases: int
    problems: tuple[str, ...]


def check_pack(folder: Path) -> PackCheck:
    """Check the rules in ``folder`` and run their cases from ``cases/CODE.toml``.

    Raise RuleError, which states the file and the key, if a file contains no valid rule.
    """
    rules = load_user_pack(folder)
    problems = [f"{rule.code}: {text}" for rule in rules for text in _query_problems(rule)]
    count = 0
    broken = {text.split(":")[0] for text in problems}
    known = {rule.code: rule for rule in rules}
    for path in sorted(path for path in toml_files(folder) if path.parent.name == CASES):
        if path.stem not in known:
            raise RuleError(f"{path}: there is no rule {path.stem}")
        cases = load_cases(path)
        count += len(cases)
        if path.stem not in broken:
            problems += [f"{path.stem}: {text}" for text in _case_problems(cases, known[path.stem])]
    return PackCheck(len(rules), count, tuple(problems))


def _query_problems(rule: Rule) -> Iterator[str]:
    unknown = [name for need in rule.needs for name in need.split(" or ") if name not in catalog()]
    if unknown:
        yield f"key needs: there is no table {', '.join(unknown)}"
    assert rule.sql is not None
    if rule.scope == "ranks" and (per_rank_tables := tables_of_one_rank(rule)):
        yield f"key scope: {', '.join(per_rank_tables)} cannot be queried over all ranks together"
    if rule.scope == "ranks" and rule.needs_names:
        yield "key needs_names: no names are known when a query covers all ranks together"
    columns: list[str] = []
    for key, sql in {"only_if": rule.only_if, "sql": rule.sql}.items():
        try:
            columns = _columns(sql, _values(rule, sql)) if sql is not None else []
        except QueryError as error:
            yield f"key find.{key}: {error}"
            return
    yield from _column_problems(rule, columns)


def _values(rule: Rule, sql: str) -> dict[str, Any]:
    """Return values for the $names in ``sql``. Raise QueryError for an unknown name."""
    values: dict[str, Any] = {**_CONTEXT, **{param.name: param.value for param in rule.params}}
    named = set(_PARAM.findall(sql))
    if missing := sorted(named - set(values)):
        raise QueryError(f"${missing[0]} is neither a threshold of the rule nor one of {', '.join(_CONTEXT)}")
    return {name: values[name] for name in named}


def tables_of_one_rank(rule: Rule) -> list[str]:
    """Return the tables used by ``rule`` that exist only in the store of a single rank."""
    assert rule.sql is not None
    plain = re.sub(r"'[^']*'|--[^\n]*", "", f"{rule.only_if} {rule.sql}")
    named = {*re.findall(r"\w+", plain), *(name for need in rule.needs for name in need.split(" or "))}
    return sorted(name for name in named if not spans_ranks(name))


def _columns(sql: str, values: dict[str, Any]) -> list[str]:
    """Return the names of the columns that ``sql`` returns for an empty trace."""
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        path = Path(folder) / "empty.json"
        path.write_text('{"traceEvents": []}', encoding="utf-8")
        with TraceStore.for_files([str(path)]) as store:
            store.add_trace(str(path))
            return store.query(sql, values)[0]


def _column_problems(rule: Rule, columns: Sequence[str]) -> Iterator[str]:
    if "subject" not in columns:
        yield "key find.sql: no column is called subject"
    short = [column.removesuffix(unit) for column in columns for unit in _UNITS if column.endswith(unit)]
    known = {*columns, *short, *(param.name for param in rule.params)}
    try:
        pieces = parse_message(rule.message)
    except ValueError as error:
        yield f"key text.message: {error}"
        return
    for name in (piece.name for piece in pieces if isinstance(piece, Placeholder)):
        if name not in known:
            yield f"key text.message: {{{name}}} is neither a column of the query nor a threshold"


def _case_problems(cases: Sequence[Any], rule: Rule) -> Iterator[str]:
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
            try:
                texts = differences(case, rule, run_case(case, rule, Path(folder)), Path(folder))
            except PerfToolError as error:
                texts = [str(error)]
            except (OSError, *UNFORESEEN) as error:
                texts = [f"the case cannot run ({type(error).__name__}: {str(error)[:LONGEST_REASON]})"]
        yield from (f"case {case.name!r}: {text}" for text in texts)
