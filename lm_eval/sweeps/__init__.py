"""Runs models × tasks × settings from one file, and tabulates their scores."""
