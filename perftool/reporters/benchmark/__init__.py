"""The results of ``benchmark`` in every format."""
