"""``record`` counts the padding in the sequences that embeddings look up."""

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
from perftool.integrations.record.padded_inputs import PaddedFrames, PaddedInputs, Padding, padded_frames, padding

LENGTHS = torch.tensor([3, 9, 5, 4])


def batch(length: int = 12, token: int = 0) -> torch.Tensor:
    """Four sequences with 21 different tokens in all, which end with ``token``."""
    tokens = torch.arange(1, 4 * length + 1).reshape(4, length) % 23 + 1
    return torch.where(torch.arange(length) < LENGTHS[:, None], tokens, token)


@pytest.mark.parametrize("token", [0, None])
@pytest.mark.parametrize("turned", [batch(), batch().T, batch().flip(1), batch().to(torch.int32)])
def test_padding_is_counted_at_either_end_and_in_either_layout(turned: torch.Tensor, token: int | None) -> None:
    assert padding(turned, token) == Padding(48, 27, 12)


def test_a_batch_that_is_as_long_as_its_longest_sequence_has_nothing_to_cut() -> None:
    assert padding(batch(9), 0) == Padding(36, 15, 0)


def test_sequences_that_contain_only_padding_are_counted() -> None:
    tokens = torch.cat([batch(9), torch.zeros(3, 9, dtype=torch.int64)])
    assert padding(tokens, 0) == Padding(63, 42, 0, empty=27)


def test_a_token_that_ends_each_row_may_follow_the_padding() -> None:
    separated = torch.cat([batch(), torch.full((4, 1), 25)], 1)
    assert padding(separated, 0) == Padding(48, 27, 12)
    assert padding(separated, None) is None


def test_the_token_of_the_padding_is_found() -> None:
    assert padding(batch(token=77), None) == Padding(48, 27, 12)
    assert padding(batch(token=77), 0) is None


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param(torch.arange(12).repeat(4, 1) // 6, id="numbers of segments"),
        pytest.param(torch.where(torch.arange(12) % 2 > 0, batch(), 0), id="the token also occurs inside"),
        pytest.param(torch.zeros(4, 12, dtype=torch.int64), id="one token"),
        pytest.param(batch().float(), id="not tokens"),
        pytest.param(batch()[0], id="one sequence"),
        pytest.param(batch()[None], id="three dimensions"),
        pytest.param(batch()[:1], id="a batch of one"),
        pytest.param(batch().to_sparse(), id="sparse"),
        pytest.param("tokens", id="not a tensor"),
    ],
)
def test_values_that_may_be_something_else_are_not_padding(tokens: Any) -> None:
    assert padding(tokens, None if torch.is_tensor(tokens) else 0) is None


def features(length: int = 60) -> torch.Tensor:
    """Four sequences of 60, 40, 30 and 20 frames with three features each."""
    lengths = torch.tensor([60, 40, 30, 20])
    return torch.where((torch.arange(length) < lengths[:, None])[:, :, None], torch.ones(4, length, 3), 0.0)


@pytest.mark.parametrize(
    ("turned", "axis"), [(features(), 1), (features().mT, 2), (features().transpose(0, 1), 0), (features().half(), 1)]
)
def test_frames_of_zeros_at_the_ends_are_padding(turned: torch.Tensor, axis: int) -> None:
    assert padded_frames(turned) == PaddedFrames(axis, 3, Padding(240, 90, 0))


def test_a_fixed_length_leaves_frames_to_cut() -> None:
    assert padded_frames(features(70)) == PaddedFrames(1, 3, Padding(280, 130, 40))


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(features()[:, :49], id="rows of images"),
        pytest.param(torch.ones(4, 60, 3), id="no padding"),
        pytest.param(torch.zeros(4, 60, 3), id="all zeros"),
        pytest.param(features().long(), id="not features"),
        pytest.param(features()[:1], id="one sequence"),
        pytest.param(features()[None], id="four dimensions"),
        pytest.param(5, id="not a tensor"),
    ],
)
def test_numbers_that_may_be_something_else_are_not_padding(frames: Any) -> None:
    assert padded_frames(frames) is None


def test_only_the_input_of_a_model_counts() -> None:
    inputs = PaddedInputs()
    inputs.add("Net", nn.Linear(3, 3), (features(), torch.ones(4)))
    inputs.add("Net > Linear", nn.Linear(3, 3), (features(),))
    assert inputs.found() == [{"path": "Net", "axis": 1, "width": 3, "tokens": 240, "padded": 90, "cut": 0, "empty": 0}]


def test_the_padding_of_alike_places_is_added_up() -> None:
    inputs = PaddedInputs()
    for path, module, args in [
        ("Net > Embedding", nn.Embedding(30, 4, padding_idx=0), (batch(),)),
        ("Net > Embedding", nn.Embedding(30, 4), (batch(9),)),
        ("Net > Linear", nn.Linear(12, 4), (batch(),)),
        ("Net > Embedding", nn.Embedding(40, 4), ()),
    ]:
        inputs.add(path, module, args)
    sums = {"tokens": 84, "padded": 42, "cut": 12, "empty": 0}
    assert inputs.found() == [{"path": "Net > Embedding", "vocabulary": 30, "width": 4, **sums}]


SCRIPT = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer = torch.nn.Embedding(99, 256, padding_idx=0), torch.nn.Linear(256, 256)
    def forward(self, tokens):
        return self.layer(self.words(tokens))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.001)
for _ in range(6):
    tokens = torch.randint(1, 99, (16, 64)); tokens[:, 40:] = 0; tokens[3:, 20:] = 0
    optimizer.zero_grad(); net(tokens).sum().backward(); optimizer.step()
"""


def test_record_writes_the_padding_and_a_finding_says_so(tmp_path: Path) -> None:
    run(tmp_path, SCRIPT, "--active", "2")
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    recorded = json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]
    sums = {"tokens": 1024, "padded": 644, "cut": 384, "empty": 0}
    assert recorded["padded_inputs"] == [{"path": "Net > Embedding", "vocabulary": 99, "width": 256, **sums}]
    (finding,) = [one for one in analyze([str(trace)]).findings if one.code == "STP108"]
    assert finding.message.startswith("62.9 % of the tokens that Net > Embedding looked up in a step before the record")
