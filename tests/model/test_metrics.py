"""One list contains all metrics of the summary."""

from __future__ import annotations

import re

from perftool.model.metrics import metric_kinds, metric_names
from perftool.store.catalog import catalog

WORDS = re.compile(r"'(\w+)'")
UNITS = ("_ratio", "_ms", "_bytes")


def test_the_list_of_metrics_matches_the_summary() -> None:
    sql = "".join(catalog()[name].sql for name in ("summary", "_engine_summary", "_serving_summary"))
    named = {
        word for word in WORDS.findall(sql) if word in metric_names() or word.endswith(("_ratio", "_ms", "_bytes"))
    }
    # Servers use this name for queue time, which the summary calls queue_time_ms.
    assert named - {"queue_ms"} == set(metric_names())


def test_the_name_of_a_metric_states_its_unit() -> None:
    said = {kind.name: kind.unit for kind in metric_kinds() if kind.name.endswith(UNITS)}
    assert said == {name: name.rpartition("_")[2] for name in said}


def test_every_number_has_a_definition_and_no_two_share_a_label() -> None:
    labels = [kind.label for kind in metric_kinds() if kind.label]
    assert len(labels) == len(set(labels))
    assert all(kind.meaning for kind in metric_kinds())


def test_a_metric_of_one_device_type_is_shown_for_no_other() -> None:
    [kind] = [each for each in metric_kinds() if each.name == "mme_time_ms"]
    assert (kind.label_for("hpu"), kind.label_for("cuda"), kind.label_for(None)) == ("MME busy (union)", None, None)
