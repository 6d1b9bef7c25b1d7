"""The meaning and the precedence of selectors, and messages about invalid ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftool.engine.rules.pack import builtin_folder, load_pack, load_packs
from perftool.engine.rules.selection import Selection, Selector, choose, selectors
from perftool.errors import RuleError

_SHIPPED = {rule.code: rule for rule in load_pack(builtin_folder())}
_MODEL = _SHIPPED["GAP101"]
RULES = [
    replace(_MODEL, code="FUS101", name="loop"),
    replace(_MODEL, code="GAP101", name="host-bound"),
    replace(_MODEL, code="GAP102", name="loader"),
    replace(_MODEL, code="GAP103", name="new", status="preview"),
    replace(_MODEL, code="GAP104", name="old", status="deprecated"),
    replace(_MODEL, code="TRC000", name="unreadable", sql=None, always=True),
]


def codes(select: str, ignore: str = "", preview: bool = False) -> list[str]:
    chosen = choose(RULES, Selection(selectors([select]), selectors([ignore]), preview))
    return [rule.code for rule in chosen.rules if rule.sql]


@pytest.mark.parametrize(
    ("select", "ignore", "preview", "expected"),
    [
        ("ALL", "", False, ["FUS101", "GAP101", "GAP102"]),
        ("ALL", "", True, ["FUS101", "GAP101", "GAP102", "GAP103"]),
        ("GAP", "", False, ["GAP101", "GAP102"]),
        ("GAP,FUS101", "GAP102", False, ["FUS101", "GAP101"]),
        ("GAP101", "GAP", False, ["GAP101"]),
        ("GAP101,FUS", "GAP101", False, ["FUS101"]),
        ("host-bound", "", False, ["GAP101"]),
        ("GAP10", "GAP1", False, ["GAP101", "GAP102"]),
        ("GAP104", "", False, ["GAP104"]),
        ("GAP103,GAP101", "", False, ["GAP101"]),
        ("GAP103", "", True, ["GAP103"]),
    ],
)
def test_the_more_specific_selector_wins(select: str, ignore: str, preview: bool, expected: list[str]) -> None:
    assert codes(select, ignore, preview) == expected


def test_a_retired_code_or_name_means_the_rule_that_took_it_over() -> None:
    rules = [*RULES, replace(_MODEL, code="SYN101", name="reads", retired=("OLD123", "old-reads"))]
    chosen = choose(rules, Selection(selectors(["OLD123", "GAP"]), selectors(["old-reads"], "x.toml, key ignore")))

    assert [rule.code for rule in chosen.rules if rule.sql] == ["GAP101", "GAP102", "SYN101"]
    assert chosen.warnings == (
        "OLD123 (from the command line) is retired; it is now SYN101 (reads)",
        "old-reads (from x.toml, key ignore) is retired; it is now SYN101 (reads)",
    )


@pytest.mark.parametrize(
    ("select", "ignore", "origin", "warnings"),
    [
        ("GAP", "FUS101", "the command line", ("ignoring FUS101 (from the command line) removes no rule",)),
        ("GAP101", "GAP", "the command line", ("ignoring GAP (from the command line) removes no rule",)),
        ("GAP", "GAP101", "the command line", ()),
        # Three cases give no message: ignoring a preview rule that does not run anyway, ignoring a rule that only its
        # full code can remove, and an ignore in a configuration file, which serves many selections.
        ("ALL", "GAP103", "the command line", ()),
        ("GAP", "TRC000", "the command line", ()),
        ("GAP", "FUS101", "x.toml, key ignore", ()),
    ],
)
def test_ignoring_a_rule_that_does_not_run_gets_a_remark(
    select: str, ignore: str, origin: str, warnings: tuple[str, ...]
) -> None:
    chosen = choose(RULES, Selection(selectors([select]), selectors([ignore], origin)))

    assert chosen.warnings == warnings


def test_the_command_line_overrides_a_file_on_equal_specificity() -> None:
    from_file = selectors(["GAP101"], "pyproject.toml, key ignore")
    chosen = choose(RULES, Selection(selectors(["GAP101"]), from_file))
    assert [rule.code for rule in chosen.rules] == ["GAP101", "TRC000"]


def test_rules_that_report_failures_go_only_by_their_exact_code() -> None:
    kept = choose(RULES, Selection(selectors(["GAP"]), selectors(["TRC"])))
    gone = choose(RULES, Selection(selectors(["GAP"]), selectors(["TRC000"])))
    assert "TRC000" in {rule.code for rule in kept.rules}
    assert "TRC000" not in {rule.code for rule in gone.rules}


def test_a_rule_that_runs_always_goes_only_by_its_exact_code_or_name() -> None:
    rules = [*RULES, replace(_MODEL, code="TRC101", name="damaged-trace", always=True)]

    def runs(select: str, ignore: str) -> bool:
        chosen = choose(rules, Selection(selectors([select]), selectors([ignore])))
        return "TRC101" in {rule.code for rule in chosen.rules}

    asked = (("GAP", ""), ("GAP", "TRC"), ("TRC101", ""), ("GAP", "TRC101"), ("ALL", "damaged-trace"))
    assert [runs(select, ignore) for select, ignore in asked] == [True, True, True, False, False]
    with pytest.raises(RuleError, match="no rule is left to run"):
        runs("GAP101", "GAP101")


def test_an_unknown_selector_is_named_with_its_origin() -> None:
    with pytest.raises(RuleError) as caught:
        choose(RULES, Selection(selectors(["gap101"], "a.toml, key select")))
    assert str(caught.value) == "unknown rule selector 'gap101' (from a.toml, key select); did you mean GAP101?"


def test_contradictory_selectors_leave_no_rule_and_are_reported() -> None:
    with pytest.raises(RuleError, match="no rule is left to run"):
        choose(RULES, Selection(selectors(["GAP101"]), selectors(["GAP101"])))


def test_deprecated_and_preview_rules_get_a_remark() -> None:
    chosen = choose(RULES, Selection(selectors(["GAP104", "new", "GAP101"])))
    assert chosen.warnings == (
        "GAP104 (old) is deprecated",
        "GAP103 (new) is in preview and needs --preview",
    )


_SELECTOR = st.sampled_from(["ALL", "GAP", "GAP1", "GAP101", "GAP102", "FUS", "FUS101", "loader"])


@given(st.lists(_SELECTOR, min_size=1), st.lists(_SELECTOR))
def test_order_and_repetition_do_not_matter(select: list[str], ignore: list[str]) -> None:
    def chosen(select: list[str], ignore: list[str]) -> list[str] | None:
        try:
            return codes(",".join(select), ",".join(ignore))
        except RuleError:
            return None

    assert chosen(select, ignore) == chosen(select[::-1] * 2, ignore[::-1])


def _write_rule(folder: Path, code: str, **changes: str) -> None:
    text = (builtin_folder() / "trace_health" / "TRC101.toml").read_text(encoding="utf-8")
    text = text.replace('code = "TRC101"', f'code = "{code}"')
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / f"{code}.toml").write_text(text, encoding="utf-8")


def test_packs_of_users_have_codes_of_their_own(tmp_path: Path) -> None:
    name = _SHIPPED["TRC101"].name.replace("-", "_").split("_")[0]
    _write_rule(tmp_path, "TRC901", **{f'name = "{name}': f'name = "my-{name}'})
    assert "TRC901" in {rule.code for rule in load_packs([tmp_path])}


def test_a_pack_with_a_shipped_code_is_refused(tmp_path: Path) -> None:
    _write_rule(tmp_path, "TRC801")
    with pytest.raises(RuleError, match="TRC801 is reserved for shipped rules"):
        load_packs([tmp_path])


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    _write_rule(tmp_path, "TRC901")
    with pytest.raises(RuleError, match="two rules are called"):
        load_packs([tmp_path])


def test_a_selector_is_plain_data() -> None:
    assert selectors(["A, B", "C"]) == (Selector("A"), Selector("B"), Selector("C"))
