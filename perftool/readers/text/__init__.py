"""Readers of text inputs: kind of a file, lines, times, and import issues."""
