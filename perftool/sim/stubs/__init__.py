"""The modules that a script for Gaudi imports, provided only while it runs."""
