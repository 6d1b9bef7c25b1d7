"""Computes the operations and bytes of framework ops from the shapes of their inputs."""
