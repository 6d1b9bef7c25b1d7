"""Readers of metrics: files of the Gaudi bridge, and summaries of runs."""
