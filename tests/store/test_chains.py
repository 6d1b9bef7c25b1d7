"""Sequences that recur within a step are found once, at the right position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from events import Event, document, launch, step, x

from perftool.api import analyze
from perftool.reporters.chains import chain_title
from perftool.store.chains import Repeat, repeats


def found(text: str, **lengths: int) -> list[Repeat]:
    """Return the repeats in a sequence of kernels, written as one letter each. A kernel takes 10 ns unless ``lengths``
    says otherwise.
    """
    kinds = np.array([ord(letter) for letter in text], dtype=np.int64)
    return repeats(kinds, np.array([lengths.get(letter, 10) for letter in text], dtype=np.int64))


def test_layers_are_found_between_other_kernels() -> None:
    assert found("xy" + "abca" * 5 + "z") == [Repeat(2, 4, 5)]


def test_forward_and_backward_are_two_chains_in_their_order() -> None:
    assert found("s" + "abcd" * 6 + "h" + "dcbae" * 6) == [Repeat(1, 4, 6), Repeat(26, 5, 6)]


def test_layers_of_two_kinds_in_turn_are_one_unit() -> None:
    assert found("abcdabce" * 6) == [Repeat(0, 8, 6)]


def test_a_loop_over_tensors_and_two_layers_are_not_a_chain() -> None:
    assert found("ab" * 50) == []
    assert found("abcd" * 2 + "xyz") == []
    assert found("") == []
    assert found("a") == []


def test_a_short_chain_is_left_out() -> None:
    assert found("abc" * 4 + "x", x=10_000) == []


def test_a_report_shows_one_layer(tmp_path: Path) -> None:
    events: list[Event] = [step(1, 0, 1000)]
    for layer in range(4):
        for place, (op, kernel, us) in enumerate((("mm", "gemm", 30), ("gelu", "gelu_k", 10), ("add", "add_k", 20))):
            at = 10 + 100 * layer + 30 * place
            shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
            events += [
                x(f"aten::{op}", at, 9, **shapes),
                *launch(3 * layer + place + 1, at + 1, 5, at + 400, us, kernel),
            ]
    path = tmp_path / "trace.json"
    path.write_bytes(document(events))
    (chain,) = analyze(str(path), rules=[]).chains
    assert [(place.op, place.kernel, place.ns) for place in chain.places] == [
        ("aten::mm", "gemm", 30_000), ("aten::gelu", "gelu_k", 10_000), ("aten::add", "add_k", 20_000),
    ]  # fmt: skip
    assert (chain.repeats, chain.ns, chain.step_share, chain.places[0].share) == (4, 60_000, 1, 0.5)
    assert chain_title(chain) == (
        "A sequence of 3 kernels runs 4 times in a row: 60.0 us each time, 100.0 % of the kernel time of a typical step"
    )
