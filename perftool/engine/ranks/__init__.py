"""Analyses many ranks separately, on one or more machines, and joins the results."""
