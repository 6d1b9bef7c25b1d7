"""Plain data that crosses module boundaries: frozen dataclasses, nothing that acts."""
