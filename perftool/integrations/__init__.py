"""Integrations with PyTorch scripts, Lightning and Hugging Face.

They record with torch.profiler and analyse the trace. They import PyTorch and the frameworks, so the rest of the
package must not import them; users do, directly or through ``perftool.profile``.
"""
