"""The CI gate: which findings count, which are accepted, which budgets hold."""
