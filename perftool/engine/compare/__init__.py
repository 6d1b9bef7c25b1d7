"""Compares two runs, or one metric over many runs."""
