"""The gate of CI: which findings count, which were accepted, which budgets hold."""
