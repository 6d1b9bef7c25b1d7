"""The tool's configuration: which file is used, which value takes precedence, and messages about invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.engine.rules.selection import COMMAND_LINE, Selection, Selector
from perftool.engine.settings.settings import BudgetText, Override, Settings, adjust, load_settings, merge
from perftool.engine.settings.settings_file import Layer, discover
from perftool.errors import SettingsError

TABLE = "[tool.habana_perf_tool]\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str = "") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_file_the_defaults_hold() -> None:
    assert load_settings([]) == Settings()


def test_the_closest_file_is_used_and_files_are_not_merged() -> None:
    write("pyproject.toml", TABLE + 'fail-on = "error"\npreview = true\n')
    write("runs/habana_perf_tool.toml", 'fail-on = "info"\n')
    trace = write("runs/night/trace.json")
    assert load_settings([str(trace)]).fail_on == "info"
    assert load_settings([str(trace)]).selection.preview is False
    assert load_settings([]).fail_on == "error"


def test_inputs_elsewhere_fall_back_to_the_working_directory(tmp_path: Path) -> None:
    config = write("project/habana_perf_tool.toml")
    trace = write("elsewhere/trace.json")
    assert discover([str(trace)]) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "project")
        assert discover([str(tmp_path / trace)]) == tmp_path / config


def test_the_order_within_a_folder(tmp_path: Path) -> None:
    write("pyproject.toml", "[tool.other]\n")
    assert discover([]) is None
    for name in ("pyproject.toml", "habana_perf_tool.toml", ".habana_perf_tool.toml"):
        write(name, TABLE if name == "pyproject.toml" else "")
        assert discover([]) == tmp_path / name


@pytest.mark.parametrize("other", ["tool = 1", 'tool = "x"', "tool = []"])
def test_a_pyproject_with_an_odd_tool_table_is_ignored(other: str) -> None:
    write("pyproject.toml", other)
    assert load_settings([]) == Settings()


def test_extend_inherits_and_the_file_itself_wins() -> None:
    write("shared/base.toml", 'select = ["GAP"]\nfail-on = "error"\nbaseline = "accepted.json"\n')
    write("habana_perf_tool.toml", 'extend = "shared/base.toml"\nfail-on = "info"\nextend-select = ["SYN101"]\n')
    found = load_settings([])
    assert found.fail_on == "info"
    assert found.baseline == Path("shared/accepted.json")
    assert [selector.text for selector in found.selection.select] == ["GAP", "SYN101"]


def test_files_that_extend_each_other_are_refused() -> None:
    write("a.toml", 'extend = "b.toml"\n')
    write("b.toml", 'extend = "a.toml"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings([], ["a.toml"])
    assert str(caught.value) == "a.toml: key extend: the files extend each other in a cycle"


def test_options_override_pairs_and_pairs_override_files() -> None:
    write("habana_perf_tool.toml", 'fail-on = "error"\nmin-severity = "error"\nmin-confidence = "high"\n')
    pairs = ['fail-on = "info"', 'min-severity = "info"']
    found = load_settings([], pairs, options={"fail-on": "never", "exclude": None})
    assert (found.fail_on, found.min_severity, found.min_confidence) == ("never", "info", "high")
    assert found.origins == {
        "fail-on": COMMAND_LINE,
        "min-severity": "--config 'min-severity = \"info\"'",
        "min-confidence": "habana_perf_tool.toml",
    }


def test_isolated_ignores_files() -> None:
    write("habana_perf_tool.toml", 'fail-on = "error"\n')
    assert load_settings([], isolated=True) == Settings()


def test_select_replaces_and_extensions_add() -> None:
    found = merge(
        [
            Layer("a.toml", {"select": ["GAP"], "extend-select": ["SYN"], "ignore": ["GAP102"]}),
            Layer(COMMAND_LINE, {"select": ["TRC"], "extend-ignore": ["TRC101"]}),
        ]
    )
    assert found.selection == Selection(
        (Selector("TRC"),), (Selector("GAP102", "a.toml, key ignore"), Selector("TRC101"))
    )


def test_extend_select_alone_adds_to_the_defaults() -> None:
    found = merge([Layer(COMMAND_LINE, {"extend-select": ["GAP104"]})])
    assert [selector.text for selector in found.selection.select] == ["ALL", "GAP104"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = true", "unknown key colour; the keys are extend, log, "),
        ("select = 'GAP'", "key select must be a list of strings"),
        ("preview = 1", "key preview must be a boolean"),
        ("fail-on = 'fatal'", "key fail-on: 'fatal' is not one of error, warning, info, never"),
        ("budgets = {x = [1]}", "key budgets must be a table of budgets"),
        ("rules = {GAP101 = 3}", "key rules must be a table of tables"),
        (r'extend = "a\u0000"', "key extend contains a zero byte"),
        (r'rule-packs = ["a", "\u0000"]', "key rule-packs contains a zero byte"),
        (r'per-file-ignores = {"\u0000" = ["GAP"]}', "key per-file-ignores contains a zero byte"),
        ("select = [", "not valid TOML ("),
        ("select = " + "[" * 5000 + "]" * 5000, "not valid TOML (values nest too deeply)"),
        ("[budgets]\nstep_time_ms = 0x" + "f" * 5000, "not valid TOML (an integer has more than 64 bits)"),
        ("x" + ".x" * 10 + " = 1", "not valid TOML (a key has more than 10 parts)"),
        ("log = {x" + ' . "x"' * 10 + " = 1}", "not valid TOML (a key has more than 10 parts)"),
        ('log = """a\'\\"""""\n[x' + ".x" * 10 + "]", "not valid TOML (a key has more than 10 parts)"),
        (f"select = '{'x.' * 99}' # {'x.' * 99}", "key select must be a list of strings"),
        ("select = " + "[" * 90 + "]" * 90, "key select must be a list of strings"),
    ],
)
def test_wrong_values_are_named_with_file_and_key(text: str, message: str) -> None:
    write("habana_perf_tool.toml", text)
    with pytest.raises(SettingsError) as caught:
        load_settings([])
    assert str(caught.value).startswith(f"habana_perf_tool.toml: {message}")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("config", "isolated", "message"),
    [
        (["missing.toml"], False, "missing.toml: cannot read (No such file or directory)"),
        (["a.toml", "b.toml"], False, "--config names 2 files; only one is allowed"),
        (["a.toml"], True, "--isolated ignores configuration files, so --config must not name one"),
        (["fail-on = error"], False, "--config 'fail-on = error': neither a file nor a TOML pair"),
    ],
)
def test_wrong_config_options(config: list[str], isolated: bool, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings([], config, isolated)
    assert str(caught.value).startswith(message)


def test_budgets_are_read_in_every_form() -> None:
    write(
        "habana_perf_tool.toml",
        '[budgets]\nstep_time_ms = 120\ndataloader_ratio = "<= 5%"\nslow = {query = "SELECT 1", limit = "< 2"}\n',
    )
    key = "habana_perf_tool.toml, key budgets."
    assert load_settings([]).limits == (
        BudgetText("step_time_ms", "120", None, key + "step_time_ms"),
        BudgetText("dataloader_ratio", "<= 5%", None, key + "dataloader_ratio"),
        BudgetText("slow", "< 2", "SELECT 1", key + "slow"),
    )


def test_thresholds_and_severities_are_overridden() -> None:
    write("habana_perf_tool.toml", '[rules.GAP101]\nseverity = "error"\nmax-idle = 0.5\n')
    rules = load_pack(builtin_folder())
    before = {rule.code: rule for rule in rules}
    after = {rule.code: rule for rule in adjust(rules, load_settings([]).overrides)}
    assert after["GAP101"].severity == "error"
    assert {param.name: param.value for param in after["GAP101"].params}["max_idle"] == 0.5
    assert {code for code in after if after[code] != before[code]} == {"GAP101"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (Override("XYZ101", None, {}, "a.toml"), "a.toml: key rules.XYZ101: there is no such rule"),
        (
            Override("GAP101", "bad", {}, "a.toml"),
            "a.toml: key rules.GAP101.severity: 'bad' is not one of error,",
        ),
        (
            Override("GAP101", None, {"idle": 1}, "a.toml"),
            "a.toml: key rules.GAP101: unknown key idle; GAP101 has",
        ),
        (
            Override("GAP101", None, {"max_idle": "1"}, "a.toml"),
            "a.toml: key rules.GAP101.max_idle must be a num",
        ),
        (Override("GAP101", None, {"max_idle": True}, "a.toml"), "a.toml: key rules.GAP101.max_idle must be"),
    ],
)
def test_wrong_overrides(override: Override, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        adjust(load_pack(builtin_folder()), [override])
    assert str(caught.value).startswith(message)


def test_a_file_named_like_a_pair_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path('fail-on = "warning"').write_text('exit-zero = true\noutput-file = "planted.txt"\n')

    settings = load_settings([], config=['fail-on = "warning"'])

    assert settings.values == {"fail-on": "warning"}
