"""Draws the few-shot examples of a task for each document and renders them as prompt turns."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any, Protocol

from lm_eval.api.registry import get_sampler
from lm_eval.config.task import FewshotConfig, TaskConfig
from lm_eval.errors import ConfigError
from lm_eval.prompts import fields
from lm_eval.prompts.fewshot import ContextSampler, replace_eval_doc
from lm_eval.prompts.messages import Message, question_and_answer


class FewshotTask(Protocol):
    """The attributes and methods of a task that `FewshotExamples` uses."""

    multiple_input: int

    @property
    def task_name(self) -> str: ...
    @property
    def config(self) -> TaskConfig: ...
    @property
    def fewshot_cfg(self) -> FewshotConfig: ...
    @property
    def eval_docs(self) -> Any: ...
    def fewshot_docs(self) -> Any: ...
    def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> Any: ...
    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> Any: ...
    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any: ...
    def is_unchanged(self, method: str) -> bool: ...


class FewshotExamples:
    """Draws few-shot examples for the documents of a task and renders them as prompt turns."""

    def __init__(self, task: FewshotTask) -> None:
        self._task = task
        self._seed: int | None = None
        #: The rendered examples by `id()`. Keeping the example ensures that its id is not reused.
        self._rendered: dict[int, tuple[Any, list[Message]]] = {}
        #: Draws a replacement if a document was drawn as an example for itself. It is separate
        #: from the sampler's generator, so that the other draws equal the published harness's.
        self._replacement_rng = random.Random()

    def seed(self, seed: int | None) -> None:
        """Sets the seed and restarts the sequence of draws; None means an unpredictable seed."""
        self._seed = seed
        self._replacement_rng = random.Random(seed)
        self._rendered.clear()
        if "sampler" in self.__dict__:
            self.sampler.set_rnd(seed)

    @cached_property
    def _pool(self) -> Any:
        """The documents that examples are drawn from; an empty list if the task has none."""
        return self._task.fewshot_docs() or []

    @cached_property
    def sampler(self) -> ContextSampler:
        """The sampler that draws examples; created on first use, since many runs need none."""
        chosen = self._task.fewshot_cfg.sampler
        make = get_sampler(chosen) if isinstance(chosen, str) else chosen
        made: ContextSampler = make(self._candidates(), rnd=None)
        made.set_rnd(self._seed)
        return made

    def _candidates(self) -> list[Any]:
        """Returns the documents numbered `fewshot_indices` (from 0), in that order; by default all.

        Raises `ConfigError` if there is no document of such a number.
        """
        # Copies, because a function of the task may modify the document that it is given.
        pool = [dict(doc) if isinstance(doc, dict) else doc for doc in self._pool]
        numbers = self._task.fewshot_cfg.fewshot_indices
        if numbers is None:
            return pool
        beyond = [number for number in numbers if not 0 <= number < len(pool)]
        if beyond:
            raise ConfigError(
                f"task {self._task.task_name!r}: fewshot_indices {beyond} do not exist; the "
                f"few-shot documents are numbered 0 to {len(pool) - 1}."
            )
        return [pool[number] for number in numbers]

    def turns(self, doc: Any, count: int) -> list[Message]:
        """Draws `count` examples for the document `doc` and returns their turns, in order.

        The list is empty if `count` is 0. Raises `ConfigError` if there are too few documents to
        draw from.
        """
        turns: list[Message] = []
        for example in self._draw(doc, count) if count > 0 else ():
            known = self._rendered.get(id(example))
            if known is None:
                known = (example, self._render(example))
                if self._can_cache:
                    self._rendered[id(example)] = known
            turns += known[1]
        return turns

    def _draw(self, doc: Any, count: int) -> Any:
        """Returns `count` examples for the document `doc`.

        `doc` is not among them if examples are drawn from the evaluated documents. Raises
        `ConfigError` if there are too few documents.
        """
        # The published harness excludes `doc` only if both keys name the same split. To draw the
        # same examples, ours excludes it afterwards in the other cases.
        same_key = self._task.fewshot_cfg.split == self._task.config.test_split
        drawn = self.sampler.sample(n=count, eval_doc=doc if same_key else None)
        if not same_key and self._pool_is_evaluated:
            return replace_eval_doc(self.sampler, doc, drawn, self._replacement_rng)
        return drawn

    @cached_property
    def _pool_is_evaluated(self) -> bool:
        """Whether the examples come from the evaluated documents."""
        return self._pool is self._task.eval_docs

    @cached_property
    def _can_cache(self) -> bool:
        """Whether an example is rendered the same every time; the task's own code may vary."""
        shots = self._task.fewshot_cfg
        templates = (shots.doc_to_text, shots.doc_to_choice, shots.doc_to_target)
        methods = ("doc_to_text", "doc_to_choice", "doc_to_target")
        return not any(map(callable, templates)) and all(map(self._task.is_unchanged, methods))

    def _render(self, example: Any) -> list[Message]:
        """Returns the question and the answer of one example as turns."""
        task, shots = self._task, self._task.fewshot_cfg
        question = task.doc_to_text(example, shots.doc_to_text)
        choices = task.doc_to_choice(example, shots.doc_to_choice) if shots.doc_to_choice else None
        answer = task.doc_to_target(example, shots.doc_to_target)
        if task.multiple_input and choices is not None:
            question, choices = choices[question], None
        return question_and_answer(
            question,
            choices=choices,
            answer=answer,
            prefix=fields.column_or_template(example, shots.gen_prefix),
            target_delimiter=shots.target_delimiter or "",
            fewshot_delimiter=shots.fewshot_delimiter or "",
        )
