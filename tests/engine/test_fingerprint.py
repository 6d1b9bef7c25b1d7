"""Fingerprints stay the same in a new recording of the same run, and differ between findings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftool.engine.rules.fingerprint import fingerprint, normalised, normalised_file


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("rank 0: aten::item", "rank #: aten::item"),
        ("fused_kernel_0x5f1c_12_f32", "fused_kernel_#_#_f32"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_#"),
        ("gemm_9f3ab27c", "gemm_#"),
        ("aten::conv2d", "aten::conv2d"),
        ("softmax_fwd_bf16", "softmax_fwd_bf16"),
        ("added_defaced", "added_defaced"),
        ("/home/ann/run/model.py(12): forward", "model.py(#): forward"),
        (r"C:\Users\ann\model.py(12): forward", "model.py(#): forward"),
        ("Torch-Compiled Region: 0/1", "Torch-Compiled Region: #/#"),
        ("pid 4711, tid=12", "pid #, tid=#"),
        ("recipe_12", "recipe_#"),
        ("aten::mm [64, 128]", "aten::mm [#, #]"),
        ("/home/ann/t/rank0.json: cut off", "rank0.json: cut off"),
        ("t/rank_1.json.gz: bad JSON 7", "t/rank_1.json.gz: bad JSON #"),
        ("t/host-7_4711.1732176000.pt.trace.json: cut off", "t/*.pt.trace.json: cut off"),
    ],
)
def test_volatile_parts_are_removed(subject: str, expected: str) -> None:
    assert normalised(subject) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("runs/2026-11-21/rank0.json.gz", "runs/2026-11-21/rank0.json.gz"),
        ("traces\\host-7_4711.1732176000.pt.trace.json", "traces/*.pt.trace.json"),
        ("bert.json", "bert.json"),
        ("/home/a_1.2/x_1.2.pt.trace.json.gz", "/home/a_1.2/*.pt.trace.json.gz"),
        ("runs/_1.2.pt.trace.json", "runs/_1.2.pt.trace.json"),
    ],
)
def test_volatile_parts_of_a_path_are_removed(file: str, expected: str) -> None:
    assert normalised_file(file) == expected


def test_code_subject_and_file_all_count() -> None:
    prints = {
        fingerprint("GAP101", "aten::mm"),
        fingerprint("GAP102", "aten::mm"),
        fingerprint("GAP101", "aten::mul"),
        fingerprint("GAP101", "aten::mm", "a.json"),
        fingerprint("GAP101", "aten::mm", "b.json"),
    }
    assert len(prints) == 5
    assert all(len(text) == 16 for text in prints)


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.sampled_from(["aten::mm", "kernel_{}", "rank {}: x"]))
def test_counters_do_not_matter(one: int, other: int, pattern: str) -> None:
    assert fingerprint("GAP101", pattern.format(one)) == fingerprint("GAP101", pattern.format(other))


@given(st.text())
def test_normalising_is_total_and_idempotent_on_results(subject: str) -> None:
    once = normalised(subject)
    assert fingerprint("GAP101", subject) == fingerprint("GAP101", subject)
    assert len(once) <= len(subject)
