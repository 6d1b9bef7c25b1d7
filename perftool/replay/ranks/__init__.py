"""Replays the ranks of a run together: at each collective, all ranks wait for the last one."""
