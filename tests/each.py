"""One test over many cheap members: pytest's overhead per test is milliseconds, more than such a check takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[..., None]


def of_each(members: Mapping[str, Any]) -> Callable[[Test], Test]:
    """A test that runs the decorated one, whose first parameter is a member, on all ``members``, and names those that
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

        # pytest asks for the other parameters as fixtures.
        signature = inspect.signature(check)
        rest = list(signature.parameters.values())[1:]
        test.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test

    return decorated
