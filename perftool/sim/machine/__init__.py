"""The simulated machine: its costs, its schedule, and its recordings."""
