"""What the driver of a run and its workers send to each other."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.usage import Usage
from lm_eval.errors import ConfigError, ModelError, describe_cause


@dataclass(frozen=True)
class ModelFacts:
    """What the driver must know of the model, which only the workers load."""

    identity: str
    """The text that identifies the model for stored answers (`models.identity.model_identity`)."""
    class_name: str
    packages: Mapping[str, str]
    """The versions of Python and of the packages that requests and answers depend on."""
    host: str = ""
    """The name of the machine."""
    tokenizer_name: str = ""
    """`LM.tokenizer_name`; empty if the run applies no chat template."""
    chat_template: str | None = None
    """`LM.chat_template` for the template that the run chose."""
    names_templates: bool = False
    """Whether a chat template can be chosen by its name."""
    think_end_token: str | int | None = None
    multimodal: bool = False
    encodes: bool = False
    """Whether the model can count the tokens of a continuation."""
    cannot_measure: Mapping[str, str] = field(default_factory=dict)
    """The request types that the model cannot answer, with the reasons."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What `LM.get_model_info` returned."""
    tokenizer: Mapping[str, Any] | None = None
    """The special tokens of the tokenizer, by the name of its attribute; None without them."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """`max_length`, `eot_token_id` and `batch_sizes` of the model, if it has them."""


class Requests:
    """Requests in the form in which they are sent: without answers, each repeated one once."""

    def __init__(self, requests: Sequence[Instance], repeats: Sequence[int]) -> None:
        """Takes the requests.

        Args:
            requests: the requests; a repeated one occurs several times in a row.
            repeats: which of all its occurrences each is, from 0. Others may have an answer.
        """
        distinct: list[Instance] = []
        given: list[list[int]] = []
        for request, repeat in zip(requests, repeats, strict=True):
            if distinct and request is distinct[-1]:
                given[-1].append(repeat)
            else:
                distinct.append(request)
                given.append([repeat])
        self._kind = distinct[0].request_type if distinct else "generate_until"
        self._times = [len(own) for own in given]
        self._columns: Any = [
            (one.arguments, one.idx, one.metadata, one.doc_number) for one in distinct
        ]
        self._docs: Any = [one.doc for one in distinct]
        #: The numbers of the repeats that are asked for, by the place of a request with repeats.
        self._open = {
            place: _open_repeats(one, own)
            for place, (one, own) in enumerate(zip(distinct, given, strict=True))
            if one.repeats not in (1, None)
        }

    def __getstate__(self) -> dict[str, Any]:
        """Returns what is sent; raises `ConfigError` for arguments that cannot be sent.

        Few models read documents, so those that cannot be sent are replaced (`UnsentDocument`).
        """
        columns, docs = _packed(self._columns), _packed(self._docs)
        if isinstance(columns, str):
            raise ConfigError(
                f"requests of task {self._columns[0][2][0]!r} cannot be sent to workers "
                f"({columns}). Run it without --executor, or let its prompts be plain values."
            )
        return {**vars(self), "_columns": columns, "_docs": docs}

    def instances(self) -> list[Instance]:
        """Returns the requests; a repeated one occurs several times, as the same object."""
        columns = pickle.loads(self._columns) if isinstance(self._columns, bytes) else self._columns
        found: list[Instance] = []
        documents = self._documents(len(columns))
        for place, (doc, column) in enumerate(zip(documents, columns, strict=True)):
            arguments, idx, metadata, number = column
            one = Instance(self._kind, doc, arguments, idx, metadata, doc_number=number)
            if place in self._open:
                one.set_open_repeats(self._open[place])
            found += [one] * self._times[place]
        return found

    def _documents(self, count: int) -> Sequence[Any]:
        if not isinstance(self._docs, (bytes, str)):
            return list(self._docs)
        reason = self._docs
        if isinstance(reason, bytes):
            try:
                return list(pickle.loads(reason))
            except Exception as error:  # of a class of the task, which may raise anything
                reason = describe_cause(error)
        return [UnsentDocument(reason)] * count


class UnsentDocument:
    """Stands for a document that a worker cannot have; raises `ModelError` when it is read."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getitem__(self, key: Any) -> Any:
        raise ModelError(
            f"the model reads a document of the task, which cannot be sent to workers "
            f"({self._reason}). Run it without --executor."
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


def _packed(values: Any) -> bytes | str:
    """Returns values as they are sent, or why they cannot be."""
    try:
        return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # of a class of the task, which may raise anything
        return describe_cause(error)


def _open_repeats(request: Instance, occurrences: Sequence[int]) -> tuple[int, ...] | None:
    """Returns `Instance.open_repeats` for some of the occurrences of a request.

    Each repeat is sampled with random numbers of its own, which depend on its number.
    """
    numbers = request.open_repeats
    if numbers is not None and max(occurrences) < len(numbers):
        return tuple(numbers[place] for place in occurrences)
    return None if len(occurrences) == request.repeats else tuple(occurrences)


# To a worker


@dataclass(frozen=True)
class Start:
    """The first message: the class of the host as `module:Class`, and its argument."""

    host: str
    settings: Mapping[str, Any]
    directory: str
    """The working directory of the driver; used if it exists on the machine of the worker."""


@dataclass(frozen=True)
class SetContext:
    """The settings of a run that are passed to the model before its requests."""

    seed: int | None
    chat_template: str | None
    think_end_token: str | int | None


@dataclass(frozen=True)
class Work:
    """A portion of requests; `number` identifies it."""

    number: int
    kind: str
    requests: Requests


@dataclass(frozen=True)
class Cancel:
    """The portion is no longer needed; a worker that has not begun with it leaves it out."""

    number: int


@dataclass(frozen=True)
class Call:
    """Calls a method of the model that needs no weights, such as `apply_chat_template`."""

    number: int
    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Stop:
    """Nothing more will be asked: a worker that waits ends by itself, any other one at once."""


# From a worker


@dataclass(frozen=True)
class Ready:
    """The model is loaded."""

    facts: ModelFacts


@dataclass(frozen=True)
class Broken:
    """The model could not be created; the worker ends."""

    reason: str
    is_config: bool
    """Whether the settings of the run are wrong."""


@dataclass(frozen=True)
class Answers:
    """Outcomes of requests of a portion, by their positions in it."""

    number: int
    positions: Sequence[int]
    outcomes: Sequence[Any]


@dataclass(frozen=True)
class Finished:
    """A portion is finished, or was left out because it was cancelled."""

    number: int
    positions: Sequence[int]
    """Positions of the outcomes that were not sent before, or have changed since."""
    outcomes: Sequence[Any]
    usage: Usage
    """The counts of this portion."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """What the model's own `usage` counted for this portion."""
    seconds: float = 0.0
    cancelled: bool = False


@dataclass(frozen=True)
class Raised:
    """The model raised an exception while it answered a portion; the worker goes on."""

    number: int
    reason: str
    is_config: bool


@dataclass(frozen=True)
class Result:
    """What a `Call` returned, or the message of its exception."""

    number: int
    value: Any
    error: str | None = None


@dataclass(frozen=True)
class LogMessage:
    """A log message of this package in a worker."""

    level: int
    text: str


# From a pool about a worker


@dataclass(frozen=True)
class Placed:
    """The worker has a place on a machine and begins to load the model."""

    where: str = ""


@dataclass(frozen=True)
class Ended:
    """The worker is gone."""

    reason: str
    innocent: bool = False
    """Whether its requests cannot be the cause, because its whole machine was lost."""
    fatal: bool = False
    """Whether a replacement would end in the same way."""


Message = Ready | Broken | Answers | Finished | Raised | Result | LogMessage | Placed | Ended
