"""What an export contains besides the results: who evaluated, and which metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export; each is used by the formats that have a field for it.

    Attributes:
        organization: who made the evaluation.
        relationship: the relationship of the organization to the model; one of `RELATIONSHIPS`.
        source_url: where the results or their logs are published.
        metrics: export only these metrics.
    """

    organization: str = "unknown"
    relationship: str = "other"
    source_url: str | None = None
    metrics: Sequence[str] | None = None
