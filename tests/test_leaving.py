"""How the process ends: with its code, after all that is registered for the end, without taking itself apart."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

import pytest

from perftool import __main__, cli


@pytest.mark.parametrize(
    ("raised", "left_with"),
    [
        (SystemExit(), [0]),
        (SystemExit(0), [0]),
        (SystemExit(143), [143]),
        (SystemExit("a sentence"), []),
        (KeyboardInterrupt(), []),
    ],
)
def test_the_code_is_that_of_the_program(
    raised: BaseException, left_with: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Callable[[], object]] = []
    codes: list[int] = []

    def main() -> None:
        assert len(at_exit) == 1, "what the program registers later is called before"
        raise raised

    monkeypatch.setattr(atexit, "register", lambda call, *given: at_exit.append(lambda: call(*given)))
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(cli, "main", main)
    with pytest.raises(type(raised)):
        __main__.program()
    for call in at_exit:
        call()
    assert codes == left_with
