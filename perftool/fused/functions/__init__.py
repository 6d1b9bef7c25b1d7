"""Ops that are one expression of PyTorch, and what they share with attention: the `apply` of a Function."""
