"""A run and its folder, for the command line and Python alike.

`run.py` opens the folder of a run that is about to happen; `stored.py` finds those that did.
"""

from __future__ import annotations
