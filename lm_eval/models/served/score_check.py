"""Checks whether the log-likelihoods that a server returns fit together.

Fields being present proves nothing: some servers ignore `echo`, some return log-probabilities of
other tokens than asked for, some displace them by one. So values are compared: the log-likelihood
of a text must not change when text follows it, that of a continuation must be the difference of two
prefixes', and that of a token which the server generates must be the one that it reported while
generating.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lm_eval.api.instance import Failure
from lm_eval.models.planned.jobs import Prompt, Score, Window
from lm_eval.models.planned.tokenizers import TokenCoder
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.dialects.echo_text import echoed_prompt
from lm_eval.models.served.probe_client import ProbeClient, greedy_settings

logger = logging.getLogger(__name__)

#: A text of known structure: its end can be foreseen from its beginning.
PREFIX = "One two three four five six seven. One two three four"
REST = " five six seven."
#: Two values are equal if they differ by less than this per token. Servers that compute in half
#: precision differ by up to 0.01; the log-probabilities of other tokens differ by more.
TOLERANCE = 0.05


@dataclass(frozen=True)
class ScoreTrial:
    """Whether the log-likelihoods of a dialect can be used.

    Attributes:
        problem: why they cannot; "" if they can.
        alignment, next_tokens: as in `Certificate`.
        settings: arguments of the dialect that were found out.
        values: what was measured on the known text, as in `Certificate`.
    """

    problem: str = ""
    alignment: str = "none"
    next_tokens: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


class ScoreCheck:
    """Checks the log-likelihoods of one server on a known text."""

    def __init__(self, client: ProbeClient, tokenizer: TokenCoder) -> None:
        """Takes what sends the requests, and the tokenizer of the model."""
        self._client, self._tokenizer = client, tokenizer

    def run(self, dialect: Dialect) -> ScoreTrial:
        """Returns whether the log-likelihoods of a dialect fit together: `problem` is "" if so."""
        short, whole = self._tokenizer.encode([PREFIX, PREFIX + REST])
        if not dialect.scores:
            return self._check_next(dialect, short)
        window = self._known_window(dialect, short, PREFIX)
        before = self._client.score(dialect, window)
        if isinstance(before, Failure):
            return ScoreTrial(no_echo(before))
        settings = {} if dialect.accepts_tokens else self._counts(dialect, short)
        if before >= 0.0 or not math.isfinite(before):
            return ScoreTrial(
                "its log-probabilities are not those of the prompt (they are all zero)", "displaced"
            )
        longer = self._known_window(dialect, whole, PREFIX + REST)
        rest = replace(longer, start=len(longer.tokens) - len(whole) + len(short))
        both = self._client.scores(dialect, [longer, rest])
        if isinstance(both, Failure):
            return ScoreTrial("the server returns log-probabilities of some prompts only")
        change = both[0] - both[1] - before
        if abs(change) >= TOLERANCE * len(whole) ** 0.5:
            return ScoreTrial(
                "its log-probabilities are inconsistent: those of a text change when text follows "
                f"it (by {abs(change):.2f})",
                "displaced",
            )
        trial = self._check_alignment(dialect, [(PREFIX, short), (PREFIX + REST, whole)])
        known = {"tokens": list(window.tokens), "start": window.start, "text": PREFIX}
        return replace(trial, values={**known, "score": before}, settings=settings)

    def _counts(self, dialect: Dialect, tokens: Sequence[int]) -> dict[str, Any]:
        """Returns the settings `dropped` and `differences` of an `EchoText` dialect.

        They are read from the last reply, about a text that our tokenizer reads as `tokens`. Other
        texts must be counted alike, or their tokens are not those of our tokenizer.
        """
        found = echoed_prompt(self._client.last_reply)[1]
        counted = dialect.usage(self._client.last_reply).prompt
        added = found - len(tokens)
        return {
            "dropped": counted - found if counted else None,
            # A text without context has our prefix token in addition.
            "differences": [added, added - 1] if dialect.scores_first_token else [added],
        }

    def _known_window(self, dialect: Dialect, tokens: Sequence[int], text: str) -> Window:
        """Returns what is sent to score a known text.

        For a server that takes text, it is what a text without context is scored with: the first
        token of the text follows the beginning-of-text token, if the server puts one there.
        """
        if dialect.accepts_tokens:
            return Window(list(tokens), 1, text)
        if not dialect.scores_first_token:
            return Window(list(tokens), 2, text)
        known = (self._tokenizer.bos_id, self._tokenizer.eos_id, 0)
        prefix = next(token for token in known if token is not None)
        return Window([prefix, *tokens], 1, text)

    def _check_alignment(
        self, dialect: Dialect, contexts: Sequence[tuple[str, Sequence[int]]]
    ) -> ScoreTrial:
        """Compares the score of a token that the server generates with what it reported for it.

        `contexts` are pairs (text, tokens). Uses the first one after which our tokenizer keeps the
        generated token apart. The `problem` of the result is "" if both agree.
        """
        for context, tokens in contexts:
            generated = self._next_token(dialect, context, tokens)
            if isinstance(generated, Failure):
                return ScoreTrial(f"the server reports no generated token ({generated.reason})")
            whole = self._tokenizer.encode([context + generated[0]])[0]
            if len(whole) == len(tokens) + 1:
                return self._check_generated(dialect, context, whole, *generated)
        return ScoreTrial(
            "its log-probabilities cannot be checked: the tokens that it generates are not found "
            "again in the text (probe=False trusts it nevertheless)"
        )

    def _check_generated(
        self, dialect: Dialect, context: str, whole: Sequence[int], text: str, logprob: float | None
    ) -> ScoreTrial:
        """Checks the score of the last token of `whole`, which the server generated.

        `text` is that token as text, and `logprob` what the server reported for it; None if it
        reported nothing.
        """
        window = Window(whole, len(whole) - 1, context + text, len(context))
        found = self._client.ask(
            self._client.scoring(
                dialect, window, lambda reply: (dialect.read_score(reply, [window])[0], reply)
            )
        )
        if isinstance(found, Failure):
            return ScoreTrial(f"the server gives its own token no log-probability ({found.reason})")
        (score, greedy), reply = found
        if logprob is None and not greedy:
            return ScoreTrial(
                "its log-probabilities belong to other tokens than asked for", "displaced"
            )
        if logprob is not None and abs(score - logprob) >= TOLERANCE:
            shifted = _is_shifted(reply, text, logprob)
            return ScoreTrial(
                f"its log-probabilities are {'shifted by one token' if shifted else 'displaced'}: "
                f"the token that it generates has {logprob:.2f} while generating and {score:.2f} "
                "as part of a prompt",
                "shifted by one" if shifted else "displaced",
            )
        return ScoreTrial(next_tokens=self._returns_next_tokens(dialect, whole, score))

    def _returns_next_tokens(self, dialect: Dialect, whole: Sequence[int], score: float) -> bool:
        """Returns whether the server knows how to return the score of a chosen next token.

        Older versions ignore that parameter. `score` is that of the last token of `whole`.
        """
        if not dialect.scores_next_tokens:
            return False
        found = self._client.ask_next(dialect, whole[:-1], [whole[-1], whole[0]])
        if isinstance(found, Failure):
            logger.debug("no log-probabilities of chosen next tokens: %s", found.reason)
            return False
        value, greedy = found[whole[-1]]
        return abs(value - score) < TOLERANCE and greedy

    def _next_token(
        self, dialect: Dialect, context: str, tokens: Sequence[int]
    ) -> tuple[str, float | None] | Failure:
        """Returns the text of the most likely next token, and its log-probability.

        The latter is None if the server does not report it. `tokens` are those of `context`.
        Returns a `Failure` if the server does not answer.
        """
        prompt = Prompt(context, tokens)
        sampling = greedy_settings(max_tokens=1, others={"logprobs": 1})
        if dialect.path == "/generate":
            sampling = greedy_settings(max_tokens=1)

        def read(reply: Any) -> tuple[str, float | None]:
            text = dialect.read_generated(reply, 1, 1)[0][0].text
            choices = reply.get("choices") if isinstance(reply, Mapping) else None
            logprobs = (choices[0].get("logprobs") if choices else None) or {}
            values = logprobs.get("token_logprobs")
            return text, float(values[0]) if values and values[0] is not None else None

        exchange = self._client.generation(dialect, [prompt], sampling, read)
        found: tuple[str, float | None] | Failure = self._client.ask(exchange)
        return found

    def _check_next(self, dialect: Dialect, context: Sequence[int]) -> ScoreTrial:
        """Checks a dialect that returns only the log-probabilities of next tokens.

        The token that it generates must be the most likely one. `context` are the tokens of the
        known text. The `problem` of the result is "" if that is so.
        """
        generated = self._client.generate(
            dialect, Prompt(PREFIX, context), greedy_settings(max_tokens=1)
        )
        if isinstance(generated, Failure):
            return ScoreTrial(f"the server generates no token ({generated.reason})")
        whole = self._tokenizer.encode([PREFIX + generated[0]])[0]
        # Many tokens, most of them unlikely: their sum is another for almost any other model.
        wanted = list(dict.fromkeys([whole[-1], *context]))
        found = self._client.ask_next(dialect, context, wanted)
        if isinstance(found, Failure):
            return ScoreTrial(f"the server returns no log-probabilities of tokens ({found.reason})")
        if len(whole) == len(context) + 1 and not found[whole[-1]][1]:
            return ScoreTrial(
                "its log-probabilities belong to other tokens than asked for", "displaced"
            )
        known = {"tokens": list(context), "next": wanted, "score": total(found)}
        return ScoreTrial(next_tokens=True, values=known)


def total(scores: Mapping[int, Score]) -> float:
    """Returns the sum of the log-probabilities of several next tokens; is_greedy is not used."""
    return sum(value for value, _ in scores.values())


def no_echo(failure: Failure) -> str:
    """Returns why a server that did not echo a prompt cannot score."""
    return f"the server returns no log-probabilities of a prompt ({failure.reason})"


def _is_shifted(reply: Any, text: str, logprob: float) -> bool:
    """Returns whether the log-probability of a token stands one position too early in a reply.

    `reply` echoes a prompt that ends with the token `text`, which is the most likely one there and
    has this log-probability.
    """
    try:
        choice = reply["choices"][0]["logprobs"]
        places = [place for place, token in enumerate(choice["tokens"]) if token == text]
        best = max(choice["top_logprobs"][places[-1] - 1].values())
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return False
    return bool(abs(best - logprob) < TOLERANCE)
