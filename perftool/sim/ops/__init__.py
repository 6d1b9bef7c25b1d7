"""Ops on their way to the device: where each runs, what it costs the device, and its values."""
