"""The requests with which vLLM scores continuations, and how its outputs are read."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from lm_eval.models.planned.jobs import Score
from lm_eval.models.planned.score_plan import Job, ScorePlan, WholeJob

#: The maximum length of vLLM's `logprob_token_ids`.
MAX_NEXT_TOKENS = 128


def sampling_parameter_names() -> frozenset[str]:
    """Returns the names of the settings that a request to the installed vLLM can have."""
    from vllm import SamplingParams

    return frozenset(inspect.signature(SamplingParams).parameters)


def sampling_parameters(**settings: Any) -> Any:
    """Returns the settings of a request whose output is wanted once, when it is finished."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **settings)


class ScoringRequests:
    """Makes the requests of a plan and reads their outputs.

    One-token continuations are read from the log-probabilities of the next token. Longer ones need
    those of the prompt (`prompt_logprobs`), for which vLLM by default computes the whole prompt
    again, since it returns none for tokens that it finds in its prefix cache. Only those of the
    continuation are needed, so requests ask for the prefix cache all the same. If it contained
    tokens of the continuation, too, there is no score, and the request is sent again without it.
    """

    def __init__(self, plan: ScorePlan) -> None:
        self._plan = plan
        self._parameters: dict[tuple[Any, ...], Any] = {}
        self._can_cache = "skip_reading_prefix_cache" in sampling_parameter_names()

    def request(self, job: Job, cached: bool = True) -> tuple[Sequence[int], Any]:
        """Returns the prompt and the settings of a request; `cached` allows the prefix cache."""
        if isinstance(job, WholeJob):
            prompt = self._plan.windows[job.windows[0]].tokens
            settings: dict[str, Any] = {"prompt_logprobs": 0}
            if cached and self._can_cache:
                settings["skip_reading_prefix_cache"] = False
        else:
            prompt = job.contexts[0]
            settings = {"logprobs": len(job.tokens), "logprob_token_ids": job.tokens}
        return prompt, self._shared_parameters(settings)

    def _shared_parameters(self, settings: dict[str, Any]) -> Any:
        """Returns the settings of a request, one object for all that have the same."""
        key = tuple(settings.items())
        if key not in self._parameters:
            given = {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
            self._parameters[key] = sampling_parameters(
                max_tokens=1, temperature=0.0, detokenize=False, **given
            )
        return self._parameters[key]

    def read(self, job: Job, output: Any) -> Score | dict[int, Score] | None:
        """Returns the score of a window, or the scores of next tokens by token.

        None if the output lacks a part, because it was found in the prefix cache.
        """
        if isinstance(job, WholeJob):
            window = self._plan.windows[job.windows[0]]
            # The token at `start` is predicted by the one before, which must have been computed.
            if int(output.num_cached_tokens or 0) >= window.start:
                return None
            wanted = window.tokens[window.start :]
            # From the end: depending on its version, vLLM leaves out positions that were found.
            positions = output.prompt_logprobs[-len(wanted) :]
            entries = [position[token] for token, position in zip(wanted, positions, strict=True)]
            total = sum(float(entry.logprob) for entry in entries)
            return total, all(entry.rank == 1 for entry in entries)
        answer = output.outputs[0]
        position, generated = answer.logprobs[0], int(answer.token_ids[0])
        return {t: (float(position[t].logprob), t == generated) for t in job.tokens}
