"""The modules that a script for Gaudi imports, in place only while it runs."""
