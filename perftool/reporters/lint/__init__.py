"""The findings of ``lint`` in every format for people and CI."""
