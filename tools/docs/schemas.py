"""Builds JSON Schemas of the program's outputs and inputs from its own classes and lists.

``tools/docs/generate.py`` writes them to ``docs/schemas``; tests validate real outputs against them.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from perftool.engine.rules import pack
from perftool.engine.settings.table import KEYS
from perftool.model.chains import Chain
from perftool.model.choices import FAIL_ON, SEVERITIES
from perftool.model.efficiency import Efficiency
from perftool.model.gaudi import Engine, Fallback, Recipe
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.iterations import Serving
from perftool.model.links import DOCUMENTATION
from perftool.model.lint import BaselineEntry
from perftool.model.memory import MemoryUse
from perftool.model.metrics import metric_names
from perftool.model.modules import ModuleTime
from perftool.model.place import Location, Source
from perftool.model.replayed import ReplayedRun, ReplayModel, Together
from perftool.model.report import (  # fmt: skip
    BREAKDOWN,
    Cause,
    Device,
    Finding,
    Gain,
    GroupRole,
    Metric,
    NotApplicable,
    Phase,
    RankSummary,
    Run,
    Share,
    Step,
)

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
_PLAIN: dict[Any, Schema] = {
    str: TEXT, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    type(None): {"type": "null"}, Any: {},
}  # fmt: skip
_TYPES_OF_SETTINGS: dict[str, Schema] = {
    "string": TEXT, "list of strings": TEXTS, "boolean": {"type": "boolean"}, "whole number": {"type": "integer"},
    "table of lists of strings": {"type": "object", "additionalProperties": TEXTS},
    "table of tables": {"type": "object", "additionalProperties": {
        "type": "object", "properties": {"severity": {"enum": list(SEVERITIES)}}}},
    "table of budgets": {"type": "object", "additionalProperties": {
        "anyOf": [TEXT, {"type": "object", "properties": {"query": TEXT, "limit": TEXT}, "required": ["limit"]}]}},
}  # fmt: skip
_TYPES_OF_RULES: dict[Any, Schema] = {
    str: TEXT, list: TEXTS, dict: {"type": "object"}, bool: {"type": "boolean"}, (str, list): {"anyOf": [TEXT, TEXTS]},
    (str, dict): {"anyOf": [TEXT, {"type": "object", "additionalProperties": TEXT}]},
}  # fmt: skip


def report() -> Schema:
    """Return the schema of the output of ``analyze --output-format json``."""
    return _document("report", "The JSON report", _report())


def lint() -> Schema:
    """Return the schema of the output of ``lint --output-format json``: the report, and why the run passes or fails."""
    made = _report()
    found = made["properties"]["findings"]["items"]
    more = {"file": TEXT, "help": TEXT, "baseline_state": {"enum": ["new", "unchanged", None]}}
    made["properties"]["findings"] = _list(_object({**found["properties"], **more}))
    counts = _object(dict.fromkeys(SEVERITIES, _PLAIN[int]))
    gate = {"counts": counts, "fails": _PLAIN[bool], "rules": TEXTS, "stale": _list(_of(BaselineEntry)),
            "suppressed": _PLAIN[int]}  # fmt: skip
    return _document("lint", "The JSON of lint", _object({**made["properties"], "lint": _object(gate)}))


def baseline() -> Schema:
    """Return the schema of the output of ``lint --write-baseline``."""
    parts = {"version": {"const": 1}, "tool": _tool(), "findings": _list(_of(BaselineEntry))}
    return _document("baseline", "A baseline of lint", _object(parts))


def configuration() -> Schema:
    """Return the schema of ``habana_perf_tool.toml``, or of the table ``[tool.habana_perf_tool]`` of
    ``pyproject.toml``.
    """
    keys = {}
    for key in KEYS:
        kind = {"enum": list(key.choices)} if key.choices else _TYPES_OF_SETTINGS[key.type]
        default = {} if key.written_default is None else {"default": key.written_default}
        keys[key.key] = {**kind, "description": key.help, **default}
    assert set(FAIL_ON) <= set(keys["fail-on"]["enum"])
    return _document("configuration", "Configuration", {**_object(keys), "required": [], "additionalProperties": False})


def rule() -> Schema:
    """Return the schema of a rule file."""
    kinds = {name: _TYPES_OF_RULES[kind] for name, kind in pack._KEYS.items()}
    kinds |= {name: {"enum": list(words)} for name, words in pack._CHOICES.items()}
    kinds["code"] = {"type": "string", "pattern": f"^{pack.CODE.pattern}$"}
    kinds["name"] = {"type": "string", "pattern": f"^{pack.NAME.pattern}$"}
    value = {"anyOf": [_PLAIN[float], TEXT, _PLAIN[bool]]}
    kinds["params"] = {"type": "object", "additionalProperties": _object({"value": value, "unit": TEXT, "why": TEXT})}
    kinds["find"] = {**_object({"sql": TEXT, "only_if": TEXT}), "required": ["sql"]}
    kinds["whatif"] = _object({"sql": TEXT})
    texts = {name: _TYPES_OF_RULES[kind] for name, kind in pack._TEXT_KEYS.items()}
    kinds["text"] = {"type": "object", "properties": texts, "additionalProperties": False}
    needed = sorted(set(kinds) - pack._OPTIONAL)
    return _document("rule", "A rule file", {**_object(kinds), "required": needed, "additionalProperties": False})


def _report() -> Schema:
    place = _of(Location, without=("name", "sources"))
    source = _null(_of(Source, without=("share", "ns", "here")))
    where = _object({**place["properties"], "source": source, "sources": _list(_of(Source))})
    related = _object({**place["properties"], "name": _null(TEXT)})
    finding = _of(Finding, without=("path", "location", "related", "gain", "evidence"))["properties"]
    finding |= {
        "location": where,
        "related": _list(related),
        "gain": _null(_of(Gain, without=("bound_share",))),
        "evidence": {"type": "object"},
    }
    read = _of(InputFile, without=("issues", "events_end"))["properties"]
    issue = _of(ImportIssue, without=("bytes", "offset"))
    cause = {**_of(Cause, without=("longest",))["properties"], "longest": _null(place)}
    step = _of(Step, without=("breakdown_ns",))["properties"]
    model = _of(ReplayModel, without=("together",))["properties"]
    served = _of(Serving)["properties"] | dict.fromkeys(("generated_per_s", "prompt_per_s"), _PLAIN[float])
    parts = {
        "version": {"const": 1}, "tool": _tool(), "inputs": _list(_object({**read, "issues": _list(issue)})),
        "device": _of(Device), "run": _of(Run), "ranks": _list(_of(RankSummary)), "engines": _list(_of(Engine)),
        "verdict": _object({"headline": TEXT, "detail": TEXT, "causes": _list(_object(cause))}),
        "summary": _object({name: _of(Metric, without=("name",)) for name in metric_names()}),
        "steps": _list(_object({**step, "breakdown_ns": _object(dict.fromkeys(BREAKDOWN, _PLAIN[int]))})),
        **{name: _list(_of(Share)) for name in ("idle_causes", "top_device_ops", "top_ops")},
        "phases": _list(_of(Phase)), "serving": _null(_object(served)),
        "groups": _list(_of(GroupRole)),
        "recipes": _list(_of(Recipe)), "fallbacks": _list(_of(Fallback)), "findings": _list(_object(finding)),
        "model": _null(_object({**model, "run": _null(_of(ReplayedRun))})), "together": _null(_of(Together)),
        "not_applicable": _list(_of(NotApplicable)), "omitted": _list(TEXT), "efficiency": _null(_of(Efficiency)),
        "chains": _list(_of(Chain)), "modules": _list(_of(ModuleTime)),
        "memory": _list(_of(MemoryUse)),
    }  # fmt: skip
    return _object(parts)


def _of(kind: type, without: tuple[str, ...] = ()) -> Schema:
    """Return the schema of the JSON object for a dataclass."""
    hints = get_type_hints(kind)
    return _object({field.name: _typed(hints[field.name]) for field in fields(kind) if field.name not in without})


def _typed(hint: Any) -> Schema:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_typed(part) for part in parts]}
    if origin is tuple:
        return _list(_typed(parts[0]))
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object"}
    assert is_dataclass(hint), hint
    return _of(hint)


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _tool() -> Schema:
    return _object({"name": {"const": "habana_perf_tool"}, "version": TEXT})


def _document(name: str, title: str, schema: Schema) -> Schema:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{DOCUMENTATION}schemas/{name}.json"}
    return {**head, "title": title, **schema}


def _text(schema: Schema) -> str:
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


PAGES = {
    f"schemas/{made.__name__}.json": lambda made=made: _text(made())  # type: ignore[misc]
    for made in (report, lint, baseline, configuration, rule)
}
