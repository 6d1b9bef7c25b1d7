"""Formats text about the model's modules, shared by the text report, the HTML page and ``diff``."""

from __future__ import annotations

from perftool.model.modules import INSIDE, NO_MODULE, ModuleTime


def module_label(module: ModuleTime) -> str:
    """Return the class of the module; ``Block x12`` for twelve modules at the same place in the hierarchy."""
    if module.module is None:
        return NO_MODULE
    return f"{module.module} x{module.modules}" if module.modules > 1 else module.module


def path_tail(path: str, width: int) -> str:
    """Keep as many of the innermost classes of ``path`` as fit into ``width``, at least one."""
    if len(path) <= width:
        return path
    kept, *outer = reversed(path.split(INSIDE))
    for name in outer:
        if len(longer := f"{name}{INSIDE}{kept}") > width - 2 - len(INSIDE):
            break
        kept = longer
    return f"…{INSIDE}{kept}"
