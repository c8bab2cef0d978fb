"""Finds which test documents occur in a training corpus, by their n-grams.

`findings.py` defines the file that a scan writes and that `run` and `score` read. It imports
nothing heavy, and no module that scans.
"""
