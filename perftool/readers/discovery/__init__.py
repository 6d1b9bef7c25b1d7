"""Selects the files of a run: by their names, their contents, and what lies beside them."""
