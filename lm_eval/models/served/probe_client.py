"""Sends the single requests of a probe, and counts them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.instance import Completion, Failure
from lm_eval.errors import EvalError, ModelError
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window
from lm_eval.models.served.client import Client
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.endpoint import Endpoint
from lm_eval.models.served.exchange import UNUSABLE, Exchange, RefusedError
from lm_eval.models.served.retry import parsed_body
from lm_eval.models.served.transport import (
    BrokenReplyError,
    Reply,
    TimedOutError,
    UnreachableError,
)

logger = logging.getLogger(__name__)

#: The number of tokens that are generated in a trial.
TRIAL_TOKENS = 12


class ProbeClient:
    """Sends requests to one server, one at a time.

    Attributes:
        requests: how many were sent.
        last_reply: the last reply with a success status, as JSON data; None before the first one.
    """

    def __init__(self, client: Client, endpoint: Endpoint) -> None:
        """Takes a client, which should not retry for long, and the address of the server."""
        self._client, self._endpoint = client, endpoint
        self.requests = 0
        self.last_reply: Any = None

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Returns the JSON object that a GET request to `path` returns; None if there is none.

        Raises `ModelError` if the server cannot be reached or refuses the key.
        """
        self.requests += 1
        url = self._endpoint.root + path
        try:
            reply = self._client.get(url)
        except UnreachableError as error:
            raise ModelError(
                f"no server answers at {self._endpoint.root} ({error}). Start it, or correct "
                "base_url."
            ) from None
        except (BrokenReplyError, TimedOutError) as error:
            logger.debug("GET %s: %s", url, error)
            return None
        if reply.status in (401, 403):
            raise ModelError(_refused_key(url, reply))
        found = parsed_body(reply) if reply.ok else None
        return found if isinstance(found, Mapping) else None

    def generate(
        self, dialect: Dialect, prompt: Prompt, sampling: Sampling
    ) -> list[Completion] | Failure:
        """Returns the answers to a prompt, one per sample, or a `Failure`."""
        found = self.ask(self.generation(dialect, [prompt], sampling))
        return found if isinstance(found, Failure) else list(found[0])

    def score(self, dialect: Dialect, window: Window) -> float | Failure:
        """Returns the log-likelihood of a window's continuation, or a `Failure`."""
        found = self.scores(dialect, [window])
        return found if isinstance(found, Failure) else found[0]

    def scores(self, dialect: Dialect, windows: Sequence[Window]) -> list[float] | Failure:
        """Returns the log-likelihoods of windows that differ only in where the continuation starts.

        Sends one request for all, unless the dialect needs one for each. Returns a `Failure` if one
        of them fails.
        """
        bodies = [dialect.score_payload([window]) for window in windows]
        same = all(body == bodies[0] for body in bodies)
        scores: list[float] = []
        for group in [windows] if same else [[window] for window in windows]:
            found = self.ask(self.scoring(dialect, group[0], _score_reader(dialect, group)))
            if isinstance(found, Failure):
                return found
            scores += found
        return scores

    def ask_next(
        self, dialect: Dialect, context: Sequence[int], tokens: Sequence[int]
    ) -> dict[int, Score] | Failure:
        """Returns (log-probability, is_greedy) of next tokens after a context, by token.

        Or a `Failure`.
        """
        found = self.ask(
            Exchange(
                self._endpoint.url(dialect.score_path or dialect.path),
                lambda: dialect.next_payload([context], tokens),
                lambda reply: dialect.read_next(reply, 1, tokens),
            )
        )
        return found if isinstance(found, Failure) else dict(found[0])

    def generation(
        self,
        dialect: Dialect,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        read: Callable[[Any], Any] | None = None,
    ) -> Exchange:
        """Returns a request for answers, without sending it.

        `read` gets the reply as JSON data and returns the result; None for the dialect's way.
        """
        return Exchange(
            self._endpoint.url(dialect.path),
            lambda: dialect.generate_payload(prompts, sampling),
            read or (lambda reply: dialect.read_generated(reply, len(prompts), sampling.samples)),
            adapt=dialect.adapt,
        )

    def scoring(
        self, dialect: Dialect, window: Window, read: Callable[[Any], Any] | None = None
    ) -> Exchange:
        """Returns a request for the log-likelihood of a window, without sending it.

        `read` gets the reply as JSON data and returns the result; None for the dialect's way.
        """
        return Exchange(
            self._endpoint.url(dialect.score_path or dialect.path),
            lambda: dialect.score_payload([window]),
            read or (lambda reply: dialect.read_score(reply, [window])),
        )

    def ask(self, exchange: Exchange) -> Any:
        """Sends a request; returns what `exchange.read` makes of the reply, or a `Failure`.

        The client retries it after errors of connection or server. A reply that lacks something is
        a failure at once. Raises `ModelError` if no request to the server can succeed.
        """

        def read(reply: Any) -> Any:
            self.last_reply = reply
            try:
                return exchange.read(reply)
            except EvalError:
                raise
            except UNUSABLE as error:
                raise RefusedError(str(error) or type(error).__name__) from error

        self.requests += 1
        return self._client.ask(replace(exchange, read=read))


def greedy_settings(**settings: Any) -> Sampling:
    """Returns the settings of a greedy answer of `TRIAL_TOKENS` tokens; `settings` replace some."""
    return Sampling(**{"max_tokens": TRIAL_TOKENS, **settings})


def _score_reader(dialect: Dialect, windows: Sequence[Window]) -> Callable[[Any], list[float]]:
    """Returns a function that reads the log-likelihood of each of these windows from one reply."""
    return lambda reply: [dialect.read_score(reply, [window])[0][0] for window in windows]


def _refused_key(url: str, reply: Reply) -> str:
    return (
        f"{url} refused the key (status {reply.status}). Set the environment variable that the "
        "backend reads (OPENAI_API_KEY, ANTHROPIC_API_KEY, AZURE_OPENAI_API_KEY), or name another "
        "one with api_key_env=NAME."
    )
