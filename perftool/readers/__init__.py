"""Bytes to rows: one module per file format. A reader knows its format, but no tables or rules."""
