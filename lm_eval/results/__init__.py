"""Aggregates scores into results, formats them as tables, and writes and reads results files."""
