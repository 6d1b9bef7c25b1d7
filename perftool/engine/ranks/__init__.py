"""Many ranks: each analysed apart, wherever it runs, then joined."""
