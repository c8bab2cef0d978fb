"""Models on a llama.cpp or llama-cpp-python server."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lm_eval.api.instance import Completion, Failure, Instance
from lm_eval.api.registry import register_model
from lm_eval.engine.progress import progress
from lm_eval.errors import ModelError
from lm_eval.models.planned.jobs import Sampling
from lm_eval.models.served.argument_checks import check_arguments, registered_name
from lm_eval.models.served.certificate import Certificate
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.published import is_overridden

#: The stop string of requests that have none.
_DEFAULT_STOP = "</s>"


@register_model("gguf", "ggml")
class GGUFLM(ServedLM):
    """A model on a llama.cpp server (`llama-server`) or a server of llama-cpp-python.

    The server has one model, so that its name is optional. White space around answers is removed.
    The arguments are those of `ServedBase`.
    """

    kind: ClassVar[str] = "gguf"
    key_variable: ClassVar[str] = ""

    logprobs = 10
    temperature = 0.0

    def __init__(
        self, base_url: str | None = None, max_length: int | None = None, **kwargs: Any
    ) -> None:
        for name in ("device", "max_batch_size"):
            kwargs.pop(name, None)
        super().__init__(base_url=base_url, max_length=max_length, **kwargs)

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        if cls is GGUFLM:
            check_arguments(cls, registered_name(cls), arguments)
        super().check_before_loading(arguments, chat_template)

    def assumed_certificate(self) -> Certificate:
        return Certificate(dialect="completions", no_scores="the server was not probed")

    def _stops(self, until: Sequence[str]) -> list[str]:
        return super()._stops(until or (_DEFAULT_STOP,))

    def _finished_answer(self, answer: Completion, sampling: Sampling) -> Completion:
        finished = super()._finished_answer(answer, sampling)
        return finished.changed(finished.strip())

    # -- the published hook ------------------------------------------------------------------------

    def gguf_completion(
        self,
        context: str,
        continuation: str | None = None,
        stop: Any = None,
        retries: int = 3,
        delay: float = 5,
        **kwargs: Any,
    ) -> Any:
        """Sends one request to `/v1/completions` and returns the reply.

        A subclass may override it; all requests are then sent with it, one after the other.

        Args:
            context: the prompt.
            continuation: a text whose log-probabilities are wanted; None to generate.
            stop: stop strings.
            retries: how often the request is sent at most.
            delay: seconds between attempts.
            kwargs: without effect.
        """
        requests: Any = importlib.import_module("requests")
        body: dict[str, Any] = {
            "prompt": context + (continuation or ""),
            "logprobs": self.logprobs,
            "temperature": self.temperature,
        }
        if continuation:
            body |= {"max_tokens": 1, "echo": True}
        if stop is not None:
            body["stop"] = stop
        url, reason = f"{self.endpoint.root}/v1/completions", ""
        for attempt in range(retries):
            try:
                response = requests.post(url, json=body, headers=self.header, timeout=self.timeout)
                response.raise_for_status()
                return response.json()
            except requests.exceptions.RequestException as error:
                reason = f"{type(error).__name__}: {error}"
                time.sleep(delay if attempt + 1 < retries else 0)
        raise ModelError(
            f"the server gave no usable reply at {url} in {retries} attempts: {reason}. Check that "
            "it runs, and base_url."
        )

    @property
    def _uses_hook(self) -> bool:
        return is_overridden(self, "gguf_completion")

    def cannot_measure(self, request_type: str) -> str | None:
        if not self._uses_hook:
            return super().cannot_measure(request_type)
        rolling = request_type == "loglikelihood_rolling"
        return "a class with its own gguf_completion scores no whole texts" if rolling else None

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        if not self._uses_hook:
            return super().generate_until(requests, disable_tqdm)
        answers: list[Any] = []
        with progress(len(requests), "Generating answers", disable=disable_tqdm) as bar:
            for request in requests:
                stop = request.args[1].get("until", [_DEFAULT_STOP])
                reply = self.gguf_completion(context=request.args[0], stop=stop)
                answers.append(_choice_or_failure(reply, lambda choice: choice["text"].strip()))
                self.cache_hook.add_partial("generate_until", request.args, answers[-1])
                bar.update(1)
        return answers

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        if not self._uses_hook:
            return super().loglikelihood(requests, disable_tqdm)
        answers: list[Any] = []
        with progress(len(requests), "Scoring continuations", disable=disable_tqdm) as bar:
            for request in requests:
                context, continuation = request.args[:2]
                reply = self.gguf_completion(context=context, continuation=continuation)
                boundary = len(context)
                answers.append(
                    _choice_or_failure(reply, lambda c, b=boundary: get_result(c["logprobs"], b))
                )
                self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
                bar.update(1)
        return answers


def get_result(logprobs: Mapping[str, Any], context_length: int) -> tuple[float, bool]:
    """Returns the log-likelihood of an echoed continuation, and whether it is greedy.

    Args:
        logprobs: the field `logprobs` of a choice: `tokens`, `text_offset`, `token_logprobs` and
            `top_logprobs`. The last token was generated.
        context_length: the number of characters of the context.
    """
    offsets, tokens = logprobs["text_offset"], logprobs["tokens"]
    start = next((n for n, at in enumerate(offsets) if at >= context_length), len(offsets))
    greedy = all(
        max(top, key=top.__getitem__) == token
        for token, top in zip(tokens[start:-1], logprobs["top_logprobs"][start:-1], strict=True)
    )
    return sum(logprobs["token_logprobs"][start:-1]), greedy


def _choice_or_failure(reply: Any, read: Any) -> Any:
    """Returns `read` of the first choice of a reply; a `Failure` if something is missing there."""
    try:
        return read(reply["choices"][0])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        return Failure(f"the reply cannot be read: {type(error).__name__}: {error}")
