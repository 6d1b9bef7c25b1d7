"""Models and tensors shared by several benchmarks."""
