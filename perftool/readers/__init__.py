"""Bytes to rows: one module per file format. A reader knows a format and nothing of tables or rules."""
