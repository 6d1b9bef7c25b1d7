"""Data that crosses module boundaries: frozen dataclasses, and the loaders of the shipped data files."""
