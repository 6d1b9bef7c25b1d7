"""Analyses many ranks separately, on one or more machines, and merges the results."""
