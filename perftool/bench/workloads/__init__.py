"""Models and tensors that several benchmarks work on."""
