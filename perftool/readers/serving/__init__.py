"""Readers of benchmark results and metrics pages of a server."""
