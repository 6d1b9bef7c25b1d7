"""Decides where each op runs, what it costs on the device, and computes its values."""
