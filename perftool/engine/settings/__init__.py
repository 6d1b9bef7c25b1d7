"""The configuration: which files hold it, what its keys mean."""
