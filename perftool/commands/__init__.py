"""The subcommands, one per module."""
