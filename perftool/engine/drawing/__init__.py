"""What a report draws of a run, and what is drawn into its trace."""
