"""A process of its own for SQL that others wrote; see docs/security.md."""
