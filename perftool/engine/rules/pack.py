"""Loads rule files into Rule objects. Every error states the file and the key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from perftool.engine.rules.message import parse_message
from perftool.errors import RuleError
from perftool.model.choices import CONFIDENCES, SEVERITIES
from perftool.model.rule import SCOPES, SIDES, STATUSES, Advice, Param, Rule
from perftool.model.toml_text import parse_toml
from perftool.model.vendors import accelerators
from perftool.readers.files.small_file import read_small
from perftool.readers.files.walk import walk

CODE = re.compile(r"[A-Z]{1,4}\d{3}")
CODE_START = re.compile(r"[A-Z]{1,4}\d{0,3}")
CASES = "cases"
_Question = tuple[str | None, str | None, str | None, str | None, tuple[str, ...]]
# Limits on the number of rules in all user packs together, and on the size of a rule and of a pack in bytes. The
# shipped pack stays far below all of them.
_MOST_RULES = 1_000
_LARGEST_RULE = 64 << 10
_LARGEST_PACK = 8 << 20
# An error message lists at most this many unreadable folders.
_MOST_LISTED = 3
_SENTENCE_END = re.compile(r"(?<=\w)[.:;](?= |$)")
USER_CODE = re.compile(r"[A-Z]{1,4}9\d{2}")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DEVICES = ("any", "accelerators", *accelerators(), "cpu")
_TEXT_KEYS: dict[str, type | tuple[type, ...]] = {
    "message": str, "why": str, "fix": (str, dict), "short_fix": (str, dict), "example": str, "references": list,
}  # fmt: skip
_KEYS: dict[str, type | tuple[type, ...]] = {
    "code": str, "name": str, "summary": str, "severity": str, "confidence": str, "status": str, "since": str,
    "devices": (str, list), "tags": list, "needs": list, "benchmark": str, "params": dict, "find": dict, "text": dict,
    "retired": list, "scope": str, "explained_by": list, "explains": list, "needs_names": list, "advice": bool,
    "relieves": str, "whatif": dict, "whatif_ranks": dict, "always": bool, "changes_results": bool,
}  # fmt: skip
_OPTIONAL = {
    "benchmark", "params", "find", "needs", "tags", "retired", "scope", "explained_by", "explains", "needs_names",
    "advice", "relieves", "whatif", "whatif_ranks", "always", "changes_results",
}  # fmt: skip
_CHOICES = {"severity": SEVERITIES, "confidence": CONFIDENCES, "status": STATUSES, "scope": SCOPES, "relieves": SIDES}


@cache
def builtin_folder() -> Path:
    """Return the folder of the shipped pack: inside the package if it is installed, next to it in a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "rulepack"
    return installed if installed.is_dir() else package.parent / "rules"


def load_pack(folder: Path) -> list[Rule]:
    """Load all rules in ``folder`` and its subfolders, sorted by code. Raise RuleError if there are none, or if any is
    malformed."""
    rules, problems = [], []
    for path in pack_files(folder):
        try:
            rules.append(load_rule(path))
        except RuleError as error:
            problems.append(str(error))
    if problems:
        raise RuleError(*problems)
    if not rules:
        raise RuleError(f"{folder}: no rules (*.toml)")
    return sorted(rules, key=lambda rule: rule.code)


def pack_files(folder: Path) -> list[Path]:
    """Return the rule files in ``folder`` and its subfolders, sorted. Raise RuleError if there are too many, if they
    are too large, or if a subfolder cannot be read."""
    # The test cases of a pack may be in a subfolder.
    named = (path for path in toml_files(folder) if path.parent.name != CASES)
    files = sorted(islice(named, _MOST_RULES + 1))
    if len(files) > _MOST_RULES:
        raise RuleError(f"{folder}: more than {_MOST_RULES:,} rules")
    if sum(path.stat().st_size for path in files if path.is_file()) > _LARGEST_PACK:
        raise RuleError(f"{folder}: the rules are larger than {_LARGEST_PACK >> 20} MiB in total")
    return files


def toml_files(folder: Path) -> Iterator[Path]:
    """Yield the TOML files in ``folder`` and its subfolders, or none if it is not a folder. Raise RuleError if it, or a
    subfolder, cannot be read."""
    unread: list[str] = []
    for place, _, names in walk(folder, unread) if os.path.isdir(folder) else ():
        yield from (Path(place, name) for name in names if name.endswith(".toml"))
    if unread:
        raise RuleError(*unread[:_MOST_LISTED])


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """Return the rules of the shipped pack."""
    return tuple(load_pack(builtin_folder()))


def is_shipped(rule: Rule) -> bool:
    """Whether ``rule`` has exactly the queries of a shipped rule, and its code is not in the range for user packs. A
    user pack may repeat the queries of a shipped rule a thousand times, so all its rules must share the limits of
    third-party rules.

    The queries for the replay may be missing, because rule cases without a prediction omit them.
    """
    return not USER_CODE.fullmatch(rule.code) and _question(rule) in _shipped_questions()


@cache
def _shipped_questions() -> frozenset[_Question]:
    queries = [_question(rule) for rule in shipped_rules()]
    return frozenset((*queries, *((sql, only_if, None, None, names) for sql, only_if, _, _, names in queries)))


def _question(rule: Rule) -> _Question:
    """Return all queries of a rule, including the names that it needs."""
    return rule.sql, rule.only_if, rule.whatif, rule.whatif_ranks, rule.needs_names


def load_packs(folders: Sequence[Path] = ()) -> list[Rule]:
    """Load the shipped pack and the user packs in ``folders``, and sort the rules by code.

    The codes of user packs are x9xx (``GAP901``). Raise RuleError for a malformed file, another code in a user
    pack, or a duplicate code or name.
    """
    rules = list(shipped_rules())
    for folder in folders:
        rules += load_user_pack(folder)
        if len(rules) - len(shipped_rules()) > _MOST_RULES:
            raise RuleError(f"the packs contain more than {_MOST_RULES:,} rules in total")
    _require_unique(rules)
    return sorted(rules, key=lambda rule: rule.code)


def load_user_pack(folder: Path) -> list[Rule]:
    """Load all rules in ``folder`` and its subfolders. Raise RuleError for a code reserved for shipped rules."""
    if not folder.is_dir():
        raise RuleError(f"{folder}: not a folder")
    rules = load_pack(folder)
    for rule in rules:
        if not USER_CODE.fullmatch(rule.code):
            text = f"key code: {rule.code} is reserved for shipped rules; use 9 as the first digit"
            raise RuleError(f"{folder}: {text}")
        if rule.sql is None:
            raise RuleError(f"{folder}: {rule.code}: key find is missing")
    return rules


def _require_unique(rules: Sequence[Rule]) -> None:
    seen: dict[str, str] = {}
    for rule in rules:
        for text in (rule.code, rule.name, *rule.retired):
            if text in seen:
                raise RuleError(f"two rules are called {text}: {seen[text]} and {rule.code}")
            seen[text] = rule.code


def load_rule(path: Path) -> Rule:
    """Load a rule file. Raise RuleError, which states the file and the key."""
    try:
        data = parse_toml(read_small(path, _LARGEST_RULE).decode())
    except (OSError, ValueError) as error:
        raise RuleError(f"{path}: {error}") from None
    _check_keys(path, data, _KEYS, _OPTIONAL)
    _check_values(path, data)
    text = data["text"]
    _check_keys(path, text, _TEXT_KEYS, {"short_fix", "example", "references"}, "text.")
    try:
        parse_message(text["message"])
    except ValueError as error:
        raise RuleError(f"{path}: key text.message: {error}") from None
    devices = data["devices"]
    fix = _advice(path, "fix", text)
    return Rule(
        code=data["code"],
        name=data["name"],
        summary=data["summary"],
        severity=data["severity"],
        confidence=data["confidence"],
        status=data["status"],
        since=data["since"],
        devices=(devices,) if isinstance(devices, str) else tuple(devices),
        tags=tuple(data.get("tags", ())),
        needs=tuple(data.get("needs", ())),
        benchmark=data.get("benchmark"),
        params=_params(path, data.get("params", {})),
        sql=_sql(path, data, "find"),
        message=text["message"].strip(),
        why=text["why"].strip(),
        fix=fix,
        short_fix=_advice(path, "short_fix", text) if "short_fix" in text else _first_sentences(fix),
        example=text.get("example", "").strip("\n"),
        references=tuple(text.get("references", ())),
        retired=tuple(data.get("retired", ())),
        scope=data.get("scope", "rank"),
        explained_by=tuple(data.get("explained_by", ())),
        needs_names=tuple(data.get("needs_names", ())),
        only_if=data.get("find", {}).get("only_if"),
        advice=data.get("advice", True),
        explains=tuple(data.get("explains", ())),
        relieves=data.get("relieves"),
        whatif=_sql(path, data, "whatif"),
        whatif_ranks=_sql(path, data, "whatif_ranks"),
        always=data.get("always", "find" not in data),
        changes_results=data.get("changes_results", False),
    )


def _advice(path: Path, key: str, text: Mapping[str, Any]) -> Advice:
    """Return the advice under ``key``: one string for all devices, or one string for each device or variant."""
    texts = text[key] if isinstance(text[key], dict) else {"any": text[key]}
    for name, words in texts.items():
        if not isinstance(words, str) or not words.strip():
            raise RuleError(f"{path}: key text.{key}.{name} must be a string")
    if "any" not in texts:
        raise RuleError(f"{path}: key text.{key}.any is missing: it applies to devices without their own text")
    return Advice(tuple((name, words.strip()) for name, words in texts.items()))


def _first_sentences(fix: Advice) -> Advice:
    """Return the first sentence of each string of advice, for rules without a short fix."""
    return Advice(tuple((name, _SENTENCE_END.split(" ".join(words.split()), 1)[0]) for name, words in fix.texts))


def _sql(path: Path, data: Mapping[str, Any], key: str) -> str | None:
    if key not in data:
        return None
    known = {"sql": str, "only_if": str} if key == "find" else {"sql": str}
    _check_keys(path, data[key], known, {"only_if"}, f"{key}.")
    return str(data[key]["sql"])


def _check_keys(
    path: Path, data: Mapping[str, Any], known: Mapping[str, Any], optional: set[str], prefix: str = ""
) -> None:
    for key in data:
        if key not in known:
            raise RuleError(f"{path}: unknown key {prefix}{key}")
    for key, kind in known.items():
        if key not in data:
            if key in optional:
                continue
            raise RuleError(f"{path}: key {prefix}{key} is missing")
        if not isinstance(data[key], kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            expected = " or ".join(_TOML_NAMES[k] for k in kinds)
            raise RuleError(f"{path}: key {prefix}{key} must be {expected}")
        if isinstance(data[key], list) and not all(isinstance(part, str) for part in data[key]):
            raise RuleError(f"{path}: key {prefix}{key} must be a list of strings")


_TOML_NAMES = {str: "a string", list: "a list", dict: "a table", bool: "true or false"}


def _check_values(path: Path, data: Mapping[str, Any]) -> None:
    if not CODE.fullmatch(data["code"]):
        raise RuleError(f"{path}: key code must be one to four capital letters and three digits, not {data['code']!r}")
    if data["code"] != path.stem:
        raise RuleError(f"{path}: code {data['code']} does not match the file name")
    if not NAME.fullmatch(data["name"]):
        raise RuleError(f"{path}: key name must be lower-case words joined by hyphens, not {data['name']!r}")
    for key, choices in _CHOICES.items():
        if key in data and data[key] not in choices:
            raise RuleError(f"{path}: key {key}: {data[key]!r} is not one of {', '.join(choices)}")
    for text in data.get("explained_by", ()):
        if not isinstance(text, str) or not CODE_START.fullmatch(text):
            raise RuleError(f"{path}: key explained_by: {text!r} is neither a code nor the beginning of one")
    for text in data.get("retired", ()):
        if not isinstance(text, str) or not (CODE.fullmatch(text) or NAME.fullmatch(text)):
            raise RuleError(f"{path}: key retired: {text!r} is neither a code nor a name")
    devices = [data["devices"]] if isinstance(data["devices"], str) else data["devices"]
    for device in devices:
        if device not in DEVICES:
            raise RuleError(f"{path}: key devices: {device!r} is not one of {', '.join(DEVICES)}")


def _params(path: Path, tables: Mapping[str, Any]) -> tuple[Param, ...]:
    params = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise RuleError(f"{path}: key params.{name} must be a table with value, unit and why")
        known = {"value": (int, float, str, bool), "unit": str, "why": str}
        for key in ("value", "unit", "why"):
            if not isinstance(table.get(key), known[key]):  # type: ignore[arg-type]
                raise RuleError(f"{path}: key params.{name}.{key} is missing or of the wrong type")
        params.append(Param(name, table["value"], table["unit"], table["why"]))
    return tuple(params)
