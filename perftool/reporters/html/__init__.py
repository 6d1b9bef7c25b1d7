"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from perftool.reporters.html.page import render_html, render_summary

__all__ = ["render_html", "render_summary"]
