"""Draws the charts of a report, and the annotations of a trace."""
