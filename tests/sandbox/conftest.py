"""What the tests of the sandbox share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def everything() -> None:
    """Skips what does not fit into `make test`."""
    if not os.environ.get("LMEVAL_TEST_SANDBOX"):
        pytest.skip("part of make test-sandbox")
