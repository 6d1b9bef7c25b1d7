"""Test cases of rules, and checks of whole packs."""
