"""Invariants of all shipped rules."""

from __future__ import annotations

import re
from collections import Counter
from string import Formatter

from each import of_each
from rule_cases import all_cases, case_files, pack

from perftool import __version__
from perftool.engine.rule_tests.cases import Case
from perftool.engine.rule_tests.check_pack import tables_of_one_rank
from perftool.engine.rules.pack import DEVICES, builtin_folder
from perftool.model.choices import CONFIDENCES, SEVERITIES
from perftool.model.rule import STATUSES, Rule
from perftool.store.catalog import catalog, names_in

FAMILIES = {
    "TRC": "trace_health",
    "FBK": "fallbacks",
    "RCP": "recipes",
    "GAP": "gaps",
    "BAT": "batch",
    "SYN": "synchronisation",
    "CPY": "copies",
    "FUS": "fused",
    "PRC": "precision",
    "COL": "collectives",
    "ENG": "engines",
    "MEM": "memory",
    "STP": "steps",
    "SRV": "serving",
    "CFG": "configuration",
    "BUD": "budgets",
}
# Values that every query may use in addition to the params of its rule.
GIVEN = {"steps", "step_ns", "window_ns"}
# The engine reports these itself, without a query.
BUDGETS = {"BUD101", "BUD102"}
ENGINE_RULES = {"TRC000", "TRC001", *BUDGETS}
MOST_EVENTS = 12
MOST_EVENTS_OF_A_RANK = 24
MOST_EVENTS_OF_A_STEP = 4
PLACES_OF_ONE_MACHINE = re.compile(r"/work\b|/home/|/root/|/tmp/|\.\./shared|localhost|127\.0\.0\.1")

every_rule = of_each(pack())


def test_codes_and_names_are_unique() -> None:
    files = [path.stem for path in builtin_folder().rglob("*.toml")]
    names = Counter(rule.name for rule in pack().values())

    assert sorted(files) == sorted(pack())
    assert [name for name, count in names.items() if count > 1] == []


@every_rule
def test_since_names_an_existing_release_or_the_next(rule: Rule) -> None:
    major, minor = map(int, __version__.split(".")[:2])
    since = tuple(map(int, rule.since.split(".")))

    assert len(since) == 2
    assert since <= (major, minor + 1)


def test_each_rule_is_in_the_folder_of_its_family() -> None:
    folders = {path.stem: path.parent.name for path in builtin_folder().rglob("*.toml")}

    assert folders == {code: FAMILIES[code[:3]] for code in folders}


def test_each_rule_has_a_case_that_fires_and_two_that_do_not() -> None:
    fires = Counter(case.code for case in all_cases() if case.findings)
    quiet = Counter(case.code for case in all_cases() if not case.findings)

    # Budgets are limits set by users. engine/test_budgets.py tests them.
    here = sorted(set(pack()) - BUDGETS)
    assert [code for code in here if not fires[code]] == []
    assert [code for code in here if quiet[code] < 2] == []
    assert [path.stem for path in case_files() if path.stem not in pack()] == []


def test_cases_stay_small_and_have_names_of_their_own() -> None:
    names = Counter((case.code, case.name) for case in all_cases())

    assert [name for name, count in names.items() if count > 1] == []
    assert [(case.code, case.name) for case in all_cases() if len(case.events) > most_events(case)] == []


def most_events(case: Case) -> int:
    """Return the largest number of events that ``case`` may have. Cases with several steps or ranks need more."""
    ranks = {event.get("rank", 0) for event in case.events}
    steps = sum(str(event.get("name")).startswith("ProfilerStep#") for event in case.events)
    return MOST_EVENTS_OF_A_RANK * len(ranks) if len(ranks) > 1 else max(MOST_EVENTS, MOST_EVENTS_OF_A_STEP * steps)


@every_rule
def test_keys_have_only_known_values(rule: Rule) -> None:
    assert rule.severity in SEVERITIES
    assert rule.confidence in CONFIDENCES
    assert rule.status in STATUSES
    assert rule.tags


@every_rule
def test_texts_are_complete(rule: Rule) -> None:
    texts = {
        "summary": rule.summary,
        "message": rule.message,
        "why": rule.why,
        "fix": rule.fix.whole,
        "short_fix": rule.short_fix.whole,
    }

    assert [name for name, text in texts.items() if not text.strip()] == []
    assert all(param.why.strip() and param.unit.strip() for param in rule.params)
    assert all(reference.startswith("https://") for reference in rule.references)
    assert rule.references or rule.code in ENGINE_RULES


@every_rule
def test_advice_is_for_devices_that_the_rule_is_for(rule: Rule) -> None:
    named = {key for advice in (rule.fix, rule.short_fix) for key, _ in advice.texts} - {"any"}
    variants = set(re.findall(r"\w+", rule.sql or "")) if "fix_for" in (rule.sql or "") else set()
    # If the variant comes from a column of a table, the description of that column lists the variants.
    if variants:
        tables = [catalog()[name] for name in names_in(rule.sql or "")]
        variants |= {
            word for table in tables for column in table.columns for word in re.findall(r"\w+", column.meaning)
        }

    assert {key for key in named - variants if key not in DEVICES or not rule.applies_to(key)} == set()


@every_rule
def test_the_short_fix_fits_a_line_of_a_table(rule: Rule) -> None:
    assert [text for _, text in rule.short_fix.texts if len(text) > 60 or "\n" in text or text.endswith(".")] == []


@every_rule
def test_advice_for_one_device_does_not_mention_another(rule: Rule) -> None:
    """Advice for an A100 never mentions torch.hpu, and advice for a Gaudi never mentions CUDA graphs."""
    gaudi = r"torch\.hpu|habana|HPU|Gaudi|hccl"
    foreign = {
        "hpu": r"torch\.cuda|CUDA|\bnccl\b",
        "cuda": gaudi,
        "rocm": gaudi,
        "cpu": r"torch\.(hpu|cuda)|habana_frameworks|CUDA",
    }
    said = {
        device: re.findall(pattern, rule.fix.text_for(device) + " " + rule.short_fix.text_for(device))
        for device, pattern in foreign.items() if rule.applies_to(device) and rule.code not in ENGINE_RULES
    }  # fmt: skip
    assert {device: words for device, words in said.items() if words} == {}


@every_rule
def test_no_text_mentions_a_machine(rule: Rule) -> None:
    whole = "\n".join(
        [rule.summary, rule.message, rule.why, rule.fix.whole, rule.example, rule.sql or "", *rule.references]
    )

    assert PLACES_OF_ONE_MACHINE.findall(whole) == []


@every_rule
def test_queries_use_tables_and_params_that_exist(rule: Rule) -> None:
    assert [name for need in rule.needs for name in need.split(" or ") if name not in catalog()] == []
    assert (rule.sql is None) == (rule.code in ENGINE_RULES)
    params = {param.name for param in rule.params}
    used = set(re.findall(r"\$(\w+)", f"{rule.only_if} {rule.sql} {rule.whatif}"))
    assert used - params - GIVEN == set()
    assert params - used == set()


@every_rule
def test_queries_use_documented_tables_only(rule: Rule) -> None:
    sql = f"{rule.only_if} {rule.sql}"
    assert re.findall(r"(?i)\b(?:FROM|JOIN)\s+((?:_|raw\b)\w*)", sql) == []
    assert [need for need in rule.needs if need.startswith("_")] == []


@every_rule
def test_placeholders_of_the_message_are_columns_of_the_query(rule: Rule) -> None:
    placeholders = {name for _, name, _, _ in Formatter().parse(rule.message) if name}
    # For rules without a query, the engine itself fills in these names.
    known = set(re.findall(r"\w+", rule.sql or "error actual limit")) | {"subject"}

    assert {name for name in placeholders if not {name, f"{name}_ns", f"{name}_bytes"} & known} == set()


@every_rule
def test_a_rule_over_ranks_uses_tables_of_all_ranks(rule: Rule) -> None:
    assert rule.sql is None or rule.scope == "rank" or tables_of_one_rank(rule) == []


@every_rule
def test_no_count_shares_its_name_with_a_time_or_size(rule: Rule) -> None:
    columns = set(re.findall(r"\bAS (\w+)", rule.sql or ""))
    shown = {name for _, name, _, _ in Formatter().parse(rule.message) if name}

    assert {name for name in shown & columns if {f"{name}_ns", f"{name}_bytes"} & columns} == set()
