"""``rule`` explains rules in every format and checks a pack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.program import Run

RULE = """
code = "OPS901"
name = "too-many-ops"
summary = "An op is called often"
severity = "info"
confidence = "high"
status = "stable"
since = "1"
devices = "any"
needs = ["ops"]
[params.most]
value = 1
unit = "calls"
why = "once is enough"
[find]
sql = '''SELECT name AS subject, count(*) AS calls, sum(dur)::BIGINT AS took_ns
    FROM ops GROUP BY name HAVING count(*) > $most'''
[text]
message = "{subject} is called {calls} times, {took}"
why = "It costs."
fix = "Do less."
"""
TWICE = """
[[case]]
name = "called twice"
events = [{ cat = "cpu_op", name = "aten::mm", ts = 0, dur = 10, repeat = 2, every = 20 }]
findings = [{ subject = "aten::mm", calls = 2, took_ns = 20_000 }]
"""
CASES = f"""{TWICE}
[[case]]
name = "called once"
events = [{{ cat = "cpu_op", name = "aten::mm", ts = 0, dur = 10 }}]
findings = []

[[case]]
name = "empty"
findings = []
applicable = false
"""
# An op on the host of a Gaudi run.
GAUDI = """
[[case]]
name = "gaudi"
device = "GAUDI3"
events = [
    { on = "op", name = "aten::mm", ts = 0, dur = 10, repeat = 2, every = 20 },
    { on = "MME", name = "GEMM", ts = 5, dur = 5 },
]
log = "nothing of note\\n"
findings = [{ subject = "aten::mm", calls = 2 }]
"""


def pack(rule: str = RULE, cases: str | None = CASES) -> None:
    Path("pack/cases").mkdir(parents=True)
    Path("pack/OPS901.toml").write_text(rule, encoding="utf-8")
    if cases is not None:
        Path("pack/cases/OPS901.toml").write_text(cases, encoding="utf-8")


def test_one_rule_by_code_or_name(run: Run) -> None:
    assert run("rule", "GAP101") == 0
    by_code = run.out
    assert by_code.startswith("# host-bound (GAP101)\n")
    assert "- `max_idle` = 0.2 " in by_code
    assert run("rule", "host-bound") == 0
    assert run.out == by_code


def test_the_devices_and_the_texts_of_a_rule_are_named(run: Run) -> None:
    assert run("rule", "STP105") == 0
    assert ", for any device\n" in run.out
    assert 0 < run.out.index("\nFor random: ") < run.out.index("\nFor any other case: ")


def test_one_rule_as_json(run: Run) -> None:
    assert run("rule", "GAP101", "--output-format", "json") == 0
    keys = {
        "name", "code", "summary", "message", "explanation", "severity", "confidence", "status", "since", "params",
        "tags", "url",
    }  # fmt: skip
    assert keys <= set(json.loads(run.out))


def test_all_rules_in_every_format(run: Run) -> None:
    assert run("rule", "--all", "--output-format", "json") == 0
    listed = [rule["code"] for rule in json.loads(run.out)]
    assert listed == sorted(listed)
    assert {"GAP101", "BUD101", "TRC000"} <= set(listed)
    assert run("rule", "--all") == 0
    assert [line.split()[0] for line in run.out.splitlines()] == listed
    assert run("rule", "--all", "--output-format", "markdown") == 0
    assert run.out.count("\n## Why\n") == len(listed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "rule needs exactly one of CODE, --all and --check DIR"),
        (["GAP101", "--all"], "rule needs exactly one of"),
        (["gap101"], "there is no rule 'gap101'; did you mean GAP101?"),
        (["--check", "missing"], "missing: not a folder"),
    ],
)
def test_wrong_arguments_exit_2(run: Run, arguments: list[str], message: str) -> None:
    assert run("rule", *arguments) == 2
    assert message in run.err


def test_a_good_pack_passes_and_can_be_used(run: Run) -> None:
    pack(cases=CASES + GAUDI)
    assert run("rule", "--check", "pack") == 0
    assert run.out == "1 rule, 4 cases, 0 problems\n"
    assert run("rule", "OPS901", "--rules", "pack") == 0
    trace = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": at, "dur": 5} for at in (0, 9)]
    Path("trace.json").write_text(json.dumps({"traceEvents": trace}), encoding="utf-8")
    select = ["--rules", "pack", "--select", "OPS", "--fail-on", "info"]
    assert run("lint", "trace.json", *select) == 1
    assert run.out.splitlines()[0] == "trace.json: OPS901 [info] aten::mm is called 2 times, 10.0 us"


def test_a_case_with_an_unknown_place_exits_2(run: Run) -> None:
    pack(cases=CASES.replace('cat = "cpu_op"', 'on = "MMU"'))
    assert run("rule", "--check", "pack") == 2
    assert "OPS901.toml: key case[0]: key events: on = 'MMU' is not one of op, note, bridge," in run.err


def test_a_retired_code_is_explained_as_its_successor(run: Run) -> None:
    pack(RULE.replace('since = "1"', 'since = "1"\nretired = ["OLD123"]'))
    assert run("rule", "OLD123", "--rules", "pack") == 0
    assert run.out.startswith("# too-many-ops (OPS901)\n")
    assert "Formerly: OLD123." in run.out
    assert run.err == "OLD123 is retired; it is now OPS901 (too-many-ops)\n"


@pytest.mark.parametrize(
    ("retired", "message"),
    [
        ('["old 1"]', "OPS901.toml: key retired: 'old 1' is neither a code nor a name"),
        ('["GAP101"]', "two rules are called GAP101: GAP101 and OPS901"),
    ],
)
def test_a_wrong_retired_code_exits_2(run: Run, retired: str, message: str) -> None:
    pack(RULE.replace('since = "1"', f'since = "1"\nretired = {retired}'))
    assert run("rule", "OPS901", "--rules", "pack") == 2
    assert message in run.err


def test_a_pack_without_cases_gets_a_remark(run: Run) -> None:
    pack(cases=None)
    assert run("rule", "--check", "pack") == 0
    assert "no cases were found" in run.err


def test_invalid_rules_are_reported_separately(run: Run) -> None:
    wrong = [
        ("FROM ops", "FROM opps", "key find.sql: there is no table 'opps'"),
        ("$most", "$least", "key find.sql: $least is neither a threshold of the rule nor one of steps,"),
        ("AS subject", "AS op", "key find.sql: no column is called subject"),
        ("[find]", "[find]\nonly_if = 'FROM opps'", "key find.only_if: there is no table 'opps'"),
        ("{calls}", "{reads}", "key text.message: {reads} is neither a column of the query nor a threshold"),
        ('["ops"]', '["opps"]', "key needs: there is no table opps"),
    ]
    Path("pack").mkdir()
    for number, (old, new, _) in enumerate(wrong, 901):
        rule = RULE.replace(old, new).replace("OPS901", f"OPS{number}").replace("too-many", f"too-many-{number}")
        Path(f"pack/OPS{number}.toml").write_text(rule, encoding="utf-8")
    assert run("rule", "--check", "pack") == 1
    lines = run.out.splitlines()
    assert [problem for number, (*_, problem) in enumerate(wrong, 901)
            if not any(line.startswith(f"OPS{number}: {problem}") for line in lines)] == []  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("> $most", "> $most + 1", "finds nothing instead of aten::mm"),
        ("sum(dur)::BIGINT", "7", "aten::mm: took_ns is 7 instead of 20000"),
    ],
)
def test_a_rule_that_fails_a_case_is_reported(run: Run, old: str, new: str, problem: str) -> None:
    pack(RULE.replace(old, new), TWICE)
    assert run("rule", "--check", "pack") == 1
    assert run.out.startswith(f"OPS901: case 'called twice': {problem}")


def test_a_wrong_message_exits_2(run: Run) -> None:
    pack(RULE.replace("{calls}", "} {calls}"))
    assert run("rule", "--check", "pack") == 2
    assert "OPS901.toml: key text.message: '} {calls}" in run.err


def test_a_wrong_case_file_exits_2(run: Run) -> None:
    pack(cases=CASES.replace("findings = []", "finds = []"))
    assert run("rule", "--check", "pack") == 2
    assert "cases/OPS901.toml: key case[1]: unknown key finds; the keys are name, findings" in run.err


def test_a_case_that_cannot_be_run_is_a_problem_of_the_pack(run: Run) -> None:
    harms = [
        "[case.files]\n'..' = 'x'", "[case.files]\n\"a\\u0000\" = 'x'", f"[case.files]\n'{'a' * 5000}' = 'x'",
        "config = '[]'\nconfig_name = ''", "events = [{name = 'a', args = 'x'}]",
        "events = [{name = 'a', repeat = 2, every = 'x'}]", "events = [{name = 'a', count = {n = 1}}]",
        "events = [{name = 'a', args = {correlation = 'x'}}]", "events = [{name = 'a', ts = 2020-01-01}]",
        "events = [{name = 'a', rank = 'x'}, {name = 'a', rank = 1}]", "metadata = {hosts = 5}",
    ]  # fmt: skip
    cases = [f"[[case]]\nname = 'odd {at}'\nfindings = []\n{harm}\n" for at, harm in enumerate(harms)]
    pack(cases="".join(cases))
    assert run("rule", "--check", "pack") == 1
    assert [harm for at, harm in enumerate(harms)
            if f"OPS901: case 'odd {at}': the case cannot run (" not in run.out] == []  # fmt: skip


def test_a_problem_is_one_line(run: Run) -> None:
    pack(cases='[[case]]\nname = "odd"\nfindings = [{ subject = "a\\n::error::x" }]\nevents = []\n')
    assert run("rule", "--check", "pack") == 1
    assert "\n::error" not in run.out
    assert "error::x" in run.out


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (
            f"events = [{{ name = '{'x' * 1000}', repeat = 100_000 }}]",
            "key events: the trace would be larger than 64 MiB",
        ),
        (
            f"events = [{{ name = '{chr(0x1F600) * 1000}', repeat = 10_000 }}]",
            "key events: the trace would be larger than 64 MiB",
        ),
        ("log = 'x'\nlog_times = 1_000_000_000_000", "key log_times: the log would be larger than 64 MiB"),
        ("events = [{name = 'a', on = ['MME']}]", "key events: on = ['MME'] is not one of op"),
    ],
)
def test_a_case_beyond_the_limits_exits_2(run: Run, harm: str, says: str) -> None:
    pack(cases=f"[[case]]\nname = 'odd'\nfindings = []\n{harm}\n")
    assert run("rule", "--check", "pack") == 2
    assert says in run.err
