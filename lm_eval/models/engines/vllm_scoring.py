"""The requests with which vLLM scores continuations, and how its outputs are read."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.models.planned.jobs import Score, Window
from lm_eval.models.planned.score_plan import Abilities, Job, Parts, ScorePlan, WholeJob

#: The maximum length of vLLM's `logprob_token_ids`.
MAX_NEXT_TOKENS = 128
#: How many tokens of a text that have no score yet are asked for one by one.
MAX_MISSING = 8


def sampling_parameter_names() -> frozenset[str]:
    """Returns the names of the settings that a request to the installed vLLM can have."""
    from vllm import SamplingParams

    return frozenset(inspect.signature(SamplingParams).parameters)


def sampling_parameters(**settings: Any) -> Any:
    """Returns vLLM's `SamplingParams` with these settings, for output only when it is finished."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **settings)


@dataclass(frozen=True)
class Incomplete:
    """The score of the end of a window; that of its first `missing` tokens is not known."""

    missing: int
    rest: Score


class ScoringRequests:
    """Makes the requests of a plan and reads their outputs.

    One-token continuations are read from the log-probabilities of the next token. Longer ones need
    those of the prompt (`prompt_logprobs`), for which vLLM by default computes the whole prompt
    again, since it returns none for tokens that it finds in its prefix cache. Only those of the
    continuation are needed, so requests ask for the prefix cache all the same. If that contained
    tokens of the continuation, too, the score is `Incomplete`.
    """

    def __init__(self, plan: ScorePlan) -> None:
        self._plan = plan
        self._parameters: dict[tuple[Any, ...], Any] = {}
        self._can_cache = "skip_reading_prefix_cache" in sampling_parameter_names()

    def request(self, job: Job, cached: bool = True) -> tuple[Sequence[int], Any]:
        """Returns the tokens of the prompt and the `SamplingParams` of the request for a job.

        A `WholeJob` asks for log-probabilities of the prompt. For these, vLLM by default does not
        read its prefix cache; `cached=True` makes it do so, if its version can. Other jobs ask for
        those of next tokens, for which vLLM reads the cache whatever `cached` is.
        """
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
        """Returns vLLM's `SamplingParams` with these settings; the same object for equal ones."""
        key = tuple(settings.items())
        if key not in self._parameters:
            given = {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
            self._parameters[key] = sampling_parameters(
                max_tokens=1, temperature=0.0, detokenize=False, **given
            )
        return self._parameters[key]

    def read(self, job: Job, output: Any) -> Score | dict[int, Score] | Incomplete:
        """Returns (log-likelihood, is_greedy) of the window of a `WholeJob`, maybe `Incomplete`.

        For another job, returns such a pair for each of its next tokens, by token. `output` is
        vLLM's `RequestOutput`.
        """
        if isinstance(job, WholeJob):
            return self._read_window(self._plan.windows[job.windows[0]], output)
        answer = output.outputs[0]
        position, generated = answer.logprobs[0], int(answer.token_ids[0])
        return {t: (float(position[t].logprob), t == generated) for t in job.tokens}

    def _read_window(self, window: Window, output: Any) -> Score | Incomplete:
        # A token is predicted by the one before, which must have been computed.
        first = max(window.start, int(output.num_cached_tokens or 0) + 1)
        wanted = window.tokens[first:]
        # From the end: depending on its model runner, vLLM leaves out positions that were found.
        positions = output.prompt_logprobs[-len(wanted) :] if wanted else []
        entries = [position[token] for token, position in zip(wanted, positions, strict=True)]
        total = sum(float(entry.logprob) for entry in entries)
        score = total, all(entry.rank == 1 for entry in entries)
        return score if first == window.start else Incomplete(first - window.start, score)


class MissingScores:
    """Completes the scores of windows whose first tokens were found in the prefix cache.

    A few tokens are asked for one by one, which uses the prefix cache; otherwise the whole window
    is scored without it.
    """

    def __init__(self, windows: Sequence[Window]) -> None:
        """Takes the windows of the plan."""
        self._all = windows
        self._windows: list[Window] = []
        self._owners: list[tuple[WholeJob, Parts, int]] = []

    def add(self, job: WholeJob, found: Incomplete) -> None:
        """Adds the window of a job, with the part of its score that is known, to be completed."""
        window = self._all[job.windows[0]]
        if found.missing > MAX_MISSING:
            self._windows.append(window)
            self._owners.append((job, Parts(1), 0))
            return
        parts = Parts(found.missing + 1)
        parts.add(0, found.rest)
        for number in range(found.missing):
            end = window.start + number
            self._windows.append(Window(window.tokens[: end + 1], end))
            self._owners.append((job, parts, number + 1))

    def plan(self, abilities: Abilities) -> ScorePlan:
        """Returns the plan that scores what is missing."""
        return ScorePlan(self._windows, abilities)

    def complete(self, number: int, score: Any) -> list[tuple[WholeJob, list[Any]]]:
        """Takes the score of the window at `number` in the plan of `plan`.

        Returns [(job, [score])] with the whole score of the job that it completes, else [].
        """
        job, parts, place = self._owners[number]
        whole = parts.add(place, score)
        return [] if whole is None else [(job, [whole])]
