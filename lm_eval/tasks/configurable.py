"""`ConfigurableTask`: the task class that every YAML task file is built with."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY, Need
from lm_eval.api.task import Task
from lm_eval.config.task import FewshotConfig, TaskConfig
from lm_eval.data import (
    as_dataset,
    as_dataset_dict,
    columns_of,
    describe,
    load_splits,
    process_split,
)
from lm_eval.errors import (
    ConfigError,
    DataError,
    EvalError,
    describe_cause,
    raise_interrupt,
    suggestion,
)
from lm_eval.filters import absolute_paths, build_pipelines
from lm_eval.filters.thinking import Thinking
from lm_eval.metrics import documents
from lm_eval.metrics.chosen import (
    ChosenMetrics,
    TaskMetrics,
    base_entry,
    choose_for_pipelines,
    choose_metrics,
)
from lm_eval.metrics.repeat_metrics import RepeatMetric, parse_repeat_metric
from lm_eval.prompts import fields
from lm_eval.prompts.fewshot import ContextSampler
from lm_eval.prompts.messages import Message, join, question_and_answer, render
from lm_eval.prompts.promptsource import apply_prompt
from lm_eval.tasks import request_arguments, scorer
from lm_eval.tasks.shots import FewshotExamples

logger = logging.getLogger(__name__)


class ConfigurableTask(Task):
    """A task defined by a configuration, usually that of a YAML file.

    The configuration names the dataset, the prompt templates, the filters and the metrics. A
    subclass may set `CONFIG` and override methods; classes in task folders do so.
    """

    VERSION: int | float | str | None = "Yaml"
    CONFIG: TaskConfig | None = None

    def __init__(
        self,
        data_dir: str | None = None,
        cache_dir: str | None = None,
        download_mode: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Loads the dataset and checks the configuration against the first document.

        `data_dir`, `cache_dir` and `download_mode` are accepted for compatibility with the
        published harness and ignored. `config` may be a mapping or a `TaskConfig`; it overrides the
        class attribute `CONFIG`. Raises `ConfigError` if there is neither or a setting is invalid,
        and `DataError` if the dataset cannot be loaded or its first document cannot be used.
        """
        self._config = self._make_config(config)
        metadata = self.config.metadata
        if isinstance(metadata, dict) and "version" in metadata:
            self.VERSION = metadata["version"]
        self.OUTPUT_TYPE = self.config.output_type
        self.MULTIMODAL = bool(self.config.doc_to_image or self.config.doc_to_audio)
        self.UNSAFE_CODE = self.config.unsafe_code is not False
        self.DATASET_PATH = self.config.dataset_path or self.DATASET_PATH
        self.DATASET_NAME = self.config.dataset_name or self.DATASET_NAME
        self._instances = None
        self._training_docs = None
        self._fewshot_docs = None
        self._split_docs: dict[tuple[str, int], tuple[Any, Any, Any]] = {}
        self._splits_used: set[str] = set()
        self._fewshot_examples = FewshotExamples(self)
        try:
            self._filters = build_pipelines(absolute_paths(self.config.filter_list, self._folder))
            Thinking.parse(self.config.think_end_token, self.config.think_tags)
        except ConfigError as error:
            raise ConfigError(f"task {self.task_name!r}: {error}") from error
        self._choose_metrics()
        self.download(self.config.dataset_kwargs)
        self.task_docs = self.eval_docs
        self.features = columns_of(self.task_docs)
        if self.config.cluster is not None and not self.has_column(self.config.cluster):
            raise ConfigError(
                f"task {self.task_name!r}: cluster: its documents have no column "
                f"{self.config.cluster!r}.{suggestion(self.config.cluster, self.features)} "
                f"They have: {', '.join(map(str, self.features)) or 'none'}."
            )
        self._inspect_first_document()

    def _make_config(self, config: Mapping[str, Any] | None) -> TaskConfig:
        """Returns the task's configuration: `config` over the class attribute `CONFIG`, if any.

        The key `class` is ignored. Without `CONFIG`, the prompt that `use_prompt` names is applied
        to a mapping. Raises `ConfigError` if there is neither `config` nor `CONFIG`.
        """
        if isinstance(config, Mapping):
            config = {key: value for key, value in config.items() if key != "class"}
        if self.CONFIG is not None:
            merged = copy.copy(self.CONFIG)
            for key, value in (config or {}).items():
                merged[key] = value
            return merged
        if config is None:
            raise ConfigError(
                "a ConfigurableTask needs a configuration: pass `config`, or set the class "
                "attribute `CONFIG`."
            )
        if isinstance(config, TaskConfig):
            return config
        return TaskConfig(**apply_prompt(config, _folder_of(config.get("metadata"))))

    def _inspect_first_document(self) -> None:
        """Sets `multiple_input` and `multiple_target`, judging by the first document.

        `multiple_input` is the number of choices if the choices are alternative contexts (then
        `doc_to_text` is the index of the correct one), and otherwise 0. `multiple_target` is the
        number of correct answers if `doc_to_target` gives a list, and otherwise 0.

        Raises `DataError` if there are no documents, a field cannot be computed, `doc_to_choice`
        does not give a list, or the target of a `generate_until` task with choices is not an index.
        An `EvalError` of a field keeps its type.
        """
        self.multiple_input = 0
        self.multiple_target = 0
        if len(self.eval_docs) == 0:
            raise DataError(
                f"task {self.task_name!r} has no documents to evaluate: its split is empty, or "
                "process_docs removed all documents."
            )
        # A copy, because a function of the task may modify the document.
        doc = copy.deepcopy(self.eval_docs[0])
        try:
            text = self.doc_to_text(doc)
            target = self.doc_to_target(doc)
            choices = self.doc_to_choice(doc) if self.has_choices else None
        except EvalError as error:
            raise type(error)(self._locate_message(0, str(error))) from error
        except BaseException as error:  # from code in the task folder
            raise_interrupt(error)
            problem = f"making its prompt failed: {describe_cause(error)}"
            raise DataError(self._locate_message(0, problem)) from error
        if self.has_choices and not isinstance(choices, list):
            raise DataError(
                f"task {self.task_name!r}, document 0: doc_to_choice returned {choices!r}; it must "
                "return a list."
            )
        unscored = not self.is_unchanged("process_results") or self.config.process_results
        if (
            self.OUTPUT_TYPE == "generate_until"
            and choices is not None
            and isinstance(target, str)
            and not unscored
        ):
            raise DataError(
                f"task {self.task_name!r}, document 0: doc_to_target is {target!r}, but a task "
                "with doc_to_choice needs the index of a choice. Give the index, or set "
                "`doc_to_choice: null`."
            )
        if isinstance(text, int) and choices is not None:
            self.multiple_input = len(choices)
        if isinstance(target, list):
            self.multiple_target = len(target)

    @property
    def has_choices(self) -> bool:
        """Whether the task sets `doc_to_choice`."""
        return self.config.doc_to_choice is not None

    # -- documents ----------------------------------------------------------------------------

    def download(  # type: ignore[override]
        self, dataset_kwargs: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Loads the dataset into `self.dataset`, a mapping from split names to documents.

        If the configuration has `custom_dataset`, that function loads it; it gets the task's
        metadata and `dataset_kwargs` as keyword arguments. Other arguments are ignored. Raises
        `DataError` if the dataset cannot be loaded.
        """
        given = dict(dataset_kwargs or {})
        if callable(self.config.custom_dataset):
            self.dataset = self.config.custom_dataset(**(self.config.metadata or {}), **given)
            return
        try:
            splits = load_splits(self.DATASET_PATH, self.DATASET_NAME, folder=self._folder, **given)
        except DataError as error:
            raise DataError(f"task {self.task_name!r}: {error}") from error
        self.data_origin = splits.origin
        self.dataset = splits if self._is_plain else as_dataset_dict(splits)

    @property
    def _is_plain(self) -> bool:
        """Whether this is a `ConfigurableTask` itself, not an instance of a subclass.

        Code of a subclass may call any method of `datasets` on the splits, so it gets real
        `datasets` objects. Others use lighter ones.
        """
        return type(self) is ConfigurableTask

    def describe_data(self) -> dict[str, Any]:
        """Returns the source of the dataset, and row count and hash of each split used so far."""
        used = [split for split in self.dataset if split in self._splits_used]
        return describe(self.dataset, self.data_origin, used)

    @property
    def _folder(self) -> Path | None:
        """The folder of the task file, relative to which data files are found; None if inline."""
        return _folder_of(self.config.metadata)

    def has_training_docs(self) -> bool:
        """Returns whether the task sets `training_split`."""
        return self.config.training_split is not None

    def has_validation_docs(self) -> bool:
        """Returns whether the task sets `validation_split`."""
        return self.config.validation_split is not None

    def has_test_docs(self) -> bool:
        """Returns whether the task sets `test_split`."""
        return self.config.test_split is not None

    def training_docs(self) -> Any:
        """Returns the documents of `training_split` after `process_docs`; None if it is not set."""
        return self._docs_of(self.config.training_split, self.config.process_docs)

    def validation_docs(self) -> Any:
        """Returns the documents of `validation_split` after `process_docs`; None if it is unset."""
        return self._docs_of(self.config.validation_split, self.config.process_docs)

    def test_docs(self) -> Any:
        """Returns the documents of `test_split` after `process_docs`; None if it is not set."""
        return self._docs_of(self.config.test_split, self.config.process_docs)

    def fewshot_docs(self) -> Any:
        """Returns the documents that few-shot examples are drawn from.

        These are the documents of the few-shot split or, if none is set, `fewshot_config.samples`
        (a list, or a function that returns one). Without either, they are those of
        `Task.fewshot_docs`. Raises `ConfigError` if the samples are not a list.
        """
        shots = self.fewshot_cfg
        if shots.split is not None:
            return self._docs_of(shots.split, shots.process_docs)
        if shots.samples is None:
            return super().fewshot_docs()
        samples = shots.samples() if callable(shots.samples) else shots.samples
        if not isinstance(samples, list):
            raise ConfigError(
                f"task {self.task_name!r}: fewshot_config.samples must be a list of documents or "
                f"a function returning one, not {type(samples).__name__}."
            )
        return samples

    def _docs_of(self, split: str | None, process: Callable[..., Any] | None) -> Any:
        """Returns a split's documents after `process`, a `process_docs` function or None.

        The result is cached. Returns None if `split` is None. Raises `DataError` if the dataset has
        no such split or it cannot be read.
        """
        if split is None:
            return None
        key, raw = (split, id(process)), self._rows_of(split)
        if key not in self._split_docs or self._split_docs[key][0] is not raw:
            docs = process_split(raw, process)
            # `raw` reveals that the dataset was replaced; `process` keeps its id from being reused.
            self._split_docs[key] = raw, process, docs if self._is_plain else as_dataset(docs)
        return self._split_docs[key][2]

    def _rows_of(self, split: str) -> Any:
        """Returns a split's unprocessed rows, and records that the split was used.

        Raises `DataError` if the dataset has no such split or it cannot be read.
        """
        if split not in self.dataset:
            raise DataError(
                f"task {self.task_name!r}: its dataset {self.DATASET_PATH} has no split "
                f"{split!r}.{suggestion(split, self.dataset)} "
                f"It has: {', '.join(map(str, self.dataset))}."
            )
        try:
            rows = self.dataset[split]
        except DataError as error:
            raise DataError(f"task {self.task_name!r}: {error}") from error
        self._splits_used.add(split)
        return rows

    # -- prompts ------------------------------------------------------------------------------

    @property
    def fewshot_cfg(self) -> FewshotConfig:
        """The few-shot settings (`fewshot_config`), completed by the task's own fields."""
        return self.config.fewshot

    @property
    def sampler(self) -> ContextSampler:
        """The sampler that draws the few-shot examples; created on first access."""
        return self._fewshot_examples.sampler

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        """Sets the seed of the few-shot draws and restarts them; None for an unpredictable seed."""
        super().set_fewshot_seed(seed)
        self._fewshot_examples.seed(seed)

    def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> Any:
        """Returns the question of `doc`: text, or an index if the choices are alternative contexts.

        `doc_to_text`, if given, replaces the task's own: a column name, a template, a function or
        an index. Raises `ConfigError` if it is anything else.
        """
        spec = doc_to_text if doc_to_text is not None else self.config.doc_to_text
        return fields.text_of(doc, spec, self.features, self.has_choices)

    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any:
        """Returns the gold answer of `doc`: text, the index of a choice, or a list of either.

        `doc_to_target`, if given, replaces the task's own: a column name, a template, a function,
        an index or a list. Raises `ConfigError` if it is anything else.
        """
        spec = doc_to_target if doc_to_target is not None else self.config.doc_to_target
        return fields.target_of(doc, spec, self.features, self.has_choices)

    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> Any:
        """Returns the choices of `doc`, normally a list of strings.

        `doc_to_choice`, if given, replaces the task's own: a column name, a template, a function, a
        list or a mapping. Raises `ConfigError` if it is anything else, or if the task has none, and
        `DataError` if a template does not render as a list.
        """
        spec = doc_to_choice if doc_to_choice is not None else self.config.doc_to_choice
        return fields.choices_of(doc, spec, self.features)

    def doc_to_image(self, doc: Any, doc_to_image: Any = None) -> Any:
        """Returns the images of `doc`; None if the task has none.

        `doc_to_image`, if given, replaces the task's own: a column name, a template, a function or
        a list of these.
        """
        return fields.media_of(doc, doc_to_image or self.config.doc_to_image, self.features)

    def doc_to_audio(self, doc: Any, doc_to_audio: Any = None) -> Any:
        """Returns the audio of `doc`; None if the task has none.

        `doc_to_audio`, if given, replaces the task's own: a column name, a template, a function or
        a list of these.
        """
        return fields.media_of(doc, doc_to_audio or self.config.doc_to_audio, self.features)

    def doc_to_prefix(self, doc: Any) -> Any:
        """Returns the text with which the answer begins (`gen_prefix`); None if there is none."""
        return fields.column_or_template(doc, self.config.gen_prefix)

    def doc_to_decontamination_query(self, doc: Any) -> Any:
        """Returns the text to search for in training data; None without `should_decontaminate`.

        If the task sets no `doc_to_decontamination_query`, it is the question.
        """
        if not self.config.should_decontaminate:
            return None
        spec = self.config.doc_to_decontamination_query
        if spec is None:
            return self.doc_to_text(doc)
        return spec(doc) if callable(spec) else fields.column_or_template(doc, spec)

    def fewshot_context(  # type: ignore[override]
        self,
        doc: Any,
        num_fewshot: int,
        system_instruction: str | None = None,
        apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = False,
        chat_template: Callable[..., str] | None = None,
        gen_prefix: str | None = None,
    ) -> str | list[str]:
        """Returns the prompt of one document: description, few-shot examples and question.

        If the choices are alternative contexts (`multiple_input`), returns one prompt per choice.
        For `loglikelihood_rolling` tasks, returns "".

        Args:
            doc: the document to evaluate.
            num_fewshot: the number of few-shot examples before the question.
            system_instruction: text before the task's description.
            apply_chat_template: whether to format the prompt with `chat_template`, if that is
                given.
            fewshot_as_multiturn: whether each few-shot example is a user and an assistant turn of
                the chat.
            chat_template: a function from a list of chat messages to text.
            gen_prefix: text that the model's answer begins with.
        """
        if self.OUTPUT_TYPE == "loglikelihood_rolling":
            return ""  # the document's text is scored without a prompt
        to_text: Callable[[list[Message]], str] = partial(
            render,
            chat_template=partial(chat_template, add_generation_prompt=not gen_prefix)
            if apply_chat_template and chat_template
            else None,
            multiturn=fewshot_as_multiturn,
        )
        opening = self._system_turn(doc, system_instruction)
        opening += self._fewshot_examples.turns(doc, num_fewshot)
        if self.multiple_input:
            return [
                to_text(
                    [*opening, *question_and_answer(text, prefix=gen_prefix, target_delimiter="")]
                )
                for text in self.doc_to_choice(doc)
            ]
        question = question_and_answer(
            self.doc_to_text(doc),
            prefix=gen_prefix,
            target_delimiter=self.config.target_delimiter,
        )
        return to_text(opening + question)

    def _system_turn(self, doc: Any, system_instruction: str | None) -> list[Message]:
        """Returns system instruction and description as one turn; an empty list without them."""
        description = fields.column_or_template(doc, self.config.description)
        system = join(system_instruction, description, self.config.fewshot_delimiter)
        return [Message("system", system)] if system else []

    # -- requests -----------------------------------------------------------------------------

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> list[Instance] | Instance:
        """Returns the requests of one document: a list for multiple choice, otherwise a single one.

        The list has one request per choice. If a metric needs `unconditional`, another one per
        choice follows, without the question. Raises `DataError` if the target is not text, or if
        the choices or the gold answer are invalid.

        Args:
            doc: the document.
            ctx: the prompt that `fewshot_context` returned.
            kwargs: `apply_chat_template` and `chat_template`, as in `fewshot_context`; the others
                are passed on to each `Instance`.
        """
        apply_chat_template = kwargs.pop("apply_chat_template", False)
        kwargs.pop("chat_template", None)
        media = self._media(doc)
        if self.OUTPUT_TYPE == "multiple_choice":
            pairs = self._choice_pairs(doc, ctx, apply_chat_template)
            return [
                Instance("loglikelihood", doc, pair + media, idx, **kwargs)
                for idx, pair in enumerate(pairs)
            ]
        arguments: tuple[Any, ...]
        if self.OUTPUT_TYPE == "loglikelihood":
            arguments = (ctx, request_arguments.require_text(self.doc_to_target(doc)))
        elif self.OUTPUT_TYPE == "loglikelihood_rolling":
            arguments = (request_arguments.require_text(self.doc_to_target(doc)),)
        else:
            arguments = (ctx, copy.deepcopy(self.config.generation_kwargs))
        return Instance(self.OUTPUT_TYPE or "generate_until", doc, arguments + media, 0, **kwargs)

    def _choice_pairs(self, doc: Any, ctx: Any, apply_chat_template: bool) -> list[tuple[str, str]]:
        """Returns `(context, continuation)` pairs for the choices of a document.

        `ctx` is the prompt, or one prompt per choice if the choices are alternative contexts. If a
        metric needs `unconditional`, one pair per choice with an empty context follows. With
        `apply_chat_template`, continuations begin without the target delimiter, unless `gen_prefix`
        ends in a character that is not whitespace. Raises `DataError` if there are no choices, one
        of them is None, or the gold answer is invalid; see `check_gold`.
        """
        choices = self.doc_to_choice(doc)
        request_arguments.check_choices(choices)
        # Not checked if the task has its own scoring code, or scores nothing (`bypass`).
        if self.config.process_results is None and not self.scores_metric("bypass"):
            request_arguments.check_gold(self._stated_gold(doc), len(choices), self._gold_field)
        delimiter, prefix = self.config.target_delimiter, self.config.gen_prefix
        if apply_chat_template and (not prefix or prefix[-1].isspace()):
            delimiter = ""
        unconditional = self.needs("unconditional")
        if self.multiple_input:
            target = self.doc_to_target(doc)
            return request_arguments.pairs_per_context(
                ctx, target, choices, delimiter, unconditional
            )
        return request_arguments.pairs_per_choice(ctx, choices, delimiter, unconditional)

    @property
    def _gold_field(self) -> str:
        """The key that defines the gold answer; `doc_to_text` if the choices are contexts."""
        return "doc_to_text" if self.multiple_input else "doc_to_target"

    def _stated_gold(self, doc: Any) -> Any:
        """Returns the gold answer as written: the text or index of a choice, or a list of these."""
        return self.doc_to_text(doc) if self.multiple_input else self.doc_to_target(doc)

    def choices_and_gold(self, doc: Any) -> tuple[list[str], Any]:
        """Returns a document's choices and the index, or list of indices, of the gold one.

        The index is `NOT_A_CHOICE` if the gold answer is not one of the choices. Raises `DataError`
        if it is neither a text, an index nor a list of these.
        """
        choices = self.doc_to_choice(doc)
        return choices, documents.gold_index(self._stated_gold(doc), choices)

    def _media(self, doc: Any) -> tuple[dict[str, Any], ...]:
        """Returns a document's images and audio as an additional request argument.

        The result is `({"visual": images, "audio": audio},)` with the keys that the task uses, or
        an empty tuple for a task without media.
        """
        found = {}
        if self.config.doc_to_image:
            found["visual"] = self.doc_to_image(doc)
        if self.config.doc_to_audio:
            found["audio"] = self.doc_to_audio(doc)
        return (found,) if found else ()

    def scores_metric(self, name: str) -> bool:
        """Returns whether `name` is a metric of any filter pipeline of the task."""
        return self._metrics.includes(name)

    def needs(self, what: Need) -> bool:
        """Returns whether a metric of the task needs `what`: "tokens" or "unconditional"."""
        return what in documents.needs_of(self._metrics.names)

    # -- scores -------------------------------------------------------------------------------

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """Returns the metric values of one document, by metric name.

        `results` are the filtered answers to its requests. If the task file sets `process_results`,
        that function computes the values; otherwise they are those of the task's `metric_list`.
        """
        if callable(self.config.process_results):
            scored: dict[str, Any] = self.config.process_results(doc, results)
            return scored
        return self._score(self._metrics.shared, doc, results)

    def score_document(
        self, pipeline: str, doc: Any, answers: Any, tokens: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Returns the metric values of one document under one filter pipeline, by metric name.

        If the task has its own `process_results`, that computes the values; of these, a pipeline
        with its own `metric_list` reports only the metrics in the list.

        Args:
            pipeline: the name of the filter pipeline.
            doc: the document.
            answers: the filtered answers to its requests, in order.
            tokens: the lengths of its choices in tokens, or None if they were not counted.
        """
        if not self._has_custom_scoring:
            return self._score(self._metrics.for_pipeline(pipeline), doc, answers, tokens)
        values = super().score_document(pipeline, doc, answers)
        own = self._metrics.own.get(pipeline)
        return values if own is None else documents.select_metrics(own.metrics, values)

    def repeat_metrics(self, pipeline: str) -> list[tuple[RepeatMetric, str]]:
        """Returns the metrics of repeated answers of a pipeline, each with that of one answer."""
        chosen = self._metrics.for_pipeline(pipeline)
        return [(wanted, base.name) for wanted, base in chosen.of_repeats.values()]

    def score_repeat(self, pipeline: str, doc: Any, answers: Any) -> dict[str, Any]:
        """Returns the values of the metrics that score one answer, or those of `process_results`.

        `answers` are the filtered answers to the requests of `doc` in one repeat.
        """
        if self._has_custom_scoring:
            return super().score_document(pipeline, doc, answers)
        values: dict[str, Any] = {}
        for base in self._metrics.for_pipeline(pipeline).bases:
            chosen = ChosenMetrics()
            chosen.add(base)
            measured = self._score(chosen, doc, answers)
            # A function may return its only value under another name, such as `pass@1`.
            values |= {base.name: next(iter(measured.values()))} if len(measured) == 1 else measured
        return values

    def _score(
        self,
        metrics: ChosenMetrics,
        doc: Any,
        answers: Any,
        tokens: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Returns the values of `metrics` for one document, by metric name.

        `answers` are the filtered answers to the document's requests. `tokens` are the lengths of
        its choices in tokens, if known. A document whose gold answer is none of its choices is
        counted in `gold_missing`.
        """
        if self.OUTPUT_TYPE == "generate_until":
            answer = answers[0]
            gold = self._gold_text(doc, answer, "bypass" in metrics.metrics)
            return scorer.score_generation(metrics, gold, answer, bool(self.multiple_target))
        answers = scorer.first_repeats(answers)
        if self.OUTPUT_TYPE == "loglikelihood":
            return scorer.score_loglikelihood(metrics, answers[0])
        if self.OUTPUT_TYPE == "loglikelihood_rolling":
            text = self.doc_to_target(doc)
            words, size = self.count_words(text), self.count_bytes(text)
            return scorer.score_rolling(metrics, answers[0], words, size)
        choices, gold = self.choices_and_gold(doc)
        self._gold_missing += documents.is_missing(gold)
        return scorer.score_choice(metrics, answers, choices, gold, tokens)

    def _gold_text(self, doc: Any, answer: Any, unscored: bool) -> Any:
        """Returns the gold answer that the generated `answer` is compared with.

        It is the gold choice of a task with choices, a list if there are several targets, and
        otherwise converted to the type of `answer`, unless the answer is a list or `unscored`.
        """
        gold = self.doc_to_target(doc)
        if self.has_choices:
            return self.doc_to_choice(doc)[gold]
        if self.multiple_target:
            return list(gold)
        if type(gold) is not type(answer) and not (isinstance(answer, list) or unscored):
            return type(answer)(gold)
        return gold

    def score_documents(
        self, pipeline: str, requests_by_doc: Sequence[Sequence[Instance]]
    ) -> dict[str, list[Any]] | None:
        """Returns a list per metric, with one value per document; None to score them one by one.

        It is None for generated text, if a metric is computed by a function of one answer, if the
        task has its own `process_results` and, with a warning, if scoring all documents at once
        fails. `requests_by_doc` holds the requests of each document, `pipeline` is the filter
        pipeline whose answers are scored.
        """
        metrics = self._metrics.for_pipeline(pipeline)
        own_functions = any(metric.fn is not None for metric in metrics.metrics.values())
        if self.OUTPUT_TYPE == "generate_until" or own_functions or self._has_custom_scoring:
            return None
        docs = [requests[0].doc for requests in requests_by_doc]
        try:
            if self.OUTPUT_TYPE == "loglikelihood":
                return scorer.score_targets(metrics, requests_by_doc, pipeline)
            if self.OUTPUT_TYPE == "loglikelihood_rolling":
                texts = self._field_of_all("doc_to_target", docs)
                words, sizes = map(self.count_words, texts), map(self.count_bytes, texts)
                return scorer.score_texts(
                    metrics, requests_by_doc, pipeline, list(words), list(sizes)
                )
            choices, golds = self._all_choices_and_golds(docs)
            columns = scorer.score_choices(metrics, requests_by_doc, pipeline, choices, golds)
        except scorer.BatchScoringError as reason:
            logger.warning(
                "task %r: its documents cannot be scored all at once. They are scored one by one, "
                "to find the document that is the cause: %s",
                self.task_name,
                reason,
            )
            return None
        self._gold_missing += sum(map(documents.is_missing, golds))
        return columns

    def _all_choices_and_golds(self, docs: Sequence[Any]) -> tuple[list[list[str]], list[Any]]:
        """Returns the choices of each document, and the index (or indices) of each gold answer.

        The index is `NOT_A_CHOICE` if the gold answer is not one of the choices. Raises
        `BatchScoringError` if a field of a document cannot be computed, its choices are not a list,
        or its gold answer is neither a text, an index nor a list of these.
        """
        choices = self._field_of_all("doc_to_choice", docs)
        stated = self._field_of_all(self._gold_field, docs)
        try:
            return choices, list(map(documents.gold_index, stated, choices))
        except (EvalError, TypeError, AttributeError) as error:  # some choices are not a list
            raise scorer.BatchScoringError(str(error)) from error

    def _field_of_all(self, field: str, docs: Sequence[Any]) -> list[Any]:
        """Returns the value of `field`, such as `doc_to_target`, for each document.

        If the field is the name of a column, the usual case, the column is read directly. Raises
        `BatchScoringError` if the value of a document cannot be computed.
        """
        spec, unchanged = self.get_config(field), self.is_unchanged(field)
        expected: tuple[type[Exception], ...] = (EvalError, KeyError)
        if callable(spec) or not unchanged:
            expected = (Exception,)  # from code in the task folder
        try:
            if isinstance(spec, str) and spec in self.features and unchanged:
                return [doc[spec] for doc in docs]
            return list(map(getattr(self, field), docs))
        except expected as error:
            raise scorer.BatchScoringError(f"{field} failed: {describe_cause(error)}") from error

    @property
    def _has_custom_scoring(self) -> bool:
        """Whether the task file, a subclass or the instance has its own `process_results`."""
        return callable(self.config.process_results) or not self.is_unchanged("process_results")

    def scoring_functions(self) -> list[Callable[..., Any]]:
        """Returns the functions of its metrics, or those of the task's own `process_results`."""
        if not self._has_custom_scoring:
            return [fn for fn, _ in self._metrics.functions().values() if fn is not None]
        own = self.config.process_results
        return [own] if callable(own) else [self.process_results]

    def is_unchanged(self, method: str) -> bool:
        """Returns whether `method` is that of `ConfigurableTask`.

        It is not if a subclass overrides it or if it was assigned on the instance.
        """
        here = getattr(type(self), method) is getattr(ConfigurableTask, method)
        return here and method not in vars(self)

    def has_column(self, column: str) -> bool:
        """Returns whether `column` is a column of the documents, or a template (contains `{`)."""
        return "{" in column or column in self.features

    def cluster_of(self, doc: Any, column: str) -> Any:
        """Returns the cluster of a document: the value of its column, or of a template `column`."""
        return fields.column_or_template(doc, column)

    def override_metric(self, metric_name: str) -> None:
        """Replaces all metrics of the task, and its `process_results`, by the metric `metric_name`.

        Raises `UnknownNameError` if there is no such metric, and `ConfigError` if it does not fit
        the output type.
        """
        self.set_config("metric_list", [{"metric": metric_name}])
        self.set_config("process_results", None)
        self._metrics = TaskMetrics(choose_metrics(self.config))
        if self._has_custom_scoring:
            super().override_metric(metric_name)

    def override_filters(self, pipelines: list[dict[str, Any]]) -> None:
        """Replaces the filter pipelines by `pipelines`, written like `filter_list` in a task file.

        Pipelines with a `metric_list` report those metrics, the others those of the task.
        """
        super().override_filters(pipelines)
        self._choose_metrics()

    def override_metrics(self, names: Sequence[str]) -> None:
        """Replaces the task's metrics by those in `names`, for all filter pipelines.

        Metrics that the task already has keep their settings; others get their defaults. Raises
        `UnknownNameError` if there is no such metric, and `ConfigError` if it does not fit the
        output type.
        """
        pipelines = self._config.filter_list or []
        lists = [self._config.metric_list, *(p.get("metric_list") for p in pipelines)]
        written = [entry for entries in lists for entry in entries or ()]
        bases = [entry["of"] for entry in written if isinstance(entry.get("of"), Mapping)]
        written += [base for base in bases if base not in written]
        own = {_metric_name(entry): entry for entry in written}
        self.set_config("metric_list", [self._metric_entry(n, own, written) for n in names])
        if self._config.filter_list is not None:
            bare = [{k: v for k, v in p.items() if k != "metric_list"} for p in pipelines]
            self.set_config("filter_list", bare)
        self._choose_metrics()

    def _metric_entry(
        self, name: str, own: Mapping[str, Any], written: Sequence[Any]
    ) -> Mapping[str, Any]:
        """Returns the `metric_list` entry for a metric by its name.

        `own` are the task's entries by name, `written` the same as a list. A metric of repeated
        answers gets the entry of the metric that scores an answer as `of`.
        """
        wanted = None if name in own else parse_repeat_metric(name)
        if wanted is None:
            return dict(own.get(name, {"metric": name}))
        return {"metric": name, "of": base_entry(wanted, {"metric": name}, written, self.config)}

    def override_repeats(self, repeats: int) -> None:
        """Sets how often the task asks for an answer to each document.

        Raises `ConfigError` if a metric needs more answers.
        """
        super().override_repeats(repeats)
        self._choose_metrics()

    def add_average(self, repeats: int) -> None:
        """Reports the mean of the first metric over the repeats, `avg@N`, beside the others.

        Metrics that have no value for a single answer have no such mean; then nothing is added.
        """
        before, name = self._config.metric_list, f"avg@{repeats}"
        defaults = [{"metric": one} for one in DEFAULT_METRIC_REGISTRY["generate_until"]]
        entries = [*(before if before is not None else defaults)]
        entry = self._metric_entry(name, {}, entries)
        self.set_config("metric_list", [*entries, entry])
        try:
            self._choose_metrics()
        except ConfigError as error:
            logger.info("%s: %s is not reported: %s", self.task_name, name, error)
            self.set_config("metric_list", before)
            self._choose_metrics()

    def _choose_metrics(self) -> None:
        """Looks up the metrics of every filter pipeline.

        Raises `UnknownNameError` if one is unknown, and `ConfigError` if one does not fit the
        output type.
        """
        self._metrics = choose_for_pipelines(self.config, [p.name for p in self._filters])
        # A pipeline that chooses among the repeats has a score of its own for them.
        selecting = [p.name for p in self._filters if p.selects_repeats]
        for name in selecting if len(selecting) < len(self._filters) else ():
            if name not in self._metrics.own:
                self._metrics = self._metrics.without_repeats(name)

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        """Returns the aggregation of every value that any filter pipeline reports, by name."""
        return self._metrics.aggregations

    def higher_is_better(self) -> dict[str, bool]:
        """Returns whether higher is better, for every reported value by name; None if unknown."""
        return self._metrics.higher_is_better

    # -- the published names of the metrics, for code that reads them ---------------------------

    @property
    def _metric_fn_list(self) -> Mapping[str, Callable[..., Any] | None]:
        """The function of every metric by name; None if the task's `process_results` scores.

        This and the next three cannot be changed; call `override_metrics` to choose metrics.
        """
        scored = self.config.process_results is not None
        metrics = self._metrics.functions()
        return MappingProxyType({n: None if scored else f for n, (f, _) in metrics.items()})

    @property
    def _metric_fn_kwargs(self) -> Mapping[str, dict[str, Any]]:
        scored = self.config.process_results is not None
        metrics = self._metrics.functions()
        return MappingProxyType({n: {} if scored else k for n, (_, k) in metrics.items()})

    @property
    def _aggregation_list(self) -> Mapping[str, Callable[..., Any]]:
        return MappingProxyType(self.aggregation())

    @property
    def _higher_is_better(self) -> Mapping[str, Any]:
        return MappingProxyType(self.higher_is_better())

    def __repr__(self) -> str:
        return (
            f"ConfigurableTask(task_name={self.config.task}, output_type={self.OUTPUT_TYPE}, "
            f"num_fewshot={self.config.num_fewshot}, num_samples={len(self.eval_docs)})"
        )


def _metric_name(entry: Mapping[str, Any]) -> Any:
    return getattr(entry["metric"], "__name__", entry["metric"])


def _folder_of(metadata: Any) -> Path | None:
    """Returns the folder of the task file, from the `config_source` in the task's metadata.

    None if there is no `config_source` or it is "inline".
    """
    source = metadata.get("config_source") if isinstance(metadata, Mapping) else None
    return Path(source).parent if source and source != "inline" else None
