"""Integrations with PyTorch scripts, Lightning and Hugging Face.

These parts record with torch.profiler and hand the trace to the analysis. They import PyTorch and the frameworks, and
only users (through ``perftool.profile`` or by their own import) import them.
"""
