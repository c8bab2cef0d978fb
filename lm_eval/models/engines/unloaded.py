"""Encodes requests as an engine will, before its weights are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.engine.progress import Progress
from lm_eval.models.conventions import read_generation
from lm_eval.models.planned.jobs import GenerationJob, Window
from lm_eval.models.planned.model import Finished, FinishedJobs, PlannedLM
from lm_eval.models.planned.tokenizers import TokenCoder


class UnloadedEngine(PlannedLM):
    """An engine without weights: it formats and encodes requests, and answers none.

    Args:
        arguments: the `model_args` of the run.
        coder: the tokenizer of the engine.
        tokenizer_name: its name.
        length: the context length.
        template: further arguments for the chat template.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        coder: TokenCoder,
        tokenizer_name: str,
        length: int,
        template: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.add_bos_token = arguments.get("add_bos_token")
        self.custom_prefix_token_id = arguments.get("prefix_token_id")
        self._max_gen_toks = int(arguments.get("max_gen_toks", self._max_gen_toks))
        self._coder, self._name, self._length = coder, tokenizer_name, length
        self._template = dict(template)

    @property
    def token_coder(self) -> TokenCoder:
        return self._coder

    @property
    def tokenizer_name(self) -> str:
        return self._name

    @property
    def max_length(self) -> int:
        return self._length - 1

    def _template_settings(self) -> dict[str, Any]:
        return self._template

    def needed_lengths(self, requests: Sequence[Instance]) -> list[int]:
        """Returns the context length that each request needs, so that no token is cut off.

        That is its tokens, those of its answer, and one more, which engines always generate. A
        text that is scored as a whole needs none: it is read in several windows. All requests must
        have the same type.
        """
        kind = requests[0].request_type if requests else ""
        if kind == "loglikelihood":
            scored = self._encode_scored(requests)
            return [len(context) + len(rest) + 1 for _, context, rest in scored]
        if kind == "generate_until":
            prompts = self._encode_prompts([str(request.args[0]) for request in requests])
            answers = [read_generation(r.args[1], self._max_gen_toks) for r in requests]
            return [
                len(prompt) + answer.max_gen_toks + 1
                for prompt, answer in zip(prompts, answers, strict=True)
            ]
        return [0] * len(requests)

    def _score_windows(self, windows: Sequence[Window], finished: Finished, bar: Progress) -> None:
        raise AssertionError("an engine that is not loaded answers no requests")

    def _generate_answers(
        self, jobs: Iterable[GenerationJob], finished: FinishedJobs, bar: Progress
    ) -> None:
        raise AssertionError("an engine that is not loaded answers no requests")
