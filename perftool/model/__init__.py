"""Plain data that crosses module boundaries: frozen dataclasses without behaviour."""
