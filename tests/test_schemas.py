"""The published schemas match what the program writes and reads, down to the last key."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from perftool.engine.analysis import analysed
from perftool.engine.gate.baseline import render_baseline
from perftool.engine.gate.lint import LintPlan, lint_run
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.engine.settings.settings import Settings
from perftool.model.toml_text import parse_toml
from perftool.readers.discover import find_inputs
from perftool.reporters.json import render_json
from perftool.reporters.lint.documents import render_lint_json

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_traces"


def schema(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))


def strict(part: Any) -> Any:
    """Return the schema with unknown keys forbidden. The published schema allows some for later versions."""
    if isinstance(part, list):
        return [strict(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {key: strict(value) for key, value in part.items()}
    return {**made, "additionalProperties": False} if "required" in made and "properties" in made else made


def check(document: Any, name: str) -> None:
    jsonschema.validate(document, strict(schema(name)))


@pytest.fixture(scope="module")
def linted() -> Any:
    plan = LintPlan(load_pack(builtin_folder()), Settings(), ROOT)
    with analysed(find_inputs([str(SAMPLES / "gaudi2_unoptimised")]), plan.rules) as run:
        return lint_run(run, plan)


def test_the_schemas_are_schemas_and_current() -> None:
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "tools" / "docs" / "schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    for name, page in module.PAGES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page()
        jsonschema.Draft202012Validator.check_schema(json.loads(page()))


def test_reports_and_lint_results_on_a_gaudi_match_the_schema(linted: Any) -> None:
    check(json.loads(render_json(linted.report)), "report")
    check(json.loads(render_lint_json(linted)), "lint")


def test_a_baseline(linted: Any) -> None:
    document = json.loads(render_baseline(linted.findings))
    assert document["findings"]
    check(document, "baseline")


def test_the_configuration_of_the_guide() -> None:
    guide = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    text = guide.split("```toml\n", 1)[1].split("```", 1)[0]
    check(parse_toml(text)["tool"]["habana_perf_tool"], "configuration")
    with pytest.raises(jsonschema.ValidationError):
        check({"fail-on": "sometimes"}, "configuration")


def test_every_shipped_rule() -> None:
    known = jsonschema.Draft202012Validator(schema("rule"))
    for path in sorted(builtin_folder().rglob("*.toml")):
        known.validate(parse_toml(path.read_text(encoding="utf-8")))
