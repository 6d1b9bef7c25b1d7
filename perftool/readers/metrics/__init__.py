"""Metrics files of the Gaudi bridge."""
