"""`EngineLM`: what the engines in this process have in common."""

from __future__ import annotations

import abc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, ClassVar

from lm_eval.api.instance import Instance
from lm_eval.api.model import LengthCheck
from lm_eval.engine.progress import Progress
from lm_eval.errors import ConfigError, EvalError, ModelError
from lm_eval.models.context_length import own_length
from lm_eval.models.conventions import max_context_tokens, read_generation
from lm_eval.models.engines.arguments import (
    check_lengths,
    check_long_prompts,
    given_length,
    restrict_settings,
)
from lm_eval.models.engines.data_parallel import EngineCopies
from lm_eval.models.engines.unloaded import UnloadedEngine
from lm_eval.models.identity import fingerprint
from lm_eval.models.planned.jobs import GenerationJob, Sampling, Window
from lm_eval.models.planned.model import Finished, FinishedJobs, PlannedLM
from lm_eval.models.planned.score_plan import Abilities, Job, ScorePlan
from lm_eval.models.planned.tokenizers import TokenCoder, load_tokenizer
from lm_eval.models.planned.two_steps import Generated as Generated
from lm_eval.models.planned.two_steps import generate_in_two_steps
from lm_eval.models.thinking import check_budget, read_budget

logger = logging.getLogger(__name__)

Scored = Sequence[tuple[Job, Any]]
"""Jobs of a plan with their results, as `ScorePlan.add` takes them."""


class OnlyEngine:
    """Keeps a process from running two engines.

    Engines take most of the memory of a device and keep it until the process ends.
    """

    def __init__(self) -> None:
        self._name: str | None = None

    def check(self) -> None:
        """Raises `ConfigError` if an engine runs in this process."""
        if self._name is not None:
            raise ConfigError(
                f"an engine ({self._name}) already runs in this process; a process can have only "
                "one. Evaluate the second model in a process of its own."
            )

    @contextmanager
    def starting(self, name: str) -> Iterator[None]:
        """Notes that the engine `name` runs, unless the block fails to start it.

        Raises `ConfigError` if another one runs.
        """
        self.check()
        yield
        self._name = name


#: The engine of this process.
ONLY_ENGINE = OnlyEngine()


class EngineLM(PlannedLM):
    """Base class of engines in this process.

    A subclass implements `score` and `generate`. Both get everything that is to be computed at
    once, in the order of prefixes, so that the engine's scheduler and prefix cache can work, and
    yield lists of results as the engine finishes them. It sets `copies` if it runs several engines
    in processes of their own (`data_parallel.py`); then neither is called in this process.

    Attributes:
        engine: the name of the engine, for messages.
        copies: the engines in other processes; None if the engine runs in this one.
        model_args: the arguments that the engine was created with.
        length_names: the arguments that set the context length.
        longer_variable: the environment variable with which the engine accepts a context length
            that is larger than the model's own.
    """

    engine: ClassVar[str]
    length_names: ClassVar[tuple[str, ...]] = ("max_length", "max_model_len")
    longer_variable: ClassVar[str | None] = None
    #: Arguments that cannot change an answer; stored answers are used if only these differ.
    speed_arguments: ClassVar[frozenset[str]] = frozenset()
    model_args: Mapping[str, Any]
    copies: EngineCopies | None = None

    def __init__(
        self,
        pretrained: str,
        tokenizer: str | None,
        max_gen_toks: int,
        seed: int | None,
        add_bos_token: bool | None,
        prefix_token_id: int | None,
        think_end_token: str | None,
        tokenizer_settings: dict[str, Any] | None = None,
        thinking_budget: int | None = None,
    ) -> None:
        super().__init__()
        self.pretrained = pretrained
        self._tokenizer_name = tokenizer or pretrained
        self._tokenizer_settings = tokenizer_settings or {}
        self._max_gen_toks = int(max_gen_toks)
        self.seed = seed
        self.add_bos_token = add_bos_token
        self.custom_prefix_token_id = prefix_token_id
        self.think_end_token = think_end_token
        self.thinking_budget = read_budget(thinking_budget, think_end_token)

    def answer_settings(self) -> dict[str, Any]:
        """Returns the settings of this object that affect answers, and hashes of its files."""
        return {
            **super().answer_settings(),
            "pretrained": self.pretrained,
            "files": fingerprint(self.pretrained),
            "engine": {k: v for k, v in self.model_args.items() if k not in self.speed_arguments},
        }

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises `ConfigError` for a second engine and for lengths that cannot work.

        `arguments` are the `model_args` of the run; `chat_template` is not used.
        """
        ONLY_ENGINE.check()
        check_lengths(arguments, cls.length_names, cls.longer_variable)
        check_long_prompts(arguments)
        given = given_length(arguments, cls.length_names)
        length = own_length(arguments) if given is None else given[1]
        check_budget(arguments, length, partial(cls._tokenizer_object, arguments))

    @classmethod
    def length_check(cls, arguments: Mapping[str, Any]) -> LengthCheck | None:
        """Returns how to find requests that do not fit into the context length given.

        None if none is given: then the length is the model's own, which cannot be chosen, and long
        prompts are cut, as by `hf`. None also with `long_prompts=cut`.
        """
        given = given_length(arguments, cls.length_names)
        if given is None or arguments.get("long_prompts") == "cut":
            return None
        argument, length = given
        name, coder = cls._tokenizer_before_loading(arguments)
        encoder = UnloadedEngine(arguments, coder, name, length, cls._template_of(arguments))
        remedy = "pass long_prompts=cut to cut off the beginning of such prompts"
        return LengthCheck(encoder, encoder.needed_lengths, length, argument, remedy)

    @classmethod
    def _tokenizer_before_loading(cls, arguments: Mapping[str, Any]) -> tuple[str, TokenCoder]:
        """Returns the name of the tokenizer that `arguments` select, and the tokenizer itself."""
        name, settings = cls._tokenizer_of(arguments)
        return name, load_tokenizer(name, **settings)

    @classmethod
    def _tokenizer_of(cls, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Returns the name of the tokenizer that `arguments` select, and how it is loaded."""
        return arguments.get("tokenizer") or arguments["pretrained"], {}

    @classmethod
    def _template_of(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments for the chat template that `arguments` contain."""
        return {}

    @classmethod
    def _tokenizer_object(cls, arguments: Mapping[str, Any]) -> Any:
        """Returns the tokenizer object of a library; None if it is not known before loading."""
        try:
            return cls._tokenizer_before_loading(arguments)[1].object
        except EvalError:
            return None  # loading the model raises an error with more details

    # -- what a subclass implements ---------------------------------------------------------------

    @property
    @abc.abstractmethod
    def setting_names(self) -> Iterable[str]:
        """The names of generation settings that the engine accepts."""

    @property
    @abc.abstractmethod
    def abilities(self) -> Abilities:
        """What the engine can be asked for."""

    @abc.abstractmethod
    def score(self, plan: ScorePlan) -> Iterator[Scored]:
        """Yields lists of pairs (job of `plan`, its result), as they are finished.

        A result is what `ScorePlan.add` takes: a list with one entry per prompt of the job, or a
        `Failure`.
        """

    @abc.abstractmethod
    def generate(self, jobs: Iterable[GenerationJob | None]) -> Iterator[Generated]:
        """Yields lists of pairs (job, its answers), as they are finished.

        The answers are a list with one per sample, or a `Failure`. An item None in `jobs` means
        that no job is ready yet, while others are computed. More may follow.
        """

    @property
    def concurrent(self) -> int:
        """How many requests the engine works on at a time."""
        return 1

    def counters(self) -> dict[str, float]:
        """Returns the counters of the engine by name; an empty dictionary if it has none."""
        return {}

    # -- requests ---------------------------------------------------------------------------------

    @cached_property
    def _coder(self) -> TokenCoder:
        return load_tokenizer(self._tokenizer_name, **self._tokenizer_settings)

    @property
    def token_coder(self) -> TokenCoder:
        return self._coder

    @property
    def tokenizer_name(self) -> str:
        return self._tokenizer_name

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        if not (self.run_context.chat_template or getattr(self.tokenizer, "chat_template", None)):
            raise ModelError(
                f"{self.pretrained} has no chat template; run without --apply_chat_template."
            )
        return super().apply_chat_template(chat_history, add_generation_prompt)

    def _generation_jobs(self, requests: Sequence[Instance]) -> Iterable[GenerationJob]:
        """Returns what to ask for; raises `ModelError` if an answer leaves no room for a prompt."""
        for request in {repr(request.args[1]): request for request in requests}.values():
            settings = read_generation(request.args[1], self._max_gen_toks)
            max_context_tokens(settings, self.max_length, request)
        return super()._generation_jobs(requests)

    def _read_sampling(self, settings: Mapping[str, Any]) -> Sampling:
        """Returns the generation settings of requests; raises `ConfigError` for unknown ones."""
        sampling = super()._read_sampling(settings)
        return restrict_settings(sampling, self.engine, self.setting_names)

    def scores(self, windows: Sequence[Window]) -> Iterator[Sequence[tuple[int, Any]]]:
        """Yields lists of pairs (position in `windows`, score of the window) as they are finished.

        A score is (log-likelihood, is_greedy) of the window's continuation, or a `Failure`.
        """
        plan = ScorePlan(windows, self.abilities)
        for batch in self.score(plan):
            yield [done for job, found in batch for done in plan.add(job, found)]

    def _score_windows(self, windows: Sequence[Window], finished: Finished, bar: Progress) -> None:
        usage = self.run_context.usage
        copies = self.copies
        for results in copies.scores(windows, usage) if copies else self.scores(windows):
            finished(results)
            bar.update(len(results))

    def answers(self, jobs: Iterable[GenerationJob | None]) -> Iterator[Generated]:
        """Yields lists of pairs (job, its answers) as `generate` does.

        With a `thinking_budget`, thoughts are cut.
        """
        steps = self.two_steps
        if steps is None:
            return self.generate(jobs)
        return generate_in_two_steps(self.generate, jobs, steps)

    def _generate_answers(
        self, jobs: Iterable[GenerationJob], finished: FinishedJobs, bar: Progress
    ) -> None:
        usage = self.run_context.usage
        copies = self.copies
        for batch in copies.generate(jobs, usage) if copies else self.answers(jobs):
            finished(batch)
            bar.update(sum(len(job.requests) for job, _ in batch))
