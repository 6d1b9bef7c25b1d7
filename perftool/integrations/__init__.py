"""Recorders for PyTorch scripts, Lightning, Hugging Face's Trainer and servers of language models.

Most modules import PyTorch or a framework, so the rest of the package imports them only on demand. Users import them
directly, or through ``perftool.profile``.
"""
