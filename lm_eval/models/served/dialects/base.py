"""The `Dialect` interface, and what all dialects share."""

from __future__ import annotations

import abc
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import Completion
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window
from lm_eval.models.planned.score_plan import Abilities, Job, WholeJob
from lm_eval.models.served.exchange import BadReplyError
from lm_eval.models.served.retry import error_message, parsed_body
from lm_eval.models.served.transport import Reply

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenCount:
    """The tokens that a reply reports: of the prompt, of these from a cache, and of the answer.

    `reasoning` is how many tokens of the answer are reasoning; None if the reply does not tell.
    """

    prompt: int = 0
    cached: int = 0
    answer: int = 0
    reasoning: int | None = None


class Dialect(abc.ABC):
    """Builds the requests to one kind of server, and reads its replies.

    A dialect builds JSON bodies and reads JSON replies; it sends nothing. Every dialect can
    generate. One that can also measure log-likelihoods sets `scores` and implements `score_payload`
    and `read_score`; one that can return the log-probabilities of chosen next tokens sets
    `scores_next_tokens` and implements `next_payload` and `read_next`.

    What the probe finds out about a server is set as attributes when the dialect is created.
    Reading a reply raises `BadReplyError` if it lacks what it should contain, and `RefusedError` if
    the server refused to answer.

    Attributes:
        model: the name of the model on the server.
        accepts_tokens: whether prompts may be token ids.
        accepts_lists: whether one request may contain several prompts.
        accepts_samples: whether one request may ask for several answers (`n`).
        scores_next_tokens: also False if the server turned out not to know this (`next_tokens`).
        parameters: the parameters that the server refuses; those that the probe found out, first.
    """

    name: str = ""
    #: Paths below the root of the server, by purpose.
    path: str = "/v1/completions"
    score_path: str = ""
    #: The maximum number of stop strings that a request may contain; None for any number.
    max_stops: int | None = None
    scores: bool = False
    scores_next_tokens: bool = False
    #: Whether the first token after a beginning-of-text token is scored with its prompt.
    scores_first_token: bool = True
    #: The maximum number of next tokens that a request may ask for.
    max_next_tokens: int = 1 << 30
    #: Whether prompts are chats.
    is_chat: bool = False

    def __init__(
        self,
        model: str,
        accepts_tokens: bool = True,
        accepts_lists: bool = False,
        accepts_samples: bool = False,
        next_tokens: bool = True,
        refused: Mapping[str, str | None] | None = None,
    ) -> None:
        self.model = model
        self.accepts_tokens = accepts_tokens
        self.accepts_lists = accepts_lists
        self.accepts_samples = accepts_samples
        self.scores_next_tokens = self.scores_next_tokens and next_tokens
        self.parameters = LearnedParameters(refused or {})

    @abc.abstractmethod
    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        """Returns the body of a request for answers to prompts with the same settings.

        There is more than one prompt only if `accepts_lists`, and more than one sample only if
        `accepts_samples`.
        """

    @abc.abstractmethod
    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        """Returns for each prompt the list of its answers.

        `prompts` is the number of prompts, and `samples` the number of answers to each.
        """

    def score_payload(self, windows: Sequence[Window]) -> dict[str, Any]:
        """Returns the body of a request for the log-likelihoods of windows.

        A window consists of a context and the continuation to score, as tokens and as text. There
        is more than one only if `accepts_lists`.
        """
        raise NotImplementedError(f"{self.name} returns no log-likelihoods")

    def read_score(self, reply: Any, windows: Sequence[Window]) -> list[Score]:
        """Returns (log-likelihood, is_greedy) of the continuation of each window."""
        raise NotImplementedError(f"{self.name} returns no log-likelihoods")

    def next_payload(self, contexts: Sequence[Sequence[int]], tokens: Sequence[int]) -> Any:
        """Returns the body of a request for the log-probabilities of `tokens` after each context.

        `tokens` are at most `max_next_tokens` candidates for the single next token.
        """
        raise NotImplementedError(f"{self.name} returns no log-probabilities of chosen tokens")

    def read_next(self, reply: Any, contexts: int, tokens: Sequence[int]) -> list[dict[int, Score]]:
        """Returns for each context (log-probability, is_greedy) of the next tokens, by token.

        `contexts` is the number of contexts, and `tokens` are the ones that were asked for.
        """
        raise NotImplementedError(f"{self.name} returns no log-probabilities of chosen tokens")

    def abilities(self, batch_size: int) -> Abilities:
        """Returns what can be asked for, with up to `batch_size` prompts per request."""
        return Abilities(
            self.scores,
            self.scores_next_tokens,
            self.max_next_tokens,
            batch_size if self.accepts_lists else 1,
        )

    def job_payload(self, job: Job, windows: Sequence[Window]) -> Any:
        """Returns the body of a request of a `ScorePlan`; `windows` are those of the plan."""
        if isinstance(job, WholeJob):
            return self.score_payload([windows[number] for number in job.windows])
        return self.next_payload(job.contexts, job.tokens)

    def read_job(self, reply: Any, job: Job, windows: Sequence[Window]) -> Any:
        """Returns the results of a request, one per prompt, as `ScorePlan.add` takes them.

        For a `WholeJob`, that is what `read_score` returns; for a `NextJob`, `read_next`.
        """
        if isinstance(job, WholeJob):
            return self.read_score(reply, [windows[number] for number in job.windows])
        return self.read_next(reply, len(job.contexts), job.tokens)

    def usage(self, reply: Any) -> TokenCount:
        """Returns the tokens that a reply reports; zeros if it reports none."""
        counted = reply.get("usage") if isinstance(reply, Mapping) else None
        if not isinstance(counted, Mapping):
            return TokenCount()
        details = counted.get("prompt_tokens_details") or {}
        return TokenCount(
            _number(counted.get("prompt_tokens", counted.get("input_tokens"))),
            _number(details.get("cached_tokens", counted.get("cache_read_input_tokens"))),
            _number(counted.get("completion_tokens", counted.get("output_tokens"))),
            (counted.get("completion_tokens_details") or {}).get("reasoning_tokens"),
        )

    def adapt(self, reply: Reply) -> bool:
        """Learns from a refusal; returns True if the request should be sent again."""
        return self.parameters.learn(reply)

    def stops(self, sampling: Sampling) -> list[str]:
        """Returns the stop strings to send: the first ones, if the server accepts only a few.

        The caller cuts answers at all of them.
        """
        return [stop for stop in dict.fromkeys(sampling.until) if stop][: self.max_stops]


class LearnedParameters:
    """Parameters that the server refused, which are left out or renamed from then on."""

    #: Parameters without which a request still has its meaning. A sampled answer may differ, and
    #: answers are cut at stop strings by us as well.
    OPTIONAL = ("temperature", "stop", "seed", "top_p", "top_k", "min_p", "do_sample")
    #: Names of one parameter in different versions of the API.
    SYNONYMS = (("max_tokens", "max_completion_tokens"),)

    def __init__(self, refused: Mapping[str, str | None] | None = None) -> None:
        """Takes what `refused` of an earlier object returned."""
        given = dict(refused or {})
        self._dropped = {name for name, other in given.items() if other is None}
        self._renamed = {name: other for name, other in given.items() if other is not None}

    @property
    def refused(self) -> dict[str, str | None]:
        """The refused parameters, each with the name that is used instead; None if it has none."""
        return {**dict.fromkeys(sorted(self._dropped)), **self._renamed}

    def apply(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Returns the body without refused parameters, and with the names that the server wants."""
        if not self._dropped and not self._renamed:
            return payload
        return {
            self._renamed.get(name, name): value
            for name, value in payload.items()
            if name not in self._dropped
        }

    def learn(self, reply: Reply) -> bool:
        """Remembers the parameter that a reply refuses; returns whether there is a new one."""
        if reply.status not in (400, 422):
            return False
        message = error_message(reply)
        name = refused_parameter(reply, message)
        if name is None:
            return False
        for old, new in (pair for one in self.SYNONYMS for pair in (one, one[::-1])):
            if name == old and new in message and old not in self._renamed:
                self._renamed[old] = new
                logger.info("The server refuses the parameter %s; %s is sent instead.", old, new)
                return True
        if name in self.OPTIONAL and name not in self._dropped:
            self._dropped.add(name)
            logger.warning(
                "The server refuses the parameter %s (%s). It is left out, so that the server's "
                "default applies.",
                name,
                message,
            )
            return True
        return False


def refused_parameter(reply: Reply, message: str) -> str | None:
    """Returns the name of the request parameter that an error is about; None if it names none.

    Looks into the field `param` of the reply, and else into `message`, its text.
    """
    body = parsed_body(reply)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    named = inner.get("param") if isinstance(inner, Mapping) else None
    if isinstance(named, str) and named.isidentifier():
        return named
    known = {*LearnedParameters.OPTIONAL, *(n for one in LearnedParameters.SYNONYMS for n in one)}
    refusal = re.search(
        r"unsupported|not support|not allowed|not permitted|unrecognized|unexpected|extra|"
        r"deprecated|only the default|cannot be set|may not be",
        message,
        re.IGNORECASE,
    )
    if refusal is None:
        return None
    found = [name for name in re.findall(r"[a-z][a-z_]+", message) if name in known]
    return found[0] if found else None


def in_order(choices: Any, count: int) -> list[Mapping[str, Any]]:
    """Returns the `choices` of a reply in the order of their `index`.

    Raises `BadReplyError` if `choices` is not a list or has not `count` items.
    """
    if not isinstance(choices, Sequence) or len(choices) != count:
        found = len(choices) if isinstance(choices, Sequence) else "no"
        raise BadReplyError(
            f"the server's reply has {found} choices instead of {count}; it must return one per "
            "prompt and sample"
        )
    ordered = sorted(choices, key=lambda choice: int(choice.get("index", 0)))
    return list(ordered)


def answers_of(reply: Any, count: int) -> list[Mapping[str, Any]]:
    """Returns the answers of a reply that is an object for one answer and a list for several.

    Raises `BadReplyError` if they are not `count`.
    """
    answers = reply if isinstance(reply, list) else [reply]
    if len(answers) != count:
        raise BadReplyError(
            f"the server's reply has {len(answers)} answers instead of {count}; it must return one "
            "per prompt and sample"
        )
    return answers


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def field_of(reply: Any, *names: str) -> Any:
    """Returns the field of a reply that is reached by `names`, from the outermost object on.

    Raises `BadReplyError` if it is missing.
    """
    for name in names:
        if not isinstance(reply, Mapping) or name not in reply:
            shown = json.dumps(reply)[:200]
            raise BadReplyError(f"the server's reply has no field {'.'.join(names)}: {shown}")
        reply = reply[name]
    return reply
