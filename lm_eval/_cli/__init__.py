"""The command line under the published names, for scripts that extend it; see `lm_eval.cli`."""

from __future__ import annotations

from lm_eval._cli.harness import HarnessCLI

__all__ = ["HarnessCLI"]
