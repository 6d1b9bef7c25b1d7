"""The renderer of each ``lint`` format.

To add a format, write a module with a :class:`Renderer`, and add it to ``RENDERERS`` and to
``perftool.model.choices.LintFormat``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from perftool.model.choices import LintFormat
from perftool.model.lint import LintReport


class Renderer(Protocol):
    """Renders a lint run as a complete document."""

    def __call__(self, result: LintReport, /) -> bytes: ...


# The module and function of each format except text, which the module ``text`` prints. Modules are imported on demand.
RENDERERS: Mapping[LintFormat, tuple[str, str]] = {
    LintFormat.json: ("documents", "render_lint_json"),
    LintFormat.json_lines: ("documents", "render_json_lines"),
    LintFormat.sarif: ("sarif", "render_sarif"),
    LintFormat.junit: ("junit", "render_junit"),
    LintFormat.github: ("github", "render_github"),
    LintFormat.gitlab: ("gitlab", "render_gitlab"),
}


def renderer(form: LintFormat) -> Renderer:
    """Import the renderer of ``form``, which must not be text."""
    module, function = RENDERERS[form]
    return cast(Renderer, getattr(import_module(f"perftool.reporters.lint.{module}"), function))
