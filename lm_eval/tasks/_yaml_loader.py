"""Re-exports `load_yaml` under the module name of the published harness."""

from __future__ import annotations

from lm_eval.config.yaml_file import load_yaml

__all__ = ["load_yaml"]
