"""Finds input files, reads their bytes, and determines their ranks."""
