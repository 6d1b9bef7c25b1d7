"""Analyses many ranks: each separately, on any machine, then joined."""
