"""One module per subcommand: parse, call, report, exit."""
