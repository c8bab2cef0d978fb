"""Inputs with random damage, and what the package does with them; see `benchmarks/fuzz.py`."""
