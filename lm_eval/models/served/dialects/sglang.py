"""SGLang's native API, `/generate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Completion
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window, groups
from lm_eval.models.served.dialects.base import Dialect, TokenCount, answers_of, field_of
from lm_eval.models.served.exchange import BadReplyError, RefusedError


class SGLang(Dialect):
    """An SGLang server.

    Log-probabilities of the prompt begin at `logprob_start_len`. Its prefix cache is used for the
    tokens before that position, so it is set to the last token of the context. The entry of that
    token is null; the next one is the first of the continuation.
    """

    name = "SGLang"
    path = "/generate"
    scores = True
    scores_next_tokens = True

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        parameters = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "stop": self.stops(sampling),
            **sampling.others,
        }
        if sampling.seed is not None and sampling.temperature > 0:
            parameters["sampling_seed"] = sampling.seed
        if sampling.samples > 1:
            parameters["n"] = sampling.samples
        as_tokens = self.accepts_tokens and prompts[0].tokens is not None
        forms = [list(p.tokens or ()) if as_tokens else p.text for p in prompts]
        return {
            "input_ids" if as_tokens else "text": forms if len(forms) > 1 else forms[0],
            "sampling_params": self.parameters.apply(parameters),
        }

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        answers = answers_of(reply, prompts * samples)
        return groups([_completion(answer) for answer in answers], samples)

    def usage(self, reply: Any) -> TokenCount:
        infos = [answer.get("meta_info") or {} for answer in answers_of(reply, _count(reply))]
        names = ("prompt_tokens", "cached_tokens", "completion_tokens")
        return TokenCount(*(sum(int(info.get(name) or 0) for info in infos) for name in names))

    def score_payload(self, windows: Sequence[Window]) -> dict[str, Any]:
        prompts = [list(window.tokens) for window in windows]
        starts = [window.start - 1 for window in windows]
        several = len(windows) > 1
        return {
            "input_ids": prompts if several else prompts[0],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": starts if several else starts[0],
            "top_logprobs_num": 1,
        }

    def read_score(self, reply: Any, windows: Sequence[Window]) -> list[Score]:
        answers = answers_of(reply, len(windows))
        return [_score(answer, window) for answer, window in zip(answers, windows, strict=True)]

    def next_payload(
        self, contexts: Sequence[Sequence[int]], tokens: Sequence[int]
    ) -> dict[str, Any]:
        prompts = [list(context) for context in contexts]
        return {
            "input_ids": prompts if len(prompts) > 1 else prompts[0],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "token_ids_logprob": list(tokens),
            "top_logprobs_num": 1,
        }

    def read_next(self, reply: Any, contexts: int, tokens: Sequence[int]) -> list[dict[int, Score]]:
        return [_next_scores(answer, tokens) for answer in answers_of(reply, contexts)]


def _count(reply: Any) -> int:
    return len(reply) if isinstance(reply, list) else 1


def _completion(answer: Mapping[str, Any]) -> Completion:
    info = field_of(answer, "meta_info")
    reason = info.get("finish_reason") or {}
    kind = reason.get("type") if isinstance(reason, Mapping) else reason
    if kind == "abort":
        raise RefusedError(f"the server aborted the request ({reason.get('message')})")
    text = field_of(answer, "text")
    if not isinstance(text, str):
        raise BadReplyError(f"the reply's text is {type(text).__name__}, not a string")
    return Completion(text, finish_reason=kind, tokens=info.get("completion_tokens"))


def _score(answer: Mapping[str, Any], window: Window) -> Score:
    info = field_of(answer, "meta_info")
    values, tops = field_of(info, "input_token_logprobs"), field_of(info, "input_top_logprobs")
    count = len(window.tokens) - window.start
    if len(values) != count + 1 or len(tops) != count + 1:
        raise BadReplyError(
            f"the reply has {len(values)} log-probabilities of the prompt instead of {count + 1}"
        )
    total, greedy = 0.0, True
    for value, top in zip(values[1:], tops[1:], strict=True):
        if value[0] is None or not top:
            raise BadReplyError("a log-probability in the reply is null")
        total += float(value[0])
        greedy = greedy and value[0] >= top[0][0]
    return total, greedy


def _next_scores(answer: Mapping[str, Any], tokens: Sequence[int]) -> dict[int, Score]:
    info = field_of(answer, "meta_info")
    values = field_of(info, "output_token_ids_logprobs")
    best = field_of(info, "output_top_logprobs")
    if not values or not values[0] or not best or not best[0]:
        raise BadReplyError("the reply has no log-probabilities of the next token")
    by_id = {int(entry[1]): float(entry[0]) for entry in values[0]}
    if missing := [token for token in tokens if token not in by_id]:
        raise BadReplyError(f"the reply has no log-probability of the token {missing[0]}")
    return {token: (by_id[token], token == int(best[0][0][1])) for token in tokens}
