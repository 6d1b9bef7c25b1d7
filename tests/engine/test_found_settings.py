"""A configuration file that was discovered has limited rights. A configuration file that the user names may do
anything.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perftool.engine.gate.baseline import read_baseline
from perftool.engine.rules.pack import load_pack
from perftool.engine.settings.settings import load_settings
from perftool.errors import BaselineError, RuleError, SettingsError

FOLDER = Path("stranger")
CONFIG = FOLDER / "habana_perf_tool.toml"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (FOLDER / "rules").mkdir(parents=True)
    Path("outside").mkdir()
    Path("outside/base.toml").write_text("preview = true\n")
    os.symlink("../outside", FOLDER / "link")


# The text of a key, and whether a discovered configuration file may set it.
ALLOWED = [
    'select = ["GAP"]', 'ignore = ["GAP101"]', 'fail-on = "never"', "exit-zero = true", 'exclude = ["*"]',
    'output-format = "github"', "preview = true", 'rule-packs = ["rules"]', 'rule-packs = ["./rules/../rules"]',
    'baseline = "accepted.json"', "[rules.GAP101]\nseverity = 'error'", "[budgets]\nstep_time_ms = 5",
    "[budgets]\nn = {query = 'SELECT 1', limit = '<= 1'}", 'output-file = ""',
]  # fmt: skip
REFUSED = [
    'output-file = "out.txt"', 'output-file = "../victim"', 'output-file = "/etc/profile"', "jobs = 2",
    'baseline = "../outside/accepted.json"', 'baseline = "/dev/zero"', 'baseline = "link/accepted.json"',
    'extend = "../outside/base.toml"', 'extend = "link/base.toml"', 'extend = "/dev/zero"',
    'rule-packs = ["rules", "../outside"]', 'rule-packs = ["/"]', 'rule-packs = ["link"]',
]  # fmt: skip


@pytest.mark.parametrize("text", ALLOWED)
def test_a_discovered_configuration_may_set_harmless_keys(text: str) -> None:
    CONFIG.write_text(text)
    assert load_settings([str(FOLDER)]).values


@pytest.mark.parametrize("text", REFUSED)
def test_other_keys_need_a_named_or_trusted_configuration(text: str) -> None:
    CONFIG.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings([str(FOLDER)])
    key = text.split(" ")[0]
    assert f"{CONFIG}: key {key}: a discovered configuration may" in str(caught.value)
    assert f"(--config {CONFIG}) or pass --trust-config" in str(caught.value)
    if "/dev/zero" not in text:
        assert load_settings([str(FOLDER)], trust=True).values == load_settings([], [str(CONFIG)]).values != {}


def test_a_dash_in_a_discovered_configuration_is_not_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    CONFIG.write_text('log = ["-"]\nmetrics = ["-"]')
    monkeypatch.chdir(FOLDER)
    values = load_settings(["."]).values
    assert (values["log"], values["metrics"]) == (["./-"], ["./-"])


@pytest.mark.parametrize(
    "pattern", ["/**", "../**", "../outside/*", "link/*", "l*/*", "**/../../*", "rules/../../**", "[l]ink/**/*.toml"]
)
def test_discovered_patterns_stay_in_the_folder(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CONFIG.write_text(f'log = ["{pattern}"]')
    looked_at: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: looked_at.append(os.path.realpath(path)) or listdir(path))
    with pytest.raises(
        SettingsError, match="key log: a discovered configuration may only name files in its own folder"
    ):
        load_settings([str(FOLDER)])
    assert all(Path(place).is_relative_to(FOLDER.resolve()) for place in looked_at)


@pytest.mark.parametrize(
    "text",
    [
        f"select = {['GAP'] * 1001}", f"source-roots = {['src'] * 1001}", f"rule-packs = {['**'] * 1001}",
        f"[per-file-ignores]\n'*' = {['GAP'] * 1001}", f"exclude = ['{'*?' * 40_000}']",
        f"[per-file-ignores]\n'{'[a]' * 30_000}' = ['GAP']",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_the_length_of_a_key_is_limited(text: str) -> None:
    CONFIG.write_text(text)
    with pytest.raises(
        SettingsError, match="a discovered configuration may have at most 1,000 entries and 64 KiB of text"
    ):
        load_settings([str(FOLDER)])


def test_the_number_of_sets_of_characters_is_limited() -> None:
    CONFIG.write_text(f"exclude = {['[ab]' * 50] * 3}")
    with pytest.raises(SettingsError, match=r"key exclude: a discovered configuration may have at most 100 sets"):
        load_settings([str(FOLDER)])


def test_a_file_that_it_extends_has_the_same_limits() -> None:
    CONFIG.write_text('extend = "more.toml"')
    (FOLDER / "more.toml").write_text('output-file = "out.txt"')
    with pytest.raises(SettingsError, match=r"more\.toml: key output-file: a discovered configuration may"):
        load_settings([str(FOLDER)])


@pytest.mark.parametrize("files", [21, 3_000])
def test_the_length_of_a_chain_of_files_is_limited(files: int) -> None:
    for number in range(files):
        (FOLDER / f"{number}.toml").write_text(f'extend = "{number + 1}.toml"')
    (FOLDER / f"{files}.toml").write_text("preview = true")
    with pytest.raises(SettingsError, match=r"20\.toml: key extend: a chain of more than 20 files"):
        load_settings([], [str(FOLDER / "0.toml")])
    assert load_settings([], [str(FOLDER / f"{files - 19}.toml")]).selection.preview


def test_a_circle_of_files_or_links_is_reported() -> None:
    CONFIG.write_text('extend = "more.toml"')
    (FOLDER / "more.toml").write_text('extend = "habana_perf_tool.toml"')
    with pytest.raises(SettingsError, match="the files extend each other in a cycle"):
        load_settings([str(FOLDER)])
    (FOLDER / "more.toml").unlink()
    os.symlink("more.toml", FOLDER / "more.toml")
    with pytest.raises(SettingsError, match=r"more\.toml: cannot read"):
        load_settings([str(FOLDER)])
    CONFIG.write_text('rule-packs = ["more.toml"]')
    assert load_settings([str(FOLDER)]).rule_packs == (FOLDER / "more.toml",)


def test_a_device_is_not_read_for_ever() -> None:
    CONFIG.write_text('extend = "/dev/zero"')
    with pytest.raises(SettingsError, match="/dev/zero: cannot read"):
        load_settings([], [str(CONFIG)])
    with pytest.raises(BaselineError, match="cannot be read"):
        read_baseline(Path("/dev/zero"))
    os.symlink("/dev/zero", FOLDER / "rules" / "ACM901.toml")
    with pytest.raises(RuleError, match="not a regular file"):
        load_pack(FOLDER / "rules")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for() -> None:
    os.mkfifo("pipe")
    with pytest.raises(SettingsError, match="pipe: cannot read"):
        load_settings([], ["pipe"])


def test_a_file_of_many_megabytes_is_refused_as_a_configuration() -> None:
    CONFIG.write_text("#" * (2 << 20))
    with pytest.raises(SettingsError, match="larger than 1 MiB"):
        load_settings([str(FOLDER)])
