"""Readers of what clients and counters of a server measured: benchmark results, metrics pages."""
