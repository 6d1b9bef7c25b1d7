"""From the answers of rules and the tables to one report."""
