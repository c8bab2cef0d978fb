"""`PlannedLM`: encodes requests, plans what to ask for, and reports answers as they arrive."""

from __future__ import annotations

import abc
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.instance import Completion, Failure, Instance
from lm_eval.api.model import TemplateLM, move_spaces, split_pair
from lm_eval.engine.progress import Progress, progress
from lm_eval.errors import ModelError
from lm_eval.models.conventions import (
    TextScores,
    cut_at_stop,
    keep_end,
    max_context_tokens,
    read_generation,
    repeat_numbers,
    rolling_windows,
    sampling_seed,
    task_of,
    warn_truncated,
)
from lm_eval.models.planned.ahead import computed_ahead
from lm_eval.models.planned.jobs import GenerationJob, Prompt, Sampling, Window, groups
from lm_eval.models.planned.repeats import RepeatOrder, seed_of_prompt
from lm_eval.models.planned.tokenizers import TokenCoder
from lm_eval.models.planned.two_steps import TwoSteps
from lm_eval.models.thinking import split_thought
from lm_eval.models.tokenizer import apply_chat_template

logger = logging.getLogger(__name__)

#: Names of generation settings that are translated; all others are passed on as they are.
TRANSLATED = {
    "until",
    "do_sample",
    "temperature",
    "max_gen_toks",
    "max_new_tokens",
    "max_tokens",
    "max_completion_tokens",
}

Finished = Callable[[Sequence[tuple[int, Any]]], None]
"""A callback that gets pairs of a window's index and its score, which may be a `Failure`."""

FinishedJobs = Callable[[Sequence[tuple[GenerationJob, "list[Any] | Failure"]]], None]
"""A callback that gets jobs with one answer per sample; or a `Failure` for all of them."""

#: The maximum length of answers that are asked for together, as samples of one request.
MAX_TOKENS_TOGETHER = 512
#: How many prompts are tokenized at once.
TOKENIZED_AT_ONCE = 256


class PlannedLM(TemplateLM):
    """Base class of models that get all requests of a type at once: servers and engines.

    A subclass implements `token_coder`, `max_length`, `_score_windows` and `_generate_answers`, and
    sets the attributes below in its constructor.

    Attributes:
        add_bos_token: whether prompts begin with a beginning-of-text token; None for what the
            tokenizer does by default.
        custom_prefix_token_id: the token that stands for an empty context; None for the
            beginning-of-text token, or else the end-of-text token.
        seed: the seed for sampled answers; None for that of the run.
        think_end_token: the string that ends the model's thinking text; None if there is none.
        thinking_budget: after how many tokens a thought is cut; None for no limit.
    """

    add_bos_token: bool | None = None
    custom_prefix_token_id: int | None = None
    seed: int | None = None
    think_end_token: str | None = None
    thinking_budget: int | None = None
    _max_gen_toks: int = 256
    _eos_string: str | None = None

    # -- what a subclass implements ---------------------------------------------------------------

    @property
    @abc.abstractmethod
    def token_coder(self) -> TokenCoder | None:
        """The tokenizer of the model; None if there is none."""

    @property
    @abc.abstractmethod
    def max_length(self) -> int:
        """The maximum number of tokens of a prompt, after which one token can be generated."""

    @property
    def max_scored_length(self) -> int:
        """The maximum number of tokens of a context and the continuation that is scored after it.

        It is `max_length` for servers and engines, which read all of them.
        """
        return self.max_length

    @abc.abstractmethod
    def _score_windows(self, windows: Sequence[Window], finished: Finished, bar: Progress) -> None:
        """Scores windows, none of which is empty; calls `finished` with scores as they arrive.

        It gets lists of pairs (position in `windows`, score); a score is (log-likelihood,
        is_greedy) or a `Failure`. Also calls `bar.update` with the number of windows that are done.
        """

    @abc.abstractmethod
    def _generate_answers(
        self, jobs: Iterable[GenerationJob], finished: FinishedJobs, bar: Progress
    ) -> None:
        """Generates answers; calls `finished` with pairs (job, its answers) as they arrive.

        The answers are a list with one per sample, or a `Failure`. Also calls `bar.update` with the
        number of answers that are done.
        """

    @property
    def gives_samples(self) -> bool:
        """Whether several sampled answers to a prompt can be asked for at once."""
        return True

    @property
    def takes_tokens(self) -> bool:
        """Whether prompts are passed on as token ids."""
        return self.token_coder is not None

    # -- tokens -----------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        """The tokenizer object of the library; None if there is none."""
        return None if self.token_coder is None else self.token_coder.object

    def _need_tokenizer(self) -> TokenCoder:
        if self.token_coder is None:
            raise ModelError(
                f"{type(self).__name__} needs a tokenizer to measure log-likelihoods: pass "
                "--model_args tokenizer=NAME, the folder or hub name of the model's tokenizer."
            )
        return self.token_coder

    @property
    def eot_token_id(self) -> int | None:  # type: ignore[override]
        return None if self.token_coder is None else self.token_coder.eos_id

    @property
    def _known_prefix(self) -> int | None:
        """The token that stands for an empty context; None if it is not known."""
        if self.custom_prefix_token_id is not None:
            return self.custom_prefix_token_id
        coder = self._need_tokenizer()
        known = (coder.bos_id, coder.eos_id)
        return next((token for token in known if token is not None), None)

    @property
    def prefix_token_id(self) -> int:
        known = self._known_prefix
        if known is not None:
            return known
        raise ModelError(
            "a text without context is scored after the beginning-of-text token, which the "
            "tokenizer does not tell; pass --model_args custom_prefix_token_id=ID."
        )

    @property
    def eos_string(self) -> str | None:
        """The end-of-text token as text, which ends generated answers; None if it is not known."""
        if self._eos_string:
            return self._eos_string
        return None if self.token_coder is None else self.token_coder.eos_text

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        left_truncate_len: int | None = None,
        **kwargs: Any,
    ) -> list[int]:
        tokens = self._encode([string], add_special_tokens)[0]
        return tokens if left_truncate_len is None else tokens[-left_truncate_len:]

    def _encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        """Returns the tokens of each text.

        `special` says whether special tokens such as beginning-of-text are added; None for what
        `add_bos_token` says.
        """
        chosen = self.add_bos_token if special is None else special
        return self._need_tokenizer().encode(texts, chosen)

    @property
    def max_gen_toks(self) -> int:
        """The maximum length of an answer, if the request does not set it."""
        return self._max_gen_toks

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns a chat as a prompt, formatted with the chat template of the tokenizer.

        With `add_generation_prompt`, it ends with the header of a new message; else it ends with
        the last message, left open. Raises `ModelError` if there is no template or it fails.
        """
        if not hasattr(self.tokenizer, "apply_chat_template"):
            raise ModelError(
                "--apply_chat_template needs the template of the model's tokenizer: pass "
                "--model_args tokenizer=NAME with transformers installed."
            )
        named = self.run_context.chat_template
        settings = {} if named is None else {"chat_template": named}
        settings |= self._template_settings()
        return apply_chat_template(self.tokenizer, chat_history, add_generation_prompt, **settings)

    def _template_settings(self) -> dict[str, Any]:
        """Returns further arguments for the chat template."""
        return {}

    # -- log-likelihoods --------------------------------------------------------------------------

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        self._require("loglikelihood")
        return self._loglikelihood_tokens(
            self._encode_scored(requests),
            disable_tqdm=disable_tqdm,
            tasks=[task_of(request) for request in requests],
        )

    def _encode_scored(
        self, requests: Sequence[Instance]
    ) -> list[tuple[Any, list[int], list[int]]]:
        """Returns the arguments of each request and the tokens of its context and continuation."""
        pairs = [move_spaces(*request.args[:2]) for request in requests]
        texts = dict.fromkeys(t for c, rest in pairs if c for t in (c, c + rest))
        codes = dict(zip(texts, self._encode(list(texts)), strict=True))
        alone = dict.fromkeys(rest for c, rest in pairs if not c)
        bare = dict(zip(alone, self._encode(list(alone), special=False), strict=True))
        return [
            (
                request.args[:2],
                *(
                    split_pair(codes[c + rest], codes[c], -1)
                    if c
                    else split_pair(bare[rest], [], self.prefix_token_id)
                ),
            )
            for request, (c, rest) in zip(requests, pairs, strict=True)
        ]

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        tasks: Sequence[str] = (),
        **kwargs: Any,
    ) -> list[Any]:
        windows = []
        before = Counter(self.run_context.usage.truncated)
        for number, (arguments, context, continuation) in enumerate(requests):
            window, cut = self._window(arguments, context, continuation)
            windows.append(window)
            if cut and tasks:
                self.run_context.usage.truncated[tasks[number]] += 1
        warn_truncated(tasks, self.run_context.usage.truncated, before, self.max_length)
        answers: list[Any] = [(0.0, True)] * len(requests)

        def finished(results: Sequence[tuple[int, Any]]) -> None:
            for number, score in results:
                answers[number] = score
            known = [(n, s) for n, s in results if requests[n][0] is not None]
            self._report("loglikelihood", [requests[n][0] for n, _ in known], [s for _, s in known])

        with progress(len(requests), "Scoring continuations", disable=disable_tqdm) as bar:
            self._score(windows, finished, bar)
        return answers

    def _window(
        self, arguments: Any, context: list[int], continuation: list[int]
    ) -> tuple[Window, bool]:
        """Returns the window that scores a continuation, and whether its context had to be cut.

        `arguments` are the texts of context and continuation; None if they are not known. The other
        two are their tokens.
        """
        whole = context + continuation
        tokens = whole[-self.max_scored_length :]
        cut = len(whole) - len(tokens)
        start = max(1, len(context) - cut)
        text, boundary = None, 0
        if arguments is not None and not cut:
            text, boundary = "".join(arguments), len(arguments[0])
        return Window(tokens, start, text, boundary), cut > 0

    def _score(self, windows: Sequence[Window], finished: Finished, bar: Progress) -> None:
        """Calls `finished` with the scores of windows as they arrive; see `_score_windows`.

        Empty ones get (0.0, True) at once, and those that cannot be scored get a `Failure`.
        """
        known: list[tuple[int, Any]] = []
        asked = []
        for number, window in enumerate(windows):
            if window.is_empty:
                known.append((number, (0.0, True)))
            elif why := self._why_not(window):
                known.append((number, Failure(why)))
            else:
                asked.append(number)
        if known:
            finished(known)
            bar.update(len(known))
        self._score_windows(
            [windows[number] for number in asked],
            lambda results: finished([(asked[n], score) for n, score in results]),
            bar,
        )

    def _why_not(self, window: Window) -> str:
        """Returns why a window cannot be scored; "" if it can."""
        return ""

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        self._require("loglikelihood_rolling")
        texts = [request.args[0] for request in requests]
        windows: list[Window] = []
        owner: list[int] = []
        for number, tokens in enumerate(self._encode(texts)):
            # One token less than a prompt may have, since the prefix token is added.
            cut = rolling_windows(tokens, self.prefix_token_id, self.max_scored_length - 1)
            whole = len(cut) == 1
            windows += [
                Window([*c, *rest], len(c), texts[number] if whole else None) for c, rest in cut
            ]
            owner += [number] * len(cut)
        sums = TextScores(owner, len(texts))
        answers: list[Any] = [0.0] * len(texts)
        failed: dict[int, Failure] = {}

        def finished(results: Sequence[tuple[int, Any]]) -> None:
            done = []
            for window, score in results:
                if isinstance(score, Failure):
                    failed.setdefault(owner[window], score)
                    score = (0.0, True)
                text = sums.add(window, score[0])
                if text is not None:
                    answers[text] = failed.get(text, sums.of[text])
                    done.append(text)
            self._report(
                "loglikelihood_rolling",
                [requests[n].args for n in done],
                [answers[n] for n in done],
            )

        with progress(len(windows), "Reading texts", unit="window", disable=disable_tqdm) as bar:
            self._score(windows, finished, bar)
        return answers

    def _require(self, request_type: str) -> None:
        """Raises `ModelError` if requests of a type cannot be answered."""
        reason = self.cannot_measure(request_type)
        if reason is not None:
            raise ModelError(f"{type(self).__name__} cannot measure log-likelihoods: {reason}.")

    # -- generation -------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        answers: list[Any] = [""] * len(requests)
        jobs = self._generation_jobs(requests)
        order = RepeatOrder(requests)

        def finished(results: Sequence[tuple[GenerationJob, list[Any] | Failure]]) -> None:
            found_now: list[int] = []
            for job, found in results:
                for place, number in enumerate(job.requests):
                    answers[number] = (
                        found
                        if isinstance(found, Failure)
                        else self._finished_answer(found[place], job.sampling)
                    )
                found_now += job.requests
            if getattr(self.cache_hook, "takes_positions", False):
                found = [answers[n] for n in found_now]
                self.cache_hook.add_at("generate_until", found_now, found)
                return
            done = order.add(found_now)
            self._report(
                "generate_until", [requests[n].args for n in done], [answers[n] for n in done]
            )

        usage = self.run_context.usage
        before = Counter(usage.truncated)
        with progress(
            len(requests),
            "Generating answers",
            disable=disable_tqdm,
            tokens=lambda: usage.tokens_generated,
        ) as bar:
            self._generate_answers(jobs, finished, bar)
        warn_truncated(map(task_of, requests), usage.truncated, before, self.max_length)
        self._warn_of_empty(requests, answers)
        return answers

    def _generation_jobs(self, requests: Sequence[Instance]) -> Iterable[GenerationJob]:
        """Returns the prompts to answer, in alphabetical order; the repeats of a request together.

        Reads all settings at once, so that mistakes in them are reported before anything is sent.
        """
        by_object: dict[int, list[int]] = {}
        for number, request in enumerate(requests):
            by_object.setdefault(id(request), []).append(number)
        prompts = sorted(by_object.values(), key=lambda numbers: str(requests[numbers[0]].args[0]))
        samplings: dict[str, Sampling] = {}
        for numbers in prompts:
            settings = requests[numbers[0]].args[1]
            if (key := repr(settings)) not in samplings:
                samplings[key] = self._read_sampling(settings)

        def tokenize(portion: Sequence[list[int]]) -> Sequence[Prompt]:
            return self._prompts([requests[numbers[0]] for numbers in portion])

        def jobs() -> Iterator[GenerationJob]:
            # The first requests are sent while the prompts of the others are tokenized.
            for portion, found in computed_ahead(tokenize, groups(prompts, TOKENIZED_AT_ONCE)):
                for numbers, prompt in zip(portion, found, strict=True):
                    request = requests[numbers[0]]
                    yield from self._repeats(
                        request, numbers, prompt, samplings[repr(request.args[1])]
                    )

        return jobs()

    def _read_sampling(self, settings: Mapping[str, Any]) -> Sampling:
        """Returns the generation settings of a request, with a seed if it is sampled.

        `settings` is its second argument. The seed is that of the model, else that of the run.
        """
        read = read_generation(settings, self._max_gen_toks)
        return Sampling(
            until=self._stops(read.until),
            max_tokens=read.max_gen_toks,
            temperature=read.temperature,
            seed=sampling_seed(self) if read.sampled else None,
            others={name: value for name, value in settings.items() if name not in TRANSLATED},
        )

    def _repeats(
        self, request: Instance, numbers: Sequence[int], prompt: Prompt, sampling: Sampling
    ) -> Iterator[GenerationJob]:
        """Yields the jobs for the repeats of a request; `numbers` are their positions in the call.

        Sampled answers are asked for together if possible. Otherwise each has its own seed, since
        with the same seed all would be equal.
        """
        if sampling.seed is None:
            yield from (GenerationJob((number,), prompt, sampling) for number in numbers)
            return
        own = seed_of_prompt(sampling.seed, prompt.text)
        repeats = repeat_numbers([request] * len(numbers))
        is_row = repeats == tuple(range(repeats[0], repeats[0] + len(repeats)))
        if self._asks_together(sampling) and len(numbers) > 1 and is_row:
            several = replace(sampling, seed=own + repeats[0], samples=len(numbers))
            yield GenerationJob(tuple(numbers), prompt, several)
            return
        for repeat, number in zip(repeats, numbers, strict=True):
            yield GenerationJob((number,), prompt, replace(sampling, seed=own + repeat))

    def _asks_together(self, sampling: Sampling) -> bool:
        """Returns whether sampled answers to a prompt are asked for in one request.

        Those that may be long are not: they would all be lost if the run were interrupted before
        the longest of them is finished. Nor are those whose thoughts are cut one by one.
        """
        long = sampling.max_tokens > MAX_TOKENS_TOGETHER
        return self.gives_samples and not long and self.thinking_budget is None

    def _prompts(self, requests: Sequence[Instance]) -> list[Prompt]:
        """Returns the prompt of each request, cut to what fits."""
        tokens = self._prompt_tokens(requests)
        return [self._prompt(one, found) for one, found in zip(requests, tokens, strict=True)]

    def _prompt_tokens(self, requests: Sequence[Instance]) -> Sequence[list[int] | None]:
        """Returns the tokens of each prompt, cut to what fits; None if prompts are sent as text."""
        if not self.takes_tokens:
            return [None] * len(requests)
        found = []
        for request, tokens in zip(
            requests,
            self._encode_prompts([str(request.args[0]) for request in requests]),
            strict=True,
        ):
            room = self._room(request)
            if len(tokens) > room:
                self.run_context.usage.truncated[task_of(request)] += 1
            found.append(keep_end(tokens, room) or self._empty_prompt)
        return found

    def _room(self, request: Instance) -> int:
        """Returns how many tokens the prompt of a request may have, so that the answer fits."""
        read = read_generation(request.args[1], self._max_gen_toks)
        return max_context_tokens(read, self.max_length, request)

    def _encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of prompts to answer."""
        return self._encode(texts)

    @property
    def _empty_prompt(self) -> list[int]:
        """The tokens that are sent for a prompt without tokens."""
        return [self.prefix_token_id]

    def _prompt(self, request: Instance, tokens: list[int] | None) -> Prompt:
        """Returns the prompt of a request; `tokens` are None if it is sent as text."""
        return Prompt(str(request.args[0]), tokens)

    def _stops(self, until: Sequence[str]) -> list[str]:
        """Returns the stop strings of a request, and the end-of-text token."""
        eos = self.eos_string
        return [*until, *([eos] if eos and eos not in until else [])]

    def _stops_to_send(self, sampling: Sampling) -> list[str]:
        """Returns the stop strings that the server or engine gets.

        Only the end-of-text token if the model thinks, since the others may occur in its thoughts.
        The answer is cut at all of them afterwards (`_finished_answer`).
        """
        stops = [stop for stop in dict.fromkeys(sampling.until) if stop]
        if sampling.after_thought or not self.think_end_token:
            return stops
        return [stop for stop in stops if stop == self.eos_string]

    def _finished_answer(self, answer: Completion, sampling: Sampling) -> Completion:
        """Returns an answer without the thought before it, which ends before the first stop string.

        The thought becomes its `reasoning`. Stop strings that occur in it do not count.
        """
        mark = self.think_end_token
        thought, rest = split_thought(str(answer), mark)
        text = cut_at_stop(rest, sampling.until)
        if text == str(answer):
            return answer
        reason = answer.finish_reason if text == rest else "stop"
        if not thought:
            return answer.changed(text, finish_reason=reason)
        count = answer.reasoning_tokens
        if count is None and self.token_coder is not None:
            count = len(self.token_coder.encode([f"{thought}{mark}"], False)[0])
        reasoning = "\n".join(part for part in (answer.reasoning, thought) if part)
        return Completion(text, reasoning, reason, answer.tokens, count)

    @property
    def two_steps(self) -> TwoSteps | None:
        """How thoughts are cut; None if they are not, or if the server does it."""
        if self.thinking_budget is None or self.think_end_token is None:
            return None
        coder = self.token_coder if self.takes_tokens else None
        encode = None if coder is None else lambda text: coder.encode([text], False)[0]
        return TwoSteps(self.thinking_budget, self.think_end_token, encode)

    def _warn_of_empty(self, requests: Sequence[Instance], answers: Sequence[Any]) -> None:
        """Logs a warning if answers are empty: they are scored, but often mean a mistake."""
        empty = [n for n, answer in enumerate(answers) if answer == ""]
        if not empty:
            return
        cut = sum(1 for n in empty if getattr(answers[n], "finish_reason", None) == "length")
        logger.warning(
            "%d of %d answers are empty, %d of them because the maximum length was reached (while "
            "the model was reasoning?). Tasks: %s. They are scored as they are; raise the length "
            "with --gen_kwargs max_gen_toks=N.",
            len(empty),
            len(answers),
            cut,
            ", ".join(sorted({task_of(requests[n]) for n in empty})),
        )

    def _report(self, kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        """Reports answers to the cache hook; `kind` is the request type.

        `arguments` are those of the requests, one tuple per answer.
        """
        self.cache_hook.add_batch(kind, arguments, answers)

    def usage(self) -> dict[str, Any]:
        return self.run_context.usage.totals()

    def answer_settings(self) -> dict[str, Any]:
        """Returns the settings of this object that affect answers, for stored answers."""
        return {
            "tokenizer": self.tokenizer_name,
            "add_bos_token": self.add_bos_token,
            "custom_prefix_token_id": self.custom_prefix_token_id,
            "seed": self.seed,
            "think_end_token": self.think_end_token,
            **({} if self.thinking_budget is None else {"thinking_budget": self.thinking_budget}),
            "max_gen_toks": self.max_gen_toks,
            "eos_string": self._eos_string,
        }
