"""The report as one self-contained HTML file."""

from __future__ import annotations

from perftool.reporters.html.page import render_html

__all__ = ["render_html"]
