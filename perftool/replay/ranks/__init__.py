"""Replays the ranks of a run together: at a collective, each rank waits for the last one."""
