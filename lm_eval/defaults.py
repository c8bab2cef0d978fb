"""Default values of settings."""

from __future__ import annotations

from typing import Any

DEFAULT_MAX_LENGTH = 2048
DEFAULT_MAX_GEN_TOKS = 256
DEFAULT_RANDOM_SEED = 0
DEFAULT_OTHER_SEED = 1234
DEFAULT_BOOTSTRAP_ITERS = 100_000
DEFAULT_MAX_FAILED = 0.05


def default_gen_kwargs(
    until: str | list[str] | None, max_gen_toks: int = DEFAULT_MAX_GEN_TOKS
) -> dict[str, Any]:
    """Returns generation settings for greedy decoding up to the stop strings `until`.

    They are `temperature`, `do_sample`, `max_gen_toks` and `until`, a list; None stands for no stop
    strings.
    """
    stops = [until] if isinstance(until, str) else list(until or [])
    return {
        "temperature": 0.0,
        "do_sample": False,
        "max_gen_toks": max_gen_toks,
        "until": stops,
    }
