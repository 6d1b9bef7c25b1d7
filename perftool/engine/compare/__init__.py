"""Compares two runs, and follows a metric over many runs."""
