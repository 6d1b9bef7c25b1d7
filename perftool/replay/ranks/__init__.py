"""The ranks of a run replayed together: collectives join them, each goes on when the last has come."""
