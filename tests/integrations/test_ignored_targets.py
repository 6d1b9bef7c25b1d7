"""``record`` counts the targets that a loss ignores."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from recorded_script import run
from torch import nn

from perftool.api import analyze
from perftool.integrations.record.ignored_targets import IgnoredTargets

SCORES = torch.zeros(6, 9)
TARGETS = torch.tensor([1, -100, -100, 3, -1, -100])


def test_the_targets_of_a_loss_are_added_up() -> None:
    targets = IgnoredTargets()
    for _ in range(2):
        targets.add("Net > CrossEntropyLoss", nn.CrossEntropyLoss(), (SCORES, TARGETS))
    targets.add("Texts > CrossEntropyLoss", nn.CrossEntropyLoss(), (torch.zeros(2, 9, 3), TARGETS.reshape(2, 3)))
    targets.add("NLLLoss", nn.NLLLoss(ignore_index=-1), (SCORES, TARGETS))
    targets.add("Other", nn.CrossEntropyLoss(), (SCORES, TARGETS.clamp(0)))
    assert targets.found() == [
        {"path": "NLLLoss", "classes": 9, "targets": 6, "ignored": 1},
        {"path": "Net > CrossEntropyLoss", "classes": 9, "targets": 12, "ignored": 6},
        {"path": "Texts > CrossEntropyLoss", "classes": 9, "targets": 6, "ignored": 3},
    ]


@pytest.mark.parametrize(
    ("loss", "inputs"),
    [
        pytest.param(nn.MSELoss(), (SCORES, TARGETS), id="another loss"),
        pytest.param(nn.CrossEntropyLoss(), (SCORES, torch.zeros(6, 9)), id="probabilities"),
        pytest.param(nn.CrossEntropyLoss(), (torch.zeros(2, 9, 4), TARGETS.reshape(2, 3)), id="other sizes"),
        pytest.param(nn.CrossEntropyLoss(), (torch.zeros(1, 9, 2, 3), TARGETS.reshape(1, 2, 3)), id="images"),
        pytest.param(nn.CrossEntropyLoss(), (SCORES,), id="one input"),
        pytest.param(nn.CrossEntropyLoss(), (SCORES, 5), id="a number"),
    ],
)
def test_other_calls_do_not_count(loss: nn.Module, inputs: Any) -> None:
    targets = IgnoredTargets()
    targets.add("Loss", loss, inputs)
    assert targets.found() == []


SCRIPT = """
import torch
body, head, loss = torch.nn.Linear(8, 64), torch.nn.Linear(64, 5000), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.001)
labels = torch.full((128,), -100); labels[:16] = 7
for _ in range(6):
    optimizer.zero_grad(); loss(head(body(torch.ones(128, 8))), labels).backward(); optimizer.step()
"""


def test_record_counts_ignored_targets_and_a_finding_says_so(tmp_path: Path) -> None:
    run(tmp_path, SCRIPT, "--active", "2")
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    recorded = json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]
    assert recorded["ignored_targets"] == [
        {"path": "CrossEntropyLoss", "classes": 5000, "targets": 128, "ignored": 112}
    ]
    (finding,) = [one for one in analyze([str(trace)]).findings if one.code == "STP109"]
    assert finding.message.startswith("CrossEntropyLoss ignored 87.5 % of its targets in a step before the recording")
