"""Gaudi's graph functions on any device."""
