"""The simulated machine: what it costs, what it does when, and what it leaves recorded."""
