"""What readers of text share: lines, times, names, strings, import issues, redaction."""
