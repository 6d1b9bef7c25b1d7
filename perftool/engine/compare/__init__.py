"""Comparison of two runs, and of one number over many."""
