"""Every malformed rule file is reported in one sentence with the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.rule_files import TEXT, write

from perftool.engine.rules.pack import builtin_folder, load_pack, load_rule
from perftool.errors import RuleError
from perftool.model.rule import Param

MALFORMED: dict[str, tuple[tuple[str, str], str]] = {
    "no TOML": (('code = "USR901"', "code ="), "Invalid value"),
    "unknown key": (('since = "0.1"', 'since = "0.1"\nsense = 1'), "unknown key sense"),
    "missing key": (('severity = "warning"\n', ""), "key severity is missing"),
    "missing text": (('fix = "fix"\n', ""), "key text.fix is missing"),
    "unknown text": (('fix = "fix"', 'fix = "fix"\nhint = ""'), "unknown key text.hint"),
    "wrong type": (('name = "a-rule"', "name = 1"), "key name must be a string"),
    "wrong list": (('needs = ["steps"]', 'needs = "steps"'), "key needs must be a list"),
    "list of other things": (('needs = ["steps"]', 'needs = ["steps", []]'), "key needs must be a list of strings"),
    "wrong text type": (('why = "why"', 'why = ["why"]'), "key text.why must be a string"),
    "wrong sql": (("sql = \"SELECT 'all' AS subject, 1 AS n\"", "sql = 1"), "key find.sql must be a string"),
    "unknown find": (("[find]", "[find]\nquery = ''"), "unknown key find.query"),
    "code without digits": (
        ('"USR901"', '"USR"'),
        "key code must be one to four capital letters and three digits, not 'USR'",
    ),
    "code of another file": (('"USR901"', '"USR902"'), "code USR902 does not match the file name"),
    "name with capitals": (
        ('"a-rule"', '"A rule"'),
        "key name must be lower-case words joined by hyphens, not 'A rule'",
    ),
    "severity": (('"warning"', '"fatal"'), "key severity: 'fatal' is not one of error, warning, info"),
    "confidence": (('"high"', '"sure"'), "key confidence: 'sure' is not one of high, medium, low"),
    "status": (('"stable"', '"new"'), "key status: 'new' is not one of preview, stable, deprecated"),
    "device": (
        ('devices = "any"', 'devices = ["gpu"]'),
        "key devices: 'gpu' is not one of any, accelerators, hpu, mtia, xpu, rocm, cuda, cpu",
    ),
    "parameter without reason": (
        ('unit = "steps"\nwhy = "because"', 'unit = "steps"'),
        "key params.limit.why is missing or of the wrong type",
    ),
    "parameter without table": (
        ('[params.limit]\nvalue = 2\nunit = "steps"\nwhy = "because"', "[params]\nlimit = 2"),
        "key params.limit must be a table with value, unit and why",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_rule(case: str, tmp_path: Path) -> None:
    change, sentence = MALFORMED[case]
    path = write(tmp_path, change)
    with pytest.raises(RuleError) as caught:
        load_rule(path)
    assert str(caught.value).startswith(f"{path}: {sentence}")
    assert "\n" not in str(caught.value)


def test_a_binary_rule_file(tmp_path: Path) -> None:
    path = tmp_path / "USR901.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RuleError, match=r"USR901\.toml: .*utf-8"):
        load_rule(path)


def test_a_well_formed_rule(tmp_path: Path) -> None:
    rule = load_rule(write(tmp_path))
    assert (rule.code, rule.devices, rule.needs, rule.tags) == ("USR901", ("any",), ("steps",), ())
    assert rule.params == (Param("limit", 2, "steps", "because"),)
    assert (rule.message, rule.why, rule.fix.whole, rule.example) == ("{subject}: {n}", "why", "fix", "")


def test_a_pack_is_sorted_by_code(tmp_path: Path) -> None:
    for code, folder in (("USR902", "a"), ("USR901", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{code}.toml").write_text(TEXT.replace("USR901", code))
    assert [rule.code for rule in load_pack(tmp_path)] == ["USR901", "USR902"]


def test_an_empty_pack(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no rules"):
        load_pack(tmp_path)


def test_the_shipped_pack_loads() -> None:
    assert {"TRC000", "TRC001", "GAP101"} <= {rule.code for rule in load_pack(builtin_folder())}


def test_all_malformed_files_of_a_pack_are_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = write(tmp_path / "a", ('"warning"', '"fatal"'))
    second = write(tmp_path / "b", ('"high"', '"sure"'))
    with pytest.raises(RuleError) as caught:
        load_pack(tmp_path)
    assert str(caught.value).splitlines() == [
        f"{first}: key severity: 'fatal' is not one of error, warning, info",
        f"{second}: key confidence: 'sure' is not one of high, medium, low",
    ]
