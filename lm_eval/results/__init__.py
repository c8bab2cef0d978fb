"""Scores become results: aggregated, tabulated, written to files."""
