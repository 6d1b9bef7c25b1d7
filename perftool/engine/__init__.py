"""Runs rules over the tables. The rules themselves are data, in the top-level ``rules`` folder."""
