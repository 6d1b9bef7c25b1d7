"""Combines many checks into one test, because pytest would spend more time on separate tests than the checks take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[..., None]


def of_each(members: Mapping[str, Any]) -> Callable[[Test], Test]:
    """Turn a check, whose first argument is a member, into a test that checks all ``members`` and lists those that
    fail.
    """

    def decorated(check: Test) -> Test:
        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            failed = {}
            for name, member in members.items():
                try:
                    check(member, **fixtures)
                except AssertionError as error:
                    failed[name] = str(error)
            assert members
            assert failed == {}, str(failed)

        # pytest passes fixtures for the other parameters.
        signature = inspect.signature(check)
        rest = list(signature.parameters.values())[1:]
        test.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test

    return decorated
