"""One simulated run of a script: what is replaced while it runs, and what the device sees of it."""
