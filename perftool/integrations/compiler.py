"""Keeps PyTorch's compiler (Dynamo) out of our own code. While compiled code runs, Dynamo compiles each Python function
that is called, including our hooks. PyTorch's own way to prevent this, ``torch.compiler.disable``, imports Dynamo,
which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])
# The part of the compiler that is written in C, which can be used without importing Dynamo. It is private, so other
# versions of PyTorch may lack its functions. Our code may then be compiled, but still works.
_FRAMES: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def uncompiled(function: _Function) -> _Function:
    """Decorate ``function`` so that neither it nor what it calls is compiled, wherever it is called."""

    if not hasattr(_FRAMES, "set_eval_frame"):
        return function

    @skipped
    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        before = _FRAMES.set_eval_frame(None)
        try:
            return function(*args, **named)
        finally:
            _FRAMES.set_eval_frame(before)

    # Dynamo does not inline a function with this attribute.
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def skipped(function: _Function) -> _Function:
    """Decorate ``function`` so that Dynamo does not compile it by itself. Dynamo may still compile what it calls, and
    inline it in other functions."""
    code = function.__code__
    with suppress(AttributeError, TypeError):
        if hasattr(_FRAMES, "skip_code"):
            _FRAMES.skip_code(code)
        else:
            # Newer versions of PyTorch.
            actions = _FRAMES._FrameAction
            _FRAMES.set_code_exec_strategy(code, _FRAMES._FrameExecStrategy(actions.SKIP, actions.DEFAULT))
    return function
