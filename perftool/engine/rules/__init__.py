"""Loads rules from packs, selects and runs them, and ranks their findings."""
