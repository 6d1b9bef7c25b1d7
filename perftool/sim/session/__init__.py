"""Runs a script in a simulation."""
