"""Ops on their way to the device: where each runs, what it asks of the device, and its values."""
