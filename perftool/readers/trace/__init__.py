"""Readers of traces: Chrome JSON of every producer, and Gaudi's profiler CSV."""
