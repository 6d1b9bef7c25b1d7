"""The cases of rules, and the checks of a whole pack."""
