"""The published file cache for Python objects."""
