"""Compares two models while they run, and stops as soon as one is known to be better."""
