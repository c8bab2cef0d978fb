"""Functions that parse options, under the published names."""

from __future__ import annotations

import argparse
from typing import Any

from lm_eval.config.arguments import parse_arguments as key_val_to_dict
from lm_eval.config.arguments import parse_value as handle_cli_value_string

__all__ = ["handle_cli_value_string", "key_val_to_dict", "request_caching_arg_to_dict"]


def request_caching_arg_to_dict(cache_requests: str | None) -> dict[str, Any]:
    """Returns the arguments of `simple_evaluate` for a value of `--cache_requests`.

    They are accepted there without effect. Raises `ArgumentTypeError` for an unknown value.
    """
    if cache_requests is None:
        return {}
    if cache_requests not in ("true", "refresh", "delete"):
        raise argparse.ArgumentTypeError(
            f"expected true, refresh or delete, not {cache_requests!r}"
        )
    return {
        "cache_requests": cache_requests != "delete",
        "rewrite_requests_cache": cache_requests == "refresh",
        "delete_requests_cache": cache_requests == "delete",
    }
