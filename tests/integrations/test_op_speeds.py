"""The longest ops of a recording are called again with the same arguments, and nothing of the program changes."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from perftool.integrations import machine
from perftool.integrations import op_speeds as module
from perftool.integrations.op_speeds import op_speeds

WAYS = ["fp32_ns", "bf16_ns", "fp32_channels_last_ns", "bf16_channels_last_ns"]
IMAGE = [4, 16, 12, 12]


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.last = nn.Linear(16 * 12 * 12, 8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = torch.cat([self.norm(self.convolution(images)), images])
        output: torch.Tensor = self.last((features + features).flatten(1)).sum()
        return output


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "trace.json"
    step, images = Step(), torch.randn(IMAGE, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step(images).backward()
    recorded.export_chrome_trace(str(path))
    return path


@pytest.fixture
def every_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_SHARE", 0)
    monkeypatch.setattr(module, "_EACH_S", 0)


@pytest.mark.usefixtures("every_op")
def test_each_op_has_a_time_for_each_way(trace: Path) -> None:
    found = {row["name"]: row for row in op_speeds(trace, bf16=True)}
    for name in (
        "convolution",
        "convolution_backward",
        "native_group_norm",
        "native_group_norm_backward",
        "cat",
        "add",
    ):
        assert [key for key in found[f"aten::{name}"] if key.endswith("_ns")] == WAYS, name
    for name in ("addmm", "mm"):
        assert [key for key in found[f"aten::{name}"] if key.endswith("_ns")] == WAYS[:2], name
    assert found["aten::convolution"]["input_dims"][:3] == [IMAGE, [16, 16, 3, 3], [16]]
    assert all(isinstance(row[key], int) and row[key] > 0 for row in found.values() for key in row if key in WAYS)


@pytest.mark.usefixtures("every_op")
def test_ops_on_volumes_have_a_time_for_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = nn.Sequential(nn.Conv3d(4, 4, 3, padding=1), nn.BatchNorm3d(4), nn.MaxPool3d(2))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step(torch.randn(2, 4, 4, 6, 6)).sum().backward()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    converted: list[bool] = []

    def seen(work: Any, *_: Any, **__: Any) -> float:
        work()
        converted.append(work.args[0].is_contiguous(memory_format=torch.channels_last_3d))
        return 1e-6

    monkeypatch.setattr(module, "least_time", seen)
    rows = op_speeds(tmp_path / "trace.json", bf16=False)
    names = ("convolution", "native_batch_norm", "native_batch_norm_backward", "max_pool3d_with_indices",
             "max_pool3d_with_indices_backward")  # fmt: skip
    found = {row["name"]: [key for key in row if key in WAYS] for row in rows}
    assert all(found[f"aten::{name}"] == [WAYS[0], WAYS[2]] for name in names), found
    assert converted.count(True) == sum(WAYS[2] in row for row in rows)


@pytest.mark.usefixtures("every_op")
def test_without_bf16_only_the_layouts_differ(trace: Path) -> None:
    found = {row["name"]: row for row in op_speeds(trace, bf16=False)}
    assert "aten::mm" not in found
    assert [key for key in found["aten::convolution"] if key.endswith("_ns")] == [WAYS[0], WAYS[2]]


@pytest.mark.usefixtures("every_op")
def test_the_ops_get_the_recorded_arguments(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[Any], dict[str, Any]]] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append((func.overloadpacket.__name__, list(args), kwargs or {}))
            return func(*args, **(kwargs or {}))

    def seen(work: Any, *_: Any, **__: Any) -> float:
        with Seen():
            work()
        return 1e-6

    monkeypatch.setattr(module, "least_time", seen)
    op_speeds(trace, bf16=True)
    [plain, half, last, _] = [arguments for name, arguments, _ in calls if name == "convolution"]
    assert plain[3:] == [[1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    assert {tensor.dtype for tensor in half[:3]} == {torch.bfloat16}
    assert last[0].is_contiguous(memory_format=torch.channels_last)
    assert not plain[0].is_contiguous(memory_format=torch.channels_last)
    assert len([name for name, *_ in calls if name == "addmm"]) == 2
    [first, *_] = [arguments for name, arguments, _ in calls if name == "cat"]
    assert [list(part.shape) for part in first[0]] == [IMAGE, IMAGE]


@pytest.mark.usefixtures("every_op")
def test_calls_whose_strides_differ_are_repeated_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    square = torch.randn(64, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(3):
            _ = square @ square
        _ = square.t() @ square
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))

    def seen(work: Any, *_: Any, **__: Any) -> float:
        return 1e-6 if work.args[0].is_contiguous() else 5e-6

    monkeypatch.setattr(module, "least_time", seen)
    [found] = op_speeds(tmp_path / "trace.json", bf16=True)
    assert (found["name"], found["fp32_ns"], found["bf16_ns"]) == ("aten::mm", 2000, 2000)


@pytest.mark.usefixtures("every_op")
def test_strided_ops_are_repeated_with_contiguous_operands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, images = torch.randn(48, 64), torch.randn(IMAGE)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(3):
            torch.sigmoid(matrix.t())
        torch.sigmoid(torch.randn(64, 48))
        torch.tanh(images.to(memory_format=torch.channels_last))
        torch.relu(matrix[:1].expand(48, 64))
        matrix.t() @ matrix
        torch.ones(8, 8).t().sum(0, dtype=torch.float32)
        matrix.to_sparse() * matrix.to_sparse()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))

    def seen(work: Any, *_: Any, **__: Any) -> float:
        work()
        return 1e-6 if work.args[0].is_contiguous() else 5e-6

    monkeypatch.setattr(module, "least_time", seen)
    found = {row["name"]: row for row in op_speeds(tmp_path / "trace.json", bf16=True)}
    # Three of four calls are strided.
    assert (found["aten::sigmoid"]["fp32_ns"], found["aten::sigmoid"]["fp32_contiguous_ns"]) == (4000, 1000)
    assert {name for name, row in found.items() if "fp32_contiguous_ns" in row} == {"aten::sigmoid", "aten::sum"}
    assert {"aten::tanh", "aten::relu", "aten::mm"} <= found.keys()


@pytest.mark.parametrize(("image", "is_apart"), [([1152, 144, 12, 1], True), ([1152, 1, 96, 8], False)])
def test_an_op_is_repeated_in_channels_last_if_one_of_its_images_is_not(image: list[int], is_apart: bool) -> None:
    gradient = [1152, 1, 96, 8]
    kinds, sizes = ["float"] * 3, [[4, 8, 12, 12], [4, 8, 12, 12], [8, 1, 3, 3]]
    op = module._Op("convolution_backward", sizes, [gradient, image, [9, 9, 3, 1]], kinds, [""] * 3)
    assert op.is_image == is_apart


def test_the_longest_ops_are_chosen_and_the_time_is_limited(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_SHARE", 0.99)
    assert op_speeds(trace, bf16=True) == []
    monkeypatch.setattr(module, "_MIN_SHARE", 0)
    monkeypatch.setattr(module, "_ALL_S", 0)
    assert op_speeds(trace, bf16=True) == []


@pytest.mark.usefixtures("every_op")
def test_no_op_is_called_once_the_program_is_about_to_end(trace: Path) -> None:
    asked: list[None] = []
    rows = op_speeds(trace, bf16=True, is_over=lambda: asked.append(None) or len(asked) > 4)
    assert 0 < sum(key in WAYS for row in rows for key in row) <= 4
    assert op_speeds(trace, bf16=True, is_over=lambda: True) == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_ctrl_c_ends_the_measurement_before_it_reaches_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python crashes if it ends while another thread computes."""
    ended: list[bool] = []

    def endless(trace: Path, *, bf16: bool, is_over: Callable[[], bool]) -> list[dict[str, Any]]:
        while not is_over():
            time.sleep(0.001)
        ended.append(True)
        return []

    monkeypatch.setattr(machine, "op_speeds", endless)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        with pytest.raises(KeyboardInterrupt):
            machine._measured(tmp_path / "trace.json", lambda: False)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended == [True]


@pytest.mark.usefixtures("every_op")
def test_large_operands_are_not_created(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_MEMORY_SHARE", 0)
    assert op_speeds(trace, bf16=True) == []


@pytest.mark.usefixtures("every_op")
def test_the_random_numbers_of_the_program_stay_the_same(trace: Path) -> None:
    before = torch.get_rng_state()
    assert op_speeds(trace, bf16=True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        (["", "", "", "0.5", "2"], 1),
        (["", "", "", "x", "1"], 0),
        (["", "", "", "2**", "1"], 0),
        (["", "", "", "1", ""], 0),
        ([""], 0),
    ],
    ids=["numbers", "a name", "broken", "none", "too few"],
)
@pytest.mark.usefixtures("every_op")
def test_ops_with_unknown_arguments_are_left_out(tmp_path: Path, values: list[str], rows: int) -> None:
    path = tmp_path / "trace.json"
    arguments = {
        "Input Dims": [[8], [4, 8], [8, 8], [], []],
        "Input Strides": [[1], [8, 1], [8, 1], [], []],
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
        "Concrete Inputs": values,
    }
    event = {"ph": "X", "name": "aten::addmm", "ts": 0, "dur": 5.0, "args": arguments}
    path.write_text(json.dumps({"traceEvents": [event]}))
    assert len(op_speeds(path, bf16=True)) == rows
