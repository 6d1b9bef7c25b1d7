"""Text inputs: what a file is, its lines, its times, and what was wrong with it."""
