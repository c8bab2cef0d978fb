"""A task's few-shot examples: drawn for each question, each written once."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any, Protocol

from lm_eval.api.registry import get_sampler
from lm_eval.config.task import FewshotConfig, TaskConfig
from lm_eval.errors import ConfigError
from lm_eval.prompts import fields
from lm_eval.prompts.fewshot import ContextSampler, without_question
from lm_eval.prompts.messages import Message, question_and_answer


class ShownTask(Protocol):
    """What `Shots` uses of a task."""

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


class Shots:
    """Draws examples for a task and writes them as turns of a prompt."""

    def __init__(self, task: ShownTask) -> None:
        self._task = task
        self._seed: int | None = None
        #: Turns by the example's id; the example is kept so that nothing else gets its id.
        self._written: dict[int, tuple[Any, list[Message]]] = {}
        #: Exchanges a question that was drawn for itself, outside the published draws.
        self._spare = random.Random()

    def seed(self, seed: int | None) -> None:
        """Start the sequence of draws anew."""
        self._seed = seed
        self._spare = random.Random(seed)
        self._written.clear()
        if "sampler" in self.__dict__:
            self.sampler.set_rnd(seed)

    @cached_property
    def _pool(self) -> Any:
        return self._task.fewshot_docs() or []

    @cached_property
    def sampler(self) -> ContextSampler:
        """Made when the first example is needed: most runs need none."""
        chosen = self._task.fewshot_cfg.sampler
        make = get_sampler(chosen) if isinstance(chosen, str) else chosen
        made: ContextSampler = make(self._to_draw_from(), rnd=None)
        made.set_rnd(self._seed)
        return made

    def _to_draw_from(self) -> list[Any]:
        """The documents numbered `fewshot_indices`, in that order, or all there are."""
        # Copies: a function that changes its document must not change an example with it.
        pool = [dict(doc) if isinstance(doc, dict) else doc for doc in self._pool]
        numbers = self._task.fewshot_cfg.fewshot_indices
        if numbers is None:
            return pool
        beyond = [number for number in numbers if not 0 <= number < len(pool)]
        if beyond:
            raise ConfigError(
                f"task {self._task.task_name!r}: fewshot_indices {beyond} do not exist; the "
                f"documents to draw from are numbered 0 to {len(pool) - 1}."
            )
        return [pool[number] for number in numbers]

    def turns(self, doc: Any, count: int) -> list[Message]:
        """The examples for one question."""
        turns: list[Message] = []
        for example in self._drawn(doc, count) if count > 0 else ():
            known = self._written.get(id(example))
            if known is None:
                known = (example, self._write(example))
                if self._read_the_same:
                    self._written[id(example)] = known
            turns += known[1]
        return turns

    def _drawn(self, doc: Any, count: int) -> Any:
        # The published draw leaves the question out only where the split is named as both.
        named_as_both = self._task.fewshot_cfg.split == self._task.config.test_split
        drawn = self.sampler.sample(n=count, eval_doc=doc if named_as_both else None)
        if not named_as_both and self._are_questions:
            return without_question(self.sampler, doc, drawn, self._spare)
        return drawn

    @cached_property
    def _are_questions(self) -> bool:
        """Whether examples and questions come from the same split, named as both or not."""
        return self._pool is self._task.eval_docs

    @cached_property
    def _read_the_same(self) -> bool:
        """Whether an example always reads the same; code may write it anew each time."""
        shots = self._task.fewshot_cfg
        written = (shots.doc_to_text, shots.doc_to_choice, shots.doc_to_target)
        readers = ("doc_to_text", "doc_to_choice", "doc_to_target")
        return not any(map(callable, written)) and all(map(self._task.is_unchanged, readers))

    def _write(self, example: Any) -> list[Message]:
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
