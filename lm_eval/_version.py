"""The version, in a module that imports nothing."""

from __future__ import annotations

__version__ = "0.5.0"
