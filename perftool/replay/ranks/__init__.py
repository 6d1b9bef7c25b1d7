"""Replays the ranks of a run together: collectives join them, and each continues when the last has arrived."""
