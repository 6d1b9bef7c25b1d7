"""Gaudi's fused optimizers, averaging of models and clipping of gradients."""
