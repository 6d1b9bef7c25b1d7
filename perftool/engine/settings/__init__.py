"""The configuration: its files, and what its keys mean."""
