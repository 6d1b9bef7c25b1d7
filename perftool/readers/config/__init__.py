"""Readers of run configuration."""
