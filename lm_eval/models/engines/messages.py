"""What an evaluation and the processes of its engines send to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lm_eval.api.usage import Usage
from lm_eval.models.planned.score_plan import Abilities


@dataclass(frozen=True)
class EngineFacts:
    """What is known of an engine once it has started.

    Attributes:
        max_length: the maximum number of tokens of a prompt.
        identity: what identifies the model for stored answers.
        abilities: what the engine can be asked for.
        concurrent: how many requests it works on at a time.
    """

    max_length: int
    identity: Mapping[str, Any]
    abilities: Abilities
    concurrent: int


# To the process of an engine


@dataclass(frozen=True)
class Start:
    """The class of the model as `module:Class`, and the arguments to create it with."""

    model: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """Windows to score, or jobs to generate answers for; `number` identifies them."""

    number: int
    kind: Literal["score", "generate"]
    items: Sequence[Any]


@dataclass(frozen=True)
class AskCounters:
    """Asks for the counters of the engine."""


# From the process of an engine


@dataclass(frozen=True)
class Ready:
    """The engine has started."""

    facts: EngineFacts


@dataclass(frozen=True)
class Done:
    """Results: number of the work, position among its items, score or answers; tokens used."""

    results: Sequence[tuple[int, int, Any]]
    usage: Usage


@dataclass(frozen=True)
class Counters:
    """The counters of the engine."""

    values: Mapping[str, float]


@dataclass(frozen=True)
class Failed:
    """The engine did not start, or has failed; its process ends."""

    reason: str
    is_config: bool
    """Whether the arguments are wrong."""
