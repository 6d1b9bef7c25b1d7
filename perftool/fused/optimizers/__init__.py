"""Gaudi's fused optimizers, model averaging and gradient clipping."""
