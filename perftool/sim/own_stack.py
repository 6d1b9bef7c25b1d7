"""Formats the part of the call stack that is in the script's own files, as a trace with stacks does."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

from perftool.model.own_code import is_own

# The folder of the simulator.
HERE = str(Path(__file__).parent)
# The simulator and the replacements for Gaudi's ops, which are not part of the script.
_OURS = (HERE, str(Path(__file__).parents[1] / "fused"))


def own_stack() -> str:
    """Return the script's own frames on the call stack as ``file(line): function``, separated by semicolons, innermost
    first."""
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if file := _shown(code.co_filename):
            lines.append(f"{file}({frame.f_lineno}): {code.co_name}")
        elif lines and code.co_filename.startswith(HERE):
            # This frame of the simulator starts the script, so outer frames do not belong to the script.
            break
        frame = frame.f_back  # type: ignore[assignment]
    return ";".join(lines)


def own_line() -> str:
    """Return the innermost script line on the call stack, such as ``train.py:12 main``, or "" if there is none."""
    return innermost_line(own_stack())


def innermost_line(stack: str) -> str:
    """Return the first frame of a stack from :func:`own_stack`, in the form of :func:`own_line`."""
    return stack.partition(";")[0].replace("(", ":", 1).replace("):", "", 1)


@lru_cache(maxsize=1024)
def _shown(file: str) -> str | None:
    """Return ``file`` relative to its import folder, as the profiler writes it, or None if it is not the script's."""
    if file.startswith(_OURS) or not is_own(file):
        return None
    folders = [folder.rstrip("/\\") for folder in sys.path if folder]
    roots = [folder for folder in folders if file.startswith((f"{folder}/", f"{folder}\\"))]
    return file[len(max(roots, key=len)) + 1 :] if roots else Path(file).name
