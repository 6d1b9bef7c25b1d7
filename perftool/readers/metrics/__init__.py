"""Readers of metrics: files of Gaudi's bridge, and summaries of runs."""
