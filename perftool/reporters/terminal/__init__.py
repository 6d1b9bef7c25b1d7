"""Text reports for terminals and pipes."""
