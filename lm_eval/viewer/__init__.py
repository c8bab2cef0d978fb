"""`lm-eval view`: serves the report of runs in a folder on this machine, with live progress."""
