"""Gaudi's fused optimizers, and what works beside them: averaging of models and clipping of gradients."""
