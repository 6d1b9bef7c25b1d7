"""Generated pages are up to date, and the instructions in the guides work."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import tomli
import typer
from builders.shown_commands import shown_commands
from typer.testing import CliRunner
from verdicts.recordings import FOLDER, path_of

from perftool import fused
from perftool.cli import app
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.links import DOCUMENTATION

ROOT = Path(__file__).parents[1]


@pytest.mark.usefixtures("remembered")
def test_the_generated_pages_are_current() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)

    assert [name for name, page in generate.PAGES.items() if (ROOT / "docs" / name).read_text() != page()] == []
    assert {f"rules/{page.name}" for page in (ROOT / "docs" / "rules").iterdir()} < set(generate.PAGES)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="PERFTOOL_VERDICT_TRACES names no folder of recorded traces")
@pytest.mark.usefixtures("remembered")
def test_the_comparison_on_the_page_of_cuda() -> None:
    """This test is not in tests/verdicts because a test in this file analyses the same traces with the same rules, and
    analyses are remembered.
    """
    result = CliRunner().invoke(app, ["diff", *(path_of(f"v100_resnet50_workers{count}") for count in (0, 4))])

    page = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    shown = re.search(
        r"```text\n\$ habana_perf_tool diff resnet50_num_workers_0/ resnet50_num_workers_4/\n(.*?)```", page, re.DOTALL
    )
    assert shown
    assert (result.exit_code, result.stdout[: len(shown[1])]) == (0, shown[1])


def test_findings_point_at_the_documentation_of_the_project() -> None:
    names = {path.stem for path in (ROOT / "docs" / "rules").iterdir()}
    causes = re.findall(r'<a id="(\w+)">', (ROOT / "docs" / "idle-time.md").read_text(encoding="utf-8"))

    assert f"site_url: {DOCUMENTATION}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert names == {rule.code for rule in load_pack(builtin_folder())}
    assert {cause for rule in load_pack(builtin_folder()) for cause in rule.explains} <= {
        *causes,
        "exposed_collectives",
    }


def test_the_rule_of_the_guide_passes_its_own_check(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "own-rules.md").read_text(encoding="utf-8")
    rule, cases = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "cases").mkdir()
    (tmp_path / "ACM901.toml").write_text(rule, encoding="utf-8")
    (tmp_path / "cases" / "ACM901.toml").write_text(cases, encoding="utf-8")

    result = CliRunner().invoke(app, ["rule", "--check", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert "2 cases, 0 problems" in result.output


def test_the_baseline_of_the_guide_is_for_the_folder_that_is_checked() -> None:
    guide = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    written, checked = re.findall(r"habana_perf_tool lint (\S+) --(?:write-)?baseline accepted.json", guide)

    assert written == checked


def test_the_guide_lists_every_extra() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").partition("| extra |")[2].partition("\n\n")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(project["optional-dependencies"]) - {"test"}


def test_the_image_is_built_from_the_files_of_the_wheel() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {line[1:] for line in lines if line.startswith("!")}

    assert "*" in lines
    assert copied == {*wheel["packages"], *wheel["force-include"], "LICENSE", "README.md", "pyproject.toml"}


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").rglob("*.md"))]
    prose = {page: re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL) for page in pages}
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", prose[page])]

    assert links
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    folders = (ROOT / "docs", ROOT / "docs" / "fused", ROOT / "docs" / "symptoms")
    pages = {page.relative_to(ROOT / "docs").as_posix() for folder in folders for page in folder.glob("*.md")}

    assert {page for page in pages if f": {page}\n" not in site} == set()


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("material")
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    pages = [page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")]
    elsewhere = r"=\"?(?:https?:)?//"
    loaded = re.compile(rf"<(?:script|img|iframe)[^>]+src{elsewhere}|<link[^>]+stylesheet[^>]+href{elsewhere}")
    assert len(pages) > 20
    assert [found for page in pages for found in loaded.findall(page)] == []


def test_every_public_fused_op_has_a_page() -> None:
    pages = [ROOT / "docs" / "fused.md", *(ROOT / "docs" / "fused").glob("*.md")]
    words = set(re.findall(r"\w+", " ".join(page.read_text(encoding="utf-8") for page in pages)))

    assert set(fused.__all__) - words == set()


def test_the_tests_that_a_page_names_exist() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    written = set(re.findall(r"^\s*(?:async )?def (test_\w+)", sources, re.MULTILINE))
    for page in (ROOT / "docs").glob("*.md"):
        named = re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))
        assert not set(named) - written, page


def test_the_pages_contain_no_scripts() -> None:
    assert list((ROOT / "docs").rglob("*.py")) == []


def test_ci_builds_the_site_and_a_warning_fails_it() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

    assert ".venv/bin/mkdocs build --strict" in script
    assert "  anchors: warn\n" in site


@pytest.mark.parametrize(("page", "words"), shown_commands(), ids=lambda value: str(value)[:60])
def test_every_command_on_a_page_is_accepted_by_the_program(page: str, words: list[str]) -> None:
    program = typer.main.get_command(app)
    # --version prints its answer while the arguments are parsed.
    with suppress(typer.Exit), program.make_context("habana_perf_tool", list(words)) as context:
        rest = [*context._protected_args, *context.args]
        if rest:
            command = program.get_command(context, rest[0])  # type: ignore[attr-defined]
            assert command is not None, f"{page}: no command {rest[0]}"
            command.make_context(rest[0], rest[1:], parent=context)
