"""The sandbox process for untrusted SQL; see docs/security.md."""
