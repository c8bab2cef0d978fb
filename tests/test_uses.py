"""Runs the uses in `tests/uses` and compares their outcomes with those of the published harness."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.uses import support

OUTCOMES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "uses" / "outcomes.json").read_text(encoding="utf-8")
)
USES = support.load_uses()


#: What ours answers where the published package fails: the published answers of another use.
ANSWERED_LIKE = {
    "a_state_space_model_with_nothing_else": "plain",
    "an_inference_script": "an_inference_script_with_a_stand_in",
}


def agree(ours: Any, published: Any) -> bool:
    """Returns whether two outcomes are equal; an error must be of the published type as well.

    Numbers may differ in the third decimal place, by which versions of torch differ.
    """
    if isinstance(published, dict) and "raises" in published:
        return isinstance(ours, dict) and published["raises"][0] in ours.get("raises", ())
    if isinstance(published, dict) and isinstance(ours, dict):
        return published.keys() == ours.keys() and all(
            agree(ours[key], value) for key, value in published.items()
        )
    if isinstance(published, list) and isinstance(ours, list):
        return len(ours) == len(published) and all(map(agree, ours, published))
    if isinstance(published, float) and isinstance(ours, float):
        return math.isclose(ours, published, abs_tol=1e-3) or (
            ours != ours and published != published
        )
    return bool(ours == published)


@pytest.mark.parametrize("name", sorted(USES))
def test_a_use_has_the_published_outcome(name: str, tmp_path: Path) -> None:
    one, recorded = USES[name], OUTCOMES[name]
    if lacking := support.missing(one):
        pytest.skip(f"needs {', '.join(lacking)}")
    ours, published = support.outcome(one, tmp_path), recorded["published"]
    assert agree(ours, recorded["ours"]), ours
    if one.differs_in:
        different = {key for key in published if not agree(ours[key], published[key])}
        assert different == set(one.differs_in)
    elif one.difference:
        assert not agree(ours, published), "the use no longer differs"
    else:
        assert agree(ours, published)


@pytest.mark.parametrize("name", sorted(ANSWERED_LIKE))
def test_where_the_published_package_fails_our_scores_are_those_of_the_plain_use(name: str) -> None:
    ours, published = OUTCOMES[name]["ours"], OUTCOMES[ANSWERED_LIKE[name]]["published"]
    for kind in ("loglikelihood", "loglikelihood_rolling"):
        assert agree(ours[kind], published[kind])


def test_the_record_has_every_use_and_no_other() -> None:
    assert len(USES) >= 100
    assert set(OUTCOMES) == set(USES)
    for name, recorded in OUTCOMES.items():
        assert set(recorded) == {"kind", "published", "ours"}, name
        assert recorded["kind"] == USES[name].kind
