"""Decides where each op runs and what it costs on the device, and computes its values."""
