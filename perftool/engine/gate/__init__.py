"""The CI gate: which findings fail a run, which are accepted, and which budgets are met."""
