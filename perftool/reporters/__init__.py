"""Turns reports into text, with one module per output format."""
