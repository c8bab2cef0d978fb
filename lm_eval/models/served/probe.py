"""Finds out what a server really does, with a few requests whose answers are compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lm_eval.api.instance import Completion, Failure
from lm_eval.errors import ModelError
from lm_eval.models.planned.jobs import Prompt, Window
from lm_eval.models.planned.tokenizers import TokenCoder
from lm_eval.models.served.certificate import (
    CHAT_KINDS,
    NO_CHAT_SCORES,
    Certificate,
    same_answers,
)
from lm_eval.models.served.client import Client
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.dialects.echo_text import echoed_prompt
from lm_eval.models.served.endpoint import Endpoint
from lm_eval.models.served.probe_client import TRIAL_TOKENS, ProbeClient, greedy_settings
from lm_eval.models.served.sampling_check import check_sampling
from lm_eval.models.served.score_check import (
    PREFIX,
    REST,
    ScoreCheck,
    ScoreTrial,
    no_echo,
    total,
)
from lm_eval.models.served.server_facts import (
    OWN_DIALECTS,
    ServerFacts,
    identify,
    listed,
    model_entry,
)

#: A chat for servers that generate only.
QUESTION = "Count from one to five in words, separated by spaces. Answer with the words only."

_NO_FIRST_TOKEN = "the server gives no log-probability of the first token of a text"

MakeTokenizer = Callable[[ServerFacts], "TokenCoder | None"]


class Probe:
    """Probes one server for one model."""

    def __init__(
        self,
        client: Client,
        endpoint: Endpoint,
        model: str,
        kind: str,
        make_tokenizer: MakeTokenizer,
        **settings: Any,
    ) -> None:
        """Prepares the probe; nothing is sent yet.

        Args:
            client: sends the requests. It should not retry for long.
            endpoint: the server.
            model: the name of the model on the server.
            kind: the API to use: "completions", "chat", "sglang", "gguf", or the name of a dialect.
            make_tokenizer: returns the tokenizer of the model, given what the server tells.
            settings: arguments of the dialect.
        """
        self._client = ProbeClient(client, endpoint)
        self._endpoint, self._model, self._kind = endpoint, model, kind
        self._make_tokenizer, self._settings = make_tokenizer, settings
        self._tokenizer: TokenCoder | None = None

    def run(self) -> Certificate:
        """Returns what the server can do; raises `ModelError` if it answers no request at all."""
        self._facts = facts = self.identify()
        base = Certificate(
            server=str(facts),
            settings=self._settings,
            reported=facts.reported,
            listed=listed(facts.model),
            context_length=facts.context_length,
            time=time.time(),
        )
        if self._kind in CHAT_KINDS:
            found = self._probe_chat(replace(base, dialect=self._kind))
        else:
            self._tokenizer = self._make_tokenizer(facts)
            found = self._probe_completions(base)
        return replace(found, requests=self._client.requests)

    def is_same_model(self, before: Certificate) -> bool:
        """Returns whether the server answers known prompts as it did for the certificate `before`.

        Also False if it lists the model with another context length or path. Sends two requests.
        """
        if listed(model_entry(self._client.get, self._model)) != dict(before.listed):
            return False
        now = self._answer_again(before)
        return now is not None and same_answers(before.values, {**before.values, **now})

    def _answer_again(self, before: Certificate) -> dict[str, Any] | None:
        """Repeats a measurement of an earlier probe; returns the value under its name in `values`.

        That is `score`, a log-likelihood, or `greedy`, a text. None if the server does not answer.
        """
        dialect, values = before.make_dialect(self._model), before.values
        if "next" in values:
            found = self._client.ask_next(dialect, values["tokens"], values["next"])
            return None if isinstance(found, Failure) else {"score": total(found)}
        if "score" in values:
            window = Window(values["tokens"], values["start"], values["text"])
            score = self._client.score(dialect, window)
            return None if isinstance(score, Failure) else {"score": score}
        greedy = greedy_settings(max_tokens=self._trial_length(dialect))
        trial = self._client.generate(dialect, self._trial_prompt(dialect), greedy)
        return None if isinstance(trial, Failure) else {"greedy": trial[0].text}

    def identify(self) -> ServerFacts:
        """Returns what the server tells about itself."""
        return identify(self._client.get, self._model)

    # -- trials ----------------------------------------------------------------------------------

    def _probe_chat(self, base: Certificate) -> Certificate:
        continues = self._facts.name in ("vLLM", "SGLang")
        if base.dialect == "chat" and continues:
            base = replace(base, settings={**base.settings, "continues_messages": True})
        dialect = replace(base, samples=True).make_dialect(self._model)
        prompt = self._trial_prompt(dialect)
        length = self._trial_length(dialect)
        first = self._need(
            self._client.generate(dialect, prompt, greedy_settings(max_tokens=length))
        )[0]
        found = replace(
            base,
            no_scores=NO_CHAT_SCORES,
            tokens=False,
            lists=False,
            reasoning=_reasoning_field(self._client.last_reply) if first.reasoning else None,
            values={"greedy": first.text},
        )
        if base.dialect == "chat":
            found = self._try_settings(found, dialect, prompt, first)
        return _with_refused(found, dialect)

    def _probe_completions(self, base: Certificate) -> Certificate:
        usual = "sglang" if self._kind == "sglang" else "completions"
        base = replace(base, dialect=OWN_DIALECTS.get(self._facts.name, usual))
        everything = replace(base, samples=True, lists=True, tokens=True)
        dialect = everything.make_dialect(self._model)
        text = Prompt(PREFIX)
        first = self._need(self._client.generate(dialect, text, greedy_settings()))[0]
        counted = dialect.usage(self._client.last_reply).prompt or None
        base = replace(base, values={"greedy": first.text})
        base = self._try_tokens(base, dialect, first)
        base = replace(base, lists=self._try_lists(dialect, text, first))
        base = _with_refused(self._try_settings(base, dialect, text, first), dialect)
        base = replace(base, tokenizer=self._compare_tokenizer(counted))
        return self._try_scores(base)

    def _try_tokens(self, base: Certificate, dialect: Dialect, first: Completion) -> Certificate:
        """Returns `base` with `tokens`: whether token ids give the same answer as the text.

        `first` is the answer to the text. None if it cannot be tried without a tokenizer.
        """
        if self._tokenizer is None or not dialect.accepts_tokens:
            return replace(base, tokens=None if dialect.accepts_tokens else False)
        tokens = self._tokenizer.encode([PREFIX])[0]
        found = self._client.generate(dialect, Prompt(PREFIX, tokens), greedy_settings())
        same = not isinstance(found, Failure) and found[0].text == first.text
        return replace(base, tokens=same)

    def _try_lists(self, dialect: Dialect, prompt: Prompt, first: Completion) -> bool:
        if not dialect.accepts_lists:
            return False
        exchange = self._client.generation(
            dialect, [prompt, Prompt(PREFIX + REST)], greedy_settings()
        )
        found = self._client.ask(exchange)
        return not isinstance(found, Failure) and found[0][0].text == first.text

    def _try_settings(
        self, base: Certificate, dialect: Dialect, prompt: Prompt, first: Completion
    ) -> Certificate:
        """Returns `base` with what was found out about stop strings, sampling, seeds and samples.

        `first` is the greedy answer to `prompt`.
        """
        trial = check_sampling(self._client, dialect)
        return replace(
            base,
            samples=trial.samples,
            seed=trial.seed,
            sampling=trial.sampling,
            stop=self._try_stop(dialect, prompt, first),
        )

    def _try_stop(self, dialect: Dialect, prompt: Prompt, first: Completion) -> bool | None:
        """Returns whether a stop string from the middle of the answer `first` ends it there.

        None if that answer has fewer than two words, so that there is no such string.
        """
        words = first.text.split()
        if len(words) < 2:
            return None
        stop = words[1]
        found = self._client.generate(dialect, prompt, greedy_settings(until=[stop]))
        return not isinstance(found, Failure) and stop not in found[0].text

    def _compare_tokenizer(self, counted: int | None) -> str:
        """Returns "agrees" if our tokenizer gives the trial text as many tokens as the server.

        `counted` is the server's number; "unknown" if that is None. Else returns what is wrong.
        """
        if self._tokenizer is None:
            return "no tokenizer; pass tokenizer=NAME"
        if counted is None:
            return "unknown"
        tokens = self._tokenizer.encode([PREFIX])[0]
        if abs(len(tokens) - counted) <= 1:  # one of them may add a beginning-of-text token
            return "agrees"
        return (
            f"{self._tokenizer.name} reads the test text as {len(tokens)} tokens, the server as "
            f"{counted}; pass tokenizer=NAME of the tokenizer of the model"
        )

    # -- log-likelihoods --------------------------------------------------------------------------

    def _try_scores(self, base: Certificate) -> Certificate:
        """Returns `base` with the dialect in which log-likelihoods can be measured.

        If there is none, the dialect stays, and `no_scores` says why.
        """
        if self._tokenizer is None:
            needs = "log-likelihoods need a tokenizer: pass tokenizer=NAME"
            return replace(base, no_scores=self._why_no_echo(base) or needs)
        if base.tokenizer not in ("agrees", "unknown"):
            return replace(base, no_scores=f"the tokenizer does not fit: {base.tokenizer}")
        trial, check = ScoreTrial("it was not tried"), ScoreCheck(self._client, self._tokenizer)
        for attempt in self._scoring_attempts(base):
            dialect = replace(attempt, next_tokens=True).make_dialect(self._model)
            trial = check.run(dialect)
            if not trial.problem:
                return replace(
                    attempt,
                    settings={**attempt.settings, **trial.settings},
                    alignment="aligned" if dialect.scores else "none",
                    no_first_token="" if dialect.scores_first_token else _NO_FIRST_TOKEN,
                    next_tokens=trial.next_tokens,
                    tokens=dialect.accepts_tokens,
                    values={**base.values, **trial.values},
                )
            if trial.alignment != "none":  # wrong values are no better in another dialect
                break
        return replace(base, no_scores=trial.problem, alignment=trial.alignment)

    def _why_no_echo(self, base: Certificate) -> str:
        """Returns why a server without a known tokenizer cannot score; "" if it could with one."""
        if base.dialect != "completions":
            return ""
        dialect = replace(base, dialect="echo-text").make_dialect(self._model)
        found = self._client.ask(
            self._client.scoring(dialect, Window([], 1, PREFIX), echoed_prompt)
        )
        return no_echo(found) if isinstance(found, Failure) else ""

    def _scoring_attempts(self, base: Certificate) -> list[Certificate]:
        """Returns copies of `base` with the dialects to try for scoring, the likeliest first."""
        if base.dialect == "llama-server":
            known = {"vocabulary": self._facts.vocabulary, "whole_token": self._whole_token()}
            return [replace(base, settings={**base.settings, **known})]
        if base.dialect not in ("completions", "llama-cpp-python"):
            return [base]
        if base.tokens is False:
            text = (
                base if base.dialect == "llama-cpp-python" else replace(base, dialect="echo-text")
            )
            return [
                replace(text, settings={**text.settings, "scores_first_token": first})
                for first in (True, False)
            ]
        echo = replace(base, dialect="echo")
        return [replace(base, dialect="vllm"), echo] if self._facts.name == "vLLM" else [echo]

    def _whole_token(self) -> int:
        """Returns a token of the known text, which consists of whole characters."""
        assert self._tokenizer is not None
        return int(self._tokenizer.encode([PREFIX])[0][-1])

    # -- requests --------------------------------------------------------------------------------

    @staticmethod
    def _trial_length(dialect: Dialect) -> int:
        """Returns the number of tokens of a trial answer; more for chats, as models may reason."""
        return 64 if dialect.is_chat else TRIAL_TOKENS

    def _trial_prompt(self, dialect: Dialect) -> Prompt:
        if not dialect.is_chat:
            return Prompt(PREFIX)
        return Prompt(QUESTION, messages=[{"role": "user", "content": QUESTION}])

    def _need(self, found: list[Completion] | Failure) -> list[Completion]:
        """Returns `found`; raises `ModelError` with its reason if it is a `Failure`."""
        if isinstance(found, Failure):
            raise ModelError(
                f"the server at {self._endpoint.root} did not answer a test request: {found.reason}"
            )
        return found


def _with_refused(base: Certificate, dialect: Dialect) -> Certificate:
    """Returns `base` with the parameters that the server has refused so far among its settings."""
    refused = dialect.parameters.refused
    return replace(base, settings={**base.settings, "refused": refused}) if refused else base


def _reasoning_field(reply: Any) -> str:
    """Returns the name of the field with the reasoning in the reply of a chat API."""
    try:
        message = reply["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        return "thinking"  # Anthropic's
    return next((n for n in ("reasoning", "reasoning_content") if message.get(n)), "unknown")
