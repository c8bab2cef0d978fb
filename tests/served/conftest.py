"""Fixtures for the tests of served models."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every test a cache folder of its own: what servers can do is remembered there."""
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
