"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from perftool.reporters.html.page import render_html

__all__ = ["render_html"]
