"""Readers of torch.distributed's flight-recorder dumps."""
