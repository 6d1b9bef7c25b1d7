"""Configuration of a run."""
