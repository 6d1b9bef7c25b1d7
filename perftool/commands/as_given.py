"""Values of options that nobody has to convert: text, and defaults.

Current releases of typer give every option an adapter of pydantic, also one that takes text, and one that was not
given. Importing pydantic and making the adapters takes 70 ms, as long as all the rest of reading a command line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class _AsGiven:
    """What typer asks for the value of an option: here as it is, where it is what the option takes already."""

    def __init__(self, converted: Callable[[], Any]) -> None:
        self._converted = converted

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value for ``param``; of several texts a list. Raises what typer does for one that it does not take."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        takes = param.type_descriptor.annotation
        if takes is str or ctx.get_parameter_source(param.name).name == "DEFAULT":
            return value
        if takes == list[str] and not isinstance(value, str):
            return list(value)
        return self._converted().coerce(value, param=param, ctx=ctx)


def take_as_given(params: list[Any]) -> list[Any]:
    """``params``, which take text and defaults as they are; those of releases of typer without adapters do anyway."""
    for param in params:
        if hasattr(param, "get_runtime_param") and "get_runtime_param" not in vars(param):
            param.get_runtime_param = partial(_AsGiven, param.get_runtime_param)
    return params
