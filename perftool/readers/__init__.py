"""Reads files into rows, with one module per file format. Readers do not depend on tables or rules."""
