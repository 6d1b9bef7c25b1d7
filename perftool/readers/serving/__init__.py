"""Readers of benchmark results and of servers' metrics pages."""
