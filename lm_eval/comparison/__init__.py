"""Compares models document by document, from stored runs or sample logs."""
