"""Reads files into rows, with one module per file format. Readers know no tables or rules."""
