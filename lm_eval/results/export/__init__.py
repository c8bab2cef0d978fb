"""Converts stored results to formats in which results are shared."""
