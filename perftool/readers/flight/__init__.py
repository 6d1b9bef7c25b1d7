"""Dumps of torch.distributed's flight recorder."""
