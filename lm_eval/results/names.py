"""Names as files can spell them."""

from __future__ import annotations

import re


def sanitize_model_name(model_name: str) -> str:
    """A model's name as a folder name."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model_name)
