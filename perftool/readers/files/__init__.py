"""Finds input files, reads their bytes, and determines the rank of each."""
