"""The configuration: its files, and the meaning of its keys."""
