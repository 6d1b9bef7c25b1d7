"""Readers of traces: Chrome JSON from any producer, and the CSV of Gaudi's profiler."""
