"""Runs the uses in `tests/uses` and compares their outcomes with those of the published harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.uses import support

OUTCOMES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "uses" / "outcomes.json").read_text(encoding="utf-8")
)
USES = support.load_uses()


def agree(ours: Any, published: Any) -> bool:
    """Returns whether two outcomes are equal; an error must be of the published type as well."""
    if isinstance(published, dict) and "raises" in published:
        return isinstance(ours, dict) and published["raises"][0] in ours.get("raises", ())
    return bool(ours == published)


@pytest.mark.parametrize("name", sorted(USES))
def test_a_use_has_the_published_outcome(name: str, tmp_path: Path) -> None:
    one, recorded = USES[name], OUTCOMES[name]
    if lacking := support.missing(one):
        pytest.skip(f"needs {', '.join(lacking)}")
    ours = support.outcome(one, tmp_path)
    assert agree(ours, recorded["ours"]), ours
    if one.difference:
        assert not agree(ours, recorded["published"]), "the use no longer differs"
    else:
        assert agree(ours, recorded["published"])


def test_the_record_has_every_use_and_no_other() -> None:
    assert len(USES) >= 40
    assert set(OUTCOMES) == set(USES)
    for name, recorded in OUTCOMES.items():
        assert set(recorded) == {"kind", "published", "ours"}, name
        assert recorded["kind"] == USES[name].kind
