"""What slows a PyTorch run down, what each cause costs, and what to change."""

__version__ = "0.1.0"
