"""Parses untrusted text that contains values as Python prints them."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftool.readers.text.python_value import parsed
from perftool.store.ranks import distributed_info

_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_VALUES = st.recursive(
    _PLAIN,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(-9, 1 << 60), inner)
    ),
)


@given(_VALUES)
def test_what_python_prints_is_read(value: Any) -> None:
    assert parsed(repr(value)) == _as_lists(value)


def _as_lists(value: Any) -> Any:
    """Return ``value`` with tuples as lists and keys as strings."""
    if isinstance(value, (list, tuple)):
        return [_as_lists(one) for one in value]
    return {str(key): _as_lists(one) for key, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    "text",
    [
        "", "'", "'\\", "'a\\'", "'\\x'", "f'{a}'", "b'a'", "{1}", "[1 2]", "nan", "(", "open('x')", "1+1",
        "'" + r"\'" * 1001 + "'",
    ],
)  # fmt: skip
def test_other_text_is_not_a_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)


@pytest.mark.parametrize("unit", ["{a}", "'", "\\'", "1", "1:", "(", ",)", "'\\n' ", "-", "None"])
@pytest.mark.parametrize("start", ["", "f'", "'", "["])
def test_the_time_is_linear_in_the_length(start: str, unit: str) -> None:
    text = start + unit * (100_000 // len(unit))
    began = time.process_time()
    with pytest.raises((ValueError, RecursionError)):
        parsed(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("item", ["-1", "0", "()", "''"])
def test_many_small_values_take_little_memory(item: str) -> None:
    text = f"[{','.join([item] * 100_000)}]"
    tracemalloc.start()
    assert len(parsed(text)) == 100_000  # type: ignore[arg-type]
    assert tracemalloc.get_traced_memory()[1] < 50 * len(text)
    tracemalloc.stop()


def test_the_description_of_a_run_takes_linear_time_too() -> None:
    assert distributed_info({"distributedInfo": "{'backend': 'hccl', 'rank': 3, 'ranks': {0: 1}}"})["rank"] == 3
    began = time.process_time()
    for _ in range(3):
        assert distributed_info({"distributedInfo": "f'" + "{a}" * 33_000 + "'"}) == {}
    assert time.process_time() - began < 2
