"""Shared parts of text readers: lines, times, names, strings, import issues and redaction."""
