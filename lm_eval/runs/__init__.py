"""Runs and their folders on disk, for the command line and for Python.

`run.py` opens the folder of a new run; `stored.py` finds the runs that are stored in folders.
"""

from __future__ import annotations
