"""`python -m lm_eval` is the command line."""

from __future__ import annotations

import sys

from lm_eval.cli import main

if __name__ == "__main__":
    sys.exit(main())
