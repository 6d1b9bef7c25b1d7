"""Skips typer's type conversion for string options and for defaults, because both already have the right type.

Current releases of typer use a pydantic adapter for every option. Importing pydantic and building the adapters takes 70
ms, half of the time for parsing a command line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class _TypedValues:
    """Replaces typer's option adapter: passes a value through if it already has the option's type."""

    def __init__(self, converted: Callable[[], Any]) -> None:
        self._converted = converted

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert ``value`` for ``param`` if needed. Raise typer's error for an invalid value."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        takes = param.type_descriptor.annotation
        if takes is str or ctx.get_parameter_source(param.name).name == "DEFAULT":
            return value
        if takes == list[str] and not isinstance(value, str):
            return list(value)
        return self._converted().coerce(value, param=param, ctx=ctx)


def skip_conversion(params: list[Any]) -> list[Any]:
    """Replace the adapters of ``params``, if this release of typer has any."""
    for param in params:
        if hasattr(param, "get_runtime_param") and "get_runtime_param" not in vars(param):
            param.get_runtime_param = partial(_TypedValues, param.get_runtime_param)
    return params
