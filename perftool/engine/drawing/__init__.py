"""Draws the pictures of a report, and the annotations of a trace."""
