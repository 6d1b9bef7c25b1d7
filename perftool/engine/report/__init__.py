"""Builds a report from the tables and the findings of rules."""
