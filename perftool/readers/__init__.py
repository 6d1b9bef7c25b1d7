"""Reads input files, with one module per format. Readers do not depend on tables or rules."""
