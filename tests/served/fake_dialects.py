"""Servers that speak as vLLM, SGLang, llama.cpp and others do, and servers that lie.

Requests, replies and refusals follow what real servers were seen to do, or what their sources say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lm_eval.models.demo.model import END_OF_TEXT, WEIGHTS
from tests.served.fake_server import FakeModel, FakeServer, Floats, Generated, Handler, HttpError

CONTEXT = 256
"""The context length of the servers that have one."""


def openai_error(
    status: int, message: str, kind: str = "BadRequestError", **more: Any
) -> HttpError:
    """Returns an error in the form of OpenAI and vLLM."""
    body = {"message": message, "type": kind, "param": None, "code": status, **more}
    return HttpError(status, {"error": body})


def listed(value: Any) -> list[Any]:
    """Returns a field that may be missing, one value or a list as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


class Completions(FakeServer):
    """OpenAI's `/v1/completions` with `echo` and `logprobs`; prompts are texts, ids, or lists.

    So do OpenAI's older models, Fireworks, and servers that copy them. A subclass that differs
    replaces a method.
    """

    owner = "openai"
    max_logprobs = 5
    #: The maximum number of stop strings.
    max_stops: int | None = 4
    accepts_tokens = True
    accepts_lists = True
    #: Whether the log-probabilities of the prompt are returned (`echo`).
    echoes = True
    #: Whether `usage` counts an end-of-text token, and whether arrays contain it.
    counts_end = True
    lists_end = False
    default_tokens = 16

    def routes(self) -> Mapping[str, Handler]:
        return {"GET /v1/models": self.models, "POST /v1/completions": self.completions}

    def entry(self) -> dict[str, Any]:
        """Returns the entry of the model in `/v1/models`."""
        return {"id": self.name, "object": "model", "created": 1, "owned_by": self.owner}

    def models(self, _: Any) -> Any:
        return {"object": "list", "data": [self.entry()]}

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises `HttpError` for a request that the server refuses."""
        if body.get("model") != self.name:
            raise openai_error(404, f"The model `{body.get('model')}` does not exist.")
        stops = listed(body.get("stop"))
        if self.max_stops is not None and len(stops) > self.max_stops:
            raise openai_error(
                400, f"List should have at most 4 items after validation, not {len(stops)}"
            )
        if (body.get("logprobs") or 0) > self.max_logprobs:
            raise openai_error(400, f"logprobs must be at most {self.max_logprobs}.")

    def prompts(self, body: Mapping[str, Any]) -> list[list[int]]:
        """Returns the tokens of each prompt of a request."""
        given = body["prompt"]
        if not isinstance(given, list):
            return [self.tokens_of(given)]
        if given and isinstance(given[0], int):
            return [list(given)]
        return [self.tokens_of(one) if isinstance(one, str) else list(one) for one in given]

    def tokens_of(self, text: str) -> list[int]:
        """Returns the tokens of a prompt given as text."""
        return self.model.encode(text)

    def completions(self, body: Mapping[str, Any]) -> Any:
        self.check(body)
        prompts, samples = self.prompts(body), int(body.get("n") or 1)
        choices, answered = [], 0
        for prompt in prompts:
            for sample in range(samples):
                answer = self.answer(prompt, body, sample)
                answered += len(answer.tokens) + (answer.ended and self.counts_end)
                choices.append({"index": len(choices), **self.choice(prompt, answer, body)})
        asked = sum(map(len, prompts))
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": body.get("model"),
            "choices": choices,
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": answered,
                "total_tokens": asked + answered,
            },
        }

    def answer(self, prompt: Sequence[int], body: Mapping[str, Any], sample: int) -> Generated:
        """Returns one of the answers to a prompt; each sample has its own seed."""
        seed = body.get("seed")
        given = body.get("max_tokens")
        return self.model.generate(
            prompt,
            self.default_tokens if given is None else int(given),
            float(body.get("temperature", 1.0)),
            None if seed is None else int(seed) + sample,
            listed(body.get("stop")),
        )

    def choice(
        self, prompt: Sequence[int], answer: Generated, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns one of the `choices` of a reply."""
        echo = bool(body.get("echo")) and self.echoes
        text = (self.model.decode(prompt) if echo else "") + answer.text
        logprobs = None
        if body.get("logprobs") is not None:
            count = int(body["logprobs"])
            listed = self.listed_tokens(answer)
            generated = self.arrays(listed, self.generated_rows(prompt, answer), count)
            logprobs = generated
            if echo:
                asked = self.arrays(prompt, self.rows_of(prompt), count, first=False)
                logprobs = {name: asked[name] + generated[name] for name in asked}
        return {"text": text, "logprobs": logprobs, "finish_reason": answer.finish}

    def listed_tokens(self, answer: Generated) -> list[int]:
        """Returns the generated tokens whose log-probabilities are returned."""
        return [*answer.tokens, *([self.model.end] if answer.ended and self.lists_end else [])]

    def generated_rows(self, prompt: Sequence[int], answer: Generated) -> Floats:
        """Returns the distribution of each generated token, the end-of-text token included."""
        rows: Floats = self.model.after([*prompt, *answer.tokens])[len(prompt) - 1 :]
        return rows

    def token_text(self, token: int) -> str:
        """Returns the name of a token in the arrays of a reply."""
        return self.model.texts[token]

    def arrays(
        self, tokens: Sequence[int], rows: Floats, count: int, first: bool = True
    ) -> dict[str, list[Any]]:
        """Returns OpenAI's arrays of log-probabilities, with the `count` most likely tokens.

        Without `first`, the first token has no value.
        """
        values, tops, offsets, place = [], [], [], 0
        for number, token in enumerate(tokens):
            offsets.append(place)
            place += len(self.token_text(token))
            if not number and not first:
                values.append(None)
                tops.append(None)
                continue
            row = rows[number]
            best = [int(one) for one in np.argsort(-row)[:count]]
            values.append(float(row[token]))
            tops.append({self.token_text(one): float(row[one]) for one in (token, *best)})
        return {
            "tokens": [self.token_text(token) for token in tokens],
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }


class OpenAILegacy(Completions):
    """The older models of OpenAI."""


class Together(Completions):
    """Together: log-probabilities of the prompt are in a field of their own; prompts are texts."""

    owner = "Together"
    max_logprobs = 20

    def check(self, body: Mapping[str, Any]) -> None:
        super().check(body)
        if not isinstance(body["prompt"], str):
            raise openai_error(400, "prompt must be a string", "invalid_request_error")

    def completions(self, body: Mapping[str, Any]) -> Any:
        reply = super().completions({**body, "echo": False})
        prompt: list[Any] = []
        if body.get("echo"):
            tokens = self.tokens_of(body["prompt"])
            logprobs: dict[str, Any] | None = None
            if body.get("logprobs") is not None:
                count = int(body["logprobs"])
                logprobs = self.arrays(tokens, self.rows_of(tokens), count, first=False)
                logprobs["token_ids"] = tokens
            prompt = [{"text": body["prompt"], "logprobs": logprobs}]
        return {**reply, "object": "text.completion", "prompt": prompt}


class ListedBOS(Completions):
    """A server that puts a beginning-of-text token before a text, and returns it, too."""

    def check(self, body: Mapping[str, Any]) -> None:
        super().check(body)
        if not isinstance(body["prompt"], str):
            raise openai_error(400, "prompt must be a string", "invalid_request_error")

    def tokens_of(self, text: str) -> list[int]:
        return [self.model.end, *self.model.encode(text)]


def render(messages: Sequence[Mapping[str, Any]], closed: bool = True) -> str:
    """Returns a chat as text; without `closed`, the last message is to be continued."""
    text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
    return f"{text}assistant: " if closed else text.removesuffix("\n")


class Chat(FakeServer):
    """A chat API that can do nothing else.

    Args:
        model: the model.
        reasoning: the field with the reasoning: "reasoning" or "reasoning_content"; None if the
            model does not reason.
        thoughts: the number of tokens of the reasoning.
        refuses: what the model refuses: "temperature", "max_tokens", "stop" or "prefill".
        samples: whether `n` is accepted.
    """

    def __init__(
        self,
        model: FakeModel | None = None,
        reasoning: str | None = None,
        thoughts: int = 8,
        refuses: Sequence[str] = (),
        samples: bool = True,
    ) -> None:
        super().__init__(model)
        self.reasoning, self.thoughts = reasoning, thoughts
        self.refuses, self.samples = refuses, samples

    def routes(self) -> Mapping[str, Handler]:
        return {"GET /v1/models": self.models, "POST /v1/chat/completions": self.chat}

    def models(self, _: Any) -> Any:
        entry = {"id": self.name, "object": "model", "created": 1, "owned_by": "organization"}
        return {"object": "list", "data": [entry]}

    def check_chat(self, body: Mapping[str, Any]) -> None:
        """Raises `HttpError` for what the model refuses, in the words of OpenAI and Anthropic."""
        kind = "invalid_request_error"
        if "max_tokens" in self.refuses and "max_tokens" in body:
            raise openai_error(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                kind,
                param="max_tokens",
                code="unsupported_parameter",
            )
        if "temperature" in self.refuses and body.get("temperature", 1) != 1:
            raise openai_error(
                400,
                "Unsupported value: 'temperature' does not support 0 with this model. Only the "
                "default (1) value is supported.",
                kind,
                param="temperature",
                code="unsupported_value",
            )
        if "stop" in self.refuses and "stop" in body:
            raise openai_error(
                400,
                "Unsupported parameter: 'stop' is not supported with this model.",
                kind,
                param="stop",
                code="unsupported_parameter",
            )
        if "prefill" in self.refuses and body["messages"][-1]["role"] == "assistant":
            raise openai_error(
                400,
                "This model does not support assistant message prefill. The conversation must end "
                "with a user message.",
                kind,
                code=None,
            )

    def thinking(self, length: int) -> list[int]:
        """Returns the tokens of the reasoning, at most `length`."""
        return self.model.encode("Ann has a red kite. " * 20)[: min(self.thoughts, length)]

    def chat_tokens(self, body: Mapping[str, Any]) -> list[int]:
        """Returns the tokens of a chat."""
        return self.model.encode(render(body["messages"]))

    def chat(self, body: Mapping[str, Any]) -> Any:
        self.check_chat(body)
        prompt, count = self.chat_tokens(body), int(body.get("n") or 1) if self.samples else 1
        length = body.get("max_completion_tokens", body.get("max_tokens"))
        length = 64 if length is None else int(length)
        seed = body.get("seed")
        temperature = float(body.get("temperature", 1.0))
        if "temperature" in self.refuses:
            temperature = 0.0  # so that tests can foresee the answer
        choices, used = [], 0
        for sample in range(count):
            own = None if seed is None else int(seed) + sample
            thought = self.thinking(length) if self.reasoning is not None else []
            left = length - len(thought)
            asked = [*prompt, *thought]
            stops = listed(body.get("stop"))
            answer = self.model.generate(asked, left, temperature, own, stops) if left else None
            used += len(thought) + (len(answer.tokens) if answer else 0)
            message = {
                "role": "assistant",
                # A text that ended inside the reasoning has no content.
                "content": None if answer is None else answer.text,
                "refusal": None,
            }
            if self.reasoning is not None:
                message[self.reasoning] = self.model.decode(thought)
            finish = "length" if answer is None else answer.finish
            choices.append({"index": sample, "message": message, "finish_reason": finish})
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body.get("model"),
            "choices": choices,
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": used,
                "total_tokens": len(prompt) + used,
            },
        }


class VLLM(Completions, Chat):
    """vLLM 0.32.

    Args:
        model: the model.
        version: versions before 0.26 ignore `logprob_token_ids`.
        root: what `/v1/models` reports as the path of the weights.
        length: the context length.
    """

    owner = "vllm"
    lists_end = True
    max_logprobs = 20
    max_next_tokens = 128

    def __init__(
        self,
        model: FakeModel | None = None,
        version: str = "0.32.0",
        root: str = str(WEIGHTS),
        length: int = CONTEXT,
    ) -> None:
        Chat.__init__(self, model)
        self.version, self.root, self.length = version, root, length

    def routes(self) -> Mapping[str, Handler]:
        return {
            "GET /v1/models": self.models,
            "GET /version": lambda _: {"version": self.version},
            "GET /health": lambda _: None,
            "POST /tokenize": self.tokenize,
            "POST /detokenize": self.detokenize,
            "POST /v1/completions": self.completions,
            "POST /v1/chat/completions": self.chat,
        }

    def models(self, _: Any) -> Any:
        more = {"root": self.root, "parent": None, "max_model_len": self.length, "permission": []}
        return {"object": "list", "data": [{**self.entry(), **more}]}

    def tokenize(self, body: Mapping[str, Any]) -> Any:
        if not isinstance(body.get("prompt"), str):
            raise openai_error(400, "1 validation error", "Bad Request", param="body.prompt")
        tokens = self.model.encode(body["prompt"])
        count = len(tokens)
        return {"count": count, "max_model_len": self.length, "tokens": tokens, "token_strs": None}

    def detokenize(self, body: Mapping[str, Any]) -> Any:
        return {"prompt": self.model.decode(body["tokens"], special=True)}

    @property
    def _names_tokens(self) -> bool:
        return tuple(map(int, self.version.split(".")[:2])) >= (0, 26)

    def check(self, body: Mapping[str, Any]) -> None:
        if (body.get("logprobs") or 0) > self.max_logprobs:
            asked = body["logprobs"]
            raise openai_error(
                400,
                f"Requested sample logprobs of {asked}, which is greater than max allowed: 20",
                param="logprobs",
            )
        super().check(body)
        if "" in listed(body.get("stop")):
            raise openai_error(400, "stop cannot contain an empty string.")
        if body.get("max_tokens") == 0 and not body.get("echo"):
            raise openai_error(400, "max_tokens must be at least 1, got 0.", param="max_tokens")
        if int(body.get("n") or 1) > 1 and not body.get("temperature"):
            raise openai_error(400, f"n must be 1 when using greedy sampling, got {body['n']}.")
        asked = body.get("logprob_token_ids")
        if asked is not None and self._names_tokens:
            self._check_next(asked, body)
        for prompt in self.prompts(body):
            self._check_length(prompt)

    def _check_next(self, asked: Sequence[int], body: Mapping[str, Any]) -> None:
        if body.get("logprobs") is None:
            raise openai_error(
                400, "when using `logprob_token_ids`, `logprobs` must be set.", param="logprobs"
            )
        if len(asked) > self.max_next_tokens:
            raise openai_error(
                400,
                f"Requested logprob_token_ids of length {len(asked)}, which is greater than max "
                f"allowed: {self.max_next_tokens}",
            )
        if outside := [token for token in asked if not 0 <= token < self.model.vocabulary]:
            raise openai_error(
                400, f"token_id(s) {outside} in logprob_token_ids contain out-of-vocab token ids."
            )

    def _check_length(self, prompt: Sequence[int]) -> None:
        if not prompt:
            raise openai_error(400, "The decoder prompt cannot be empty")
        if len(prompt) >= self.length:
            raise openai_error(
                400,
                f"This model's maximum context length is {self.length} tokens. However, your "
                f"prompt contains {len(prompt)} input tokens, which exceeds this limit even "
                "without any output tokens.",
                param="input_tokens",
            )

    def answer(self, prompt: Sequence[int], body: Mapping[str, Any], sample: int) -> Generated:
        given = body.get("max_tokens")
        length = min(16 if given is None else int(given), self.length - len(prompt))
        return super().answer(prompt, {**body, "max_tokens": length}, sample)

    def choice(
        self, prompt: Sequence[int], answer: Generated, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        self._by_id = bool(body.get("return_tokens_as_token_ids"))
        choice = super().choice(prompt, answer, body)
        asked = body.get("logprob_token_ids")
        if asked is not None and self._names_tokens:
            rows = self.generated_rows(prompt, answer)
            choice["logprobs"]["top_logprobs"] = [
                {self.token_text(one): float(row[one]) for one in (token, *asked)}
                for token, row in zip(self.listed_tokens(answer), rows, strict=False)
            ]
        count = body.get("prompt_logprobs")
        if count is None and body.get("echo"):
            count = body.get("logprobs")
        positions = None if count is None else self._positions(prompt, int(count))
        return {
            **choice,
            "stop_reason": answer.stop,
            "token_ids": None,
            "prompt_logprobs": positions,
            "prompt_token_ids": None,
        }

    def token_text(self, token: int) -> str:
        return f"token_id:{token}" if self._by_id else super().token_text(token)

    def _positions(self, prompt: Sequence[int], count: int) -> list[Any]:
        """Returns `prompt_logprobs`: for each token itself and the best `count`, with ranks."""
        found: list[Any] = [None]
        for token, row in list(zip(prompt, self.rows_of(prompt), strict=True))[1:]:
            best = [int(one) for one in np.argsort(-row, kind="stable")[:count]]
            found.append(
                {
                    str(one): {
                        "logprob": float(row[one]),
                        "rank": int((row > row[one]).sum()) + 1,
                        "decoded_token": self.model.decode([one]),
                    }
                    for one in dict.fromkeys([token, *best])
                }
            )
        return found

    def chat_tokens(self, body: Mapping[str, Any]) -> list[int]:
        closed = not body.get("continue_final_message")
        if not closed and body.get("add_generation_prompt", True):
            raise openai_error(
                400, "continue_final_message and add_generation_prompt are not compatible."
            )
        return self.model.encode(render(body["messages"], closed))


class SGLang(FakeServer):
    """SGLang: its native `/generate`. `weight_version` tells weights apart if it is set."""

    #: Names of `sampling_params`; any other is an error of the server.
    PARAMETERS = {"max_new_tokens", "temperature", "top_p", "top_k", "min_p", "n", "stop"} | {
        "stop_token_ids",
        "ignore_eos",
        "skip_special_tokens",
        "no_stop_trim",
        "sampling_seed",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "min_new_tokens",
    }

    def __init__(
        self,
        model: FakeModel | None = None,
        weight_version: str = "default",
        path: str = str(WEIGHTS),
    ) -> None:
        super().__init__(model)
        self.weight_version, self.path = weight_version, path

    def routes(self) -> Mapping[str, Handler]:
        return {
            "GET /v1/models": self.models,
            "GET /model_info": self.model_info,
            "GET /get_model_info": self.model_info,
            "POST /generate": self.generate,
            "POST /tokenize": self.tokenize,
            "POST /detokenize": self.detokenize,
        }

    def models(self, _: Any) -> Any:
        entry = {"id": self.name, "object": "model", "created": 1, "owned_by": "sglang"}
        entry |= {"root": self.name, "parent": None, "max_model_len": CONTEXT}
        return {"object": "list", "data": [entry]}

    def model_info(self, _: Any) -> Any:
        return {
            "model_path": self.path,
            "served_model_name": self.name,
            "tokenizer_path": self.path,
            "is_generation": True,
            "weight_version": self.weight_version,
        }

    def tokenize(self, body: Mapping[str, Any]) -> Any:
        tokens = self.model.encode(body["prompt"])
        return {"tokens": tokens, "count": len(tokens), "max_model_len": -1}

    def detokenize(self, body: Mapping[str, Any]) -> Any:
        special = not body.get("skip_special_tokens", True)
        return {"text": self.model.decode(body["tokens"], special=special)}

    def generate(self, body: Mapping[str, Any]) -> Any:
        given = body.get("input_ids", body.get("text"))
        several = isinstance(given, list) and bool(given) and not isinstance(given[0], int)
        prompts = given if several else [given]
        sampling = body.get("sampling_params") or {}
        if unknown := set(sampling) - self.PARAMETERS:
            raise HttpError(500, f"Internal Server Error: unexpected keyword argument {unknown}")
        samples = int(sampling.get("n", 1))
        lists = any(isinstance(body.get(name), list) for name in ("logprob_start_len",))
        if samples > 1 and lists:
            raise self._error("logprob_start_len must be a single value with n > 1")
        answers = []
        for number, prompt in enumerate(prompts):
            tokens = self.model.encode(prompt) if isinstance(prompt, str) else list(prompt)
            self._check(tokens)
            starts = body.get("logprob_start_len", -1)
            start = starts[number] if isinstance(starts, list) else starts
            for sample in range(samples):
                answers.append(self._answer(tokens, sampling, sample, body, int(start)))
        return answers if several or samples > 1 else answers[0]

    @staticmethod
    def _error(message: str) -> HttpError:
        return HttpError(400, {"error": {"message": message}})

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise self._error("input_ids cannot be empty.")
        if len(tokens) >= CONTEXT:
            raise self._error(
                f"The input ({len(tokens)} tokens) is longer than the model's context length "
                f"({CONTEXT} tokens)."
            )

    def _answer(
        self,
        tokens: list[int],
        sampling: Mapping[str, Any],
        sample: int,
        body: Mapping[str, Any],
        start: int,
    ) -> dict[str, Any]:
        length = int(sampling.get("max_new_tokens", 128))
        seed = sampling.get("sampling_seed")
        answer = self.model.generate(
            tokens,
            min(length, CONTEXT - len(tokens)),
            float(sampling.get("temperature", 1.0)),
            None if seed is None else int(seed) + sample,
            listed(sampling.get("stop")),
        )
        reason: dict[str, Any] = {"type": "length", "length": len(answer.tokens)}
        if answer.finish == "stop":
            reason = {"type": "stop", "matched": answer.stop or self.model.end}
        info: dict[str, Any] = {
            "id": "1",
            "finish_reason": reason,
            "prompt_tokens": len(tokens),
            "weight_version": self.weight_version,
            "completion_tokens": len(answer.tokens),
            "cached_tokens": max(0, start),
        }
        if body.get("return_logprob"):
            if start > len(tokens):
                raise self._error(f"logprob_start_len {start} is longer than the input")
            info |= self._logprobs(tokens, answer, body, len(tokens) if start < 0 else start)
        return {"text": answer.text, "output_ids": answer.tokens, "meta_info": info}

    def _logprobs(
        self, tokens: Sequence[int], answer: Generated, body: Mapping[str, Any], start: int
    ) -> dict[str, Any]:
        """Returns the fields of log-probabilities.

        Entry 0 of the prompt's belongs to token `start`, and is null. Token ids are at index 1.
        """
        rows = self.rows_of(tokens)[start:]
        asked = list(zip(tokens[start:], rows, strict=True))
        output = [*answer.tokens, *([self.model.end] if answer.ended else [])]
        later = self.model.after([*tokens, *answer.tokens])[len(tokens) - 1 :]
        found: dict[str, Any] = {
            "input_token_logprobs": [
                [float(row[token]) if place else None, token, None]
                for place, (token, row) in enumerate(asked)
            ],
            "output_token_logprobs": [
                [float(row[token]), token, None] for token, row in zip(output, later, strict=False)
            ],
            "output_token_logprobs_length": len(output),
        }
        generated = later[: max(1, len(output))]
        if count := int(body.get("top_logprobs_num") or 0):
            top = [self._top(row, count) for row in rows]
            found["input_top_logprobs"] = [None, *top[1:]] if top else []
            found["output_top_logprobs"] = [self._top(row, count) for row in generated]
        if ids := body.get("token_ids_logprob"):
            chosen = [[[float(row[i]), i, None] for i in ids] for row in rows]
            found["input_token_ids_logprobs"] = [None, *chosen[1:]] if chosen else []
            found["output_token_ids_logprobs"] = [
                [[float(row[i]), i, None] for i in ids] for row in generated
            ]
        return found

    @staticmethod
    def _top(row: Floats, count: int) -> list[list[Any]]:
        return [[float(row[i]), int(i), None] for i in np.argsort(-row)[:count]]


class LlamaCppPython(Completions):
    """The server of llama-cpp-python, whose echoed log-probabilities are right only after a BOS.

    Args:
        model: the model.
        bos: whether the model adds a beginning-of-text token to prompts. If so, that token is left
            out of the reply. If not, every value belongs to the token one position later.
    """

    owner = "me"
    counts_end = False
    max_logprobs = 1 << 30
    max_stops = None

    def __init__(self, model: FakeModel | None = None, bos: bool = True) -> None:
        super().__init__(model)
        self.bos = bos

    def routes(self) -> Mapping[str, Handler]:
        return {
            **super().routes(),
            "POST /extras/tokenize": lambda body: {"tokens": self.tokens_of(body["input"])},
            "POST /extras/detokenize": lambda body: {"text": self.model.decode(body["tokens"])},
        }

    def entry(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "owned_by": "me", "permissions": []}

    def tokens_of(self, text: str) -> list[int]:
        return [*([self.model.end] if self.bos else []), *self.model.encode(text)]

    def check(self, body: Mapping[str, Any]) -> None:
        prompt = body["prompt"]
        if not isinstance(prompt, str) and len(listed(prompt)) != 1:
            raise self._internal("")
        if not isinstance(listed(prompt)[0], str):
            raise self._internal("7 validation errors: Input should be a valid string")
        (tokens,) = self.prompts(body)
        if len(tokens) >= CONTEXT:
            raise openai_error(
                400,
                f"This model's maximum context length is {CONTEXT} tokens, however you requested "
                f"{len(tokens) + 1} tokens.",
                "invalid_request_error",
                param="messages",
                code="context_length_exceeded",
            )

    @staticmethod
    def _internal(message: str) -> HttpError:
        return openai_error(500, message, "internal_server_error", code=None)

    def completions(self, body: Mapping[str, Any]) -> Any:
        return super().completions({**body, "n": 1})  # several samples are ignored

    def answer(self, prompt: Sequence[int], body: Mapping[str, Any], sample: int) -> Generated:
        if body.get("repeat_penalty", 1.1) != 1.0:
            # Something else than the model's own text; the real server penalizes repetitions.
            body = {**body, "temperature": 2.0, "seed": 1}
        return super().answer(prompt, {**body, "max_tokens": body.get("max_tokens") or 64}, sample)

    def choice(
        self, prompt: Sequence[int], answer: Generated, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        choice = super().choice(prompt, answer, body)
        if not body.get("echo") or body.get("logprobs") is None:
            return choice
        tokens = [*prompt, *answer.tokens]
        rows = self.model.after(tokens)
        # Row i is the distribution after token i, and belongs to token i + 1.
        kept = [place for place, token in enumerate(tokens) if token != self.model.end]
        kept = kept if self.bos else kept[: len(tokens) - 1]
        own = [tokens[place] for place in kept]
        told = np.array([rows[place - 1 if self.bos else place] for place in kept])
        return {**choice, "logprobs": self.arrays(own, told, int(body["logprobs"]), first=False)}


class LlamaServer(Completions):
    """llama.cpp's `llama-server`: `n_probs` in its native API; `echo` has no effect.

    Args:
        model: the model.
        file: the path that `/props` reports.
        parts: tokens that are treated like parts of a character: if one is generated, the reply
            has no log-probabilities.
    """

    owner = "llamacpp"
    lists_end = True
    max_stops = None
    echoes = False
    max_logprobs = 1 << 30

    def __init__(
        self,
        model: FakeModel | None = None,
        file: str = "/models/demo.gguf",
        parts: Sequence[str] = (),
    ) -> None:
        super().__init__(model)
        self.file, self.parts = file, parts

    def routes(self) -> Mapping[str, Handler]:
        return {
            **super().routes(),
            "GET /health": lambda _: {"status": "ok"},
            "GET /props": self.props,
            "POST /completion": self.native,
            "POST /tokenize": lambda body: {"tokens": self.model.encode(body["content"])},
            "POST /detokenize": lambda body: {
                "content": self.model.decode(body["tokens"], special=True)
            },
        }

    def not_found(self) -> Any:
        return {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}

    def entry(self) -> dict[str, Any]:
        meta = {"n_vocab": self.model.vocabulary, "n_ctx": CONTEXT, "n_ctx_train": 1024}
        meta |= {"n_params": 2_000_000, "size": 4_000_000}
        return {**super().entry(), "aliases": [], "meta": meta}

    def props(self, _: Any) -> Any:
        return {
            "default_generation_settings": {"n_ctx": CONTEXT, "params": {}},
            "total_slots": 4,
            "model_alias": self.name,
            "model_path": self.file,
            "bos_token": END_OF_TEXT,
            "eos_token": END_OF_TEXT,
            "build_info": "b10586-b21e4de7",
        }

    def check(self, body: Mapping[str, Any]) -> None:
        """Accepts any model and parameter."""

    def native(self, body: Mapping[str, Any]) -> Any:
        prompts, samples = self.prompts(body), int(body.get("n_cmpl", body.get("n", 1)))
        answers = []
        for prompt in prompts:
            if len(prompt) >= CONTEXT:
                message = f"request ({len(prompt)} tokens) exceeds the available context size"
                error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
                raise HttpError(400, {"error": error})
            for sample in range(samples):
                answers.append(self._native_answer(prompt, body, sample, len(answers)))
        if fields := body.get("response_fields"):
            answers = [{name: one[name] for name in fields if name in one} for one in answers]
        return answers if len(answers) > 1 else answers[0]

    def _native_answer(
        self, prompt: Sequence[int], body: Mapping[str, Any], sample: int, index: int
    ) -> dict[str, Any]:
        seed = body.get("seed", -1)
        answer = self.model.generate(
            prompt,
            int(body.get("n_predict", 64)),
            float(body.get("temperature", 0.8)),
            None if seed == -1 else int(seed) + sample,
            listed(body.get("stop")),
            max(body.get("logit_bias") or [[None, 0]], key=lambda pair: pair[1])[0],
        )
        ended = "word" if answer.stop else "eos" if answer.finish == "stop" else "limit"
        found = {
            "index": index,
            "content": answer.text,
            "tokens": [],
            "stop": True,
            "model": self.name,
            "tokens_predicted": len(answer.tokens),
            "tokens_evaluated": len(prompt),
            "truncated": False,
            "stop_type": ended,
            "stopping_word": answer.stop or "",
            "tokens_cached": len(prompt),
        }
        if count := int(body.get("n_probs", body.get("logprobs", 0)) or 0):
            probabilities = self._content(prompt, answer, count)
            found |= {"completion_probabilities": probabilities} if probabilities else {}
        return found

    def _content(self, prompt: Sequence[int], answer: Generated, count: int) -> list[Any]:
        """Returns the log-probabilities of generated tokens, as this server and chats have them."""
        rows = self.next_rows(self.generated_rows(prompt, answer))
        return [
            {
                **self._named(token, row),
                "top_logprobs": [self._named(int(i), row) for i in np.argsort(-row)[:count]],
            }
            for token, row in zip(self.listed_tokens(answer), rows, strict=False)
            if self.token_text(token) not in self.parts
        ]

    def next_rows(self, rows: Floats) -> Floats:
        """Returns the distributions that the server reports; one that lies changes them."""
        return rows

    def _named(self, token: int, row: Floats) -> dict[str, Any]:
        text = self.token_text(token)
        value = float(row[token])
        return {"id": token, "token": text, "bytes": list(text.encode()), "logprob": value}

    def choice(
        self, prompt: Sequence[int], answer: Generated, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        content = self._content(prompt, answer, int(body.get("logprobs") or 0))
        logprobs = {"content": content} if body.get("logprobs") else None
        return {"text": answer.text, "logprobs": logprobs, "finish_reason": answer.finish}


class TransformersServe(FakeServer):
    """`transformers serve`: generates only, samples never, and refuses unknown parameters."""

    name = str(WEIGHTS)
    #: Parameters of OpenAI's API, which are accepted; those without effect included.
    KNOWN = {"model", "prompt", "max_tokens", "temperature", "top_p", "seed", "stop"} | {
        "frequency_penalty",
        "suffix",
        "stream",
        "generation_config",
        "best_of",
        "echo",
        "logprobs",
        "n",
        "presence_penalty",
        "logit_bias",
        "stream_options",
        "user",
    }

    def routes(self) -> Mapping[str, Handler]:
        return {
            "GET /v1/models": lambda _: {"object": "list", "data": []},
            "GET /health": lambda _: {"status": "ok"},
            "POST /v1/completions": self.completions,
        }

    def completions(self, body: Mapping[str, Any]) -> Any:
        if unknown := set(body) - self.KNOWN:
            raise HttpError(422, {"detail": f"Unexpected fields in the request: {unknown}"})
        if body.get("model", self.name) != self.name:
            detail = f"Server is pinned to {self.name!r}; requested {body['model']!r}."
            raise HttpError(400, {"detail": detail})
        if not isinstance(body["prompt"], str):
            raise HttpError(400, {"detail": "prompt must be a string."})
        length = int(body.get("max_tokens") or 0)
        if not length:
            raise HttpError(500, "Internal Server Error")
        prompt = self.model.encode(body["prompt"]) or [self.model.end]
        answer = self.model.generate(prompt, length, stops=listed(body.get("stop")))
        finish = "length" if len(answer.tokens) >= length else "stop"
        # The stop string stays in the text, with the rest of its last token.
        return {
            "id": "1",
            "choices": [{"finish_reason": finish, "index": 0, "text": answer.whole}],
            "created": 1,
            "model": f"{self.name}@main",
            "object": "text_completion",
            "usage": {
                "completion_tokens": len(answer.tokens),
                "prompt_tokens": len(prompt),
                "total_tokens": len(prompt) + len(answer.tokens),
            },
        }


class TGI(Completions):
    """Hugging Face's TGI: `/v1/completions` without log-probabilities; prompts are texts."""

    name = "org/demo"
    owner = "org/demo"
    echoes = False

    def routes(self) -> Mapping[str, Handler]:
        return {**super().routes(), "GET /info": self.info}

    def info(self, _: Any) -> Any:
        return {
            "model_id": self.name,
            "model_sha": "0123456789abcdef",
            "max_input_tokens": CONTEXT - 1,
            "max_total_tokens": CONTEXT,
            "max_client_batch_size": 4,
            "router": "text-generation-router",
            "version": "3.3.7",
        }

    def check(self, body: Mapping[str, Any]) -> None:
        if any(not isinstance(prompt, str) for prompt in listed(body["prompt"])):
            raise HttpError(422, "Failed to deserialize the JSON body into the target type")
        if len(listed(body.get("stop"))) > 4:
            error = "`stop` supports up to 4 stop sequences. Given: 5"
            raise HttpError(422, {"error": error, "error_type": "validation"})

    def completions(self, body: Mapping[str, Any]) -> Any:
        return super().completions({**body, "n": 1})

    def choice(
        self, prompt: Sequence[int], answer: Generated, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        reasons = {"length": "length", "stop": "stop_sequence" if answer.stop else "eos_token"}
        return {
            "text": answer.text,
            "logprobs": None,
            "finish_reason": reasons[answer.finish],
        }


class Ollama(Completions):
    """Ollama: applies the chat template of the model, and returns no log-probabilities."""

    owner = "library"
    echoes = False

    def check(self, body: Mapping[str, Any]) -> None:
        if not isinstance(body["prompt"], str):
            message = "json: cannot unmarshal array into Go struct field .prompt of type string"
            raise openai_error(400, message, "invalid_request_error", code=None)

    def tokens_of(self, text: str) -> list[int]:
        return self.model.encode(render([{"role": "user", "content": text}]))

    def completions(self, body: Mapping[str, Any]) -> Any:
        return super().completions({**body, "n": 1})

    def choice(
        self, prompt: Sequence[int], answer: Generated, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {"text": answer.text, "finish_reason": answer.finish}


# Servers that lie


class OtherTokens(FakeServer):
    """Returns the log-probabilities of other tokens than those of the prompt."""

    def rows_of(self, tokens: Sequence[int]) -> Floats:
        return np.roll(super().rows_of(tokens), 1, axis=1)


class Drifting(FakeServer):
    """Returns log-probabilities that change when text follows."""

    def rows_of(self, tokens: Sequence[int]) -> Floats:
        rows = super().rows_of(tokens)
        told: Floats = rows * np.float32(1 + 0.01 * len(tokens))
        return told


class Zeros(FakeServer):
    """Returns log-probabilities that are all zero."""

    def rows_of(self, tokens: Sequence[int]) -> Floats:
        return np.zeros_like(super().rows_of(tokens))


class OtherNextTokens(LlamaServer):
    """A `llama-server` that returns the log-probabilities of other next tokens."""

    def next_rows(self, rows: Floats) -> Floats:
        return np.roll(rows, 1, axis=1)


def liar(lie: type[FakeServer], dialect: type[FakeServer]) -> type[FakeServer]:
    """Returns a class of servers that speak a dialect and lie."""
    return type(f"{lie.__name__}{dialect.__name__}", (lie, dialect), {})
