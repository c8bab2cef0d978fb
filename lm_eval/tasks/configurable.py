"""The task behind every YAML file: its configuration bound to documents, prompts and metrics."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.registry import Need
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
from lm_eval.errors import ConfigError, DataError, EvalError, suggestion, whence
from lm_eval.filters import build_pipelines
from lm_eval.filters.thinking import Thinking
from lm_eval.metrics import documents
from lm_eval.metrics.chosen import (
    ChosenMetrics,
    TaskMetrics,
    choose_for_pipelines,
    choose_metrics,
)
from lm_eval.prompts import fields
from lm_eval.prompts.fewshot import ContextSampler
from lm_eval.prompts.messages import Message, join, question_and_answer, render
from lm_eval.prompts.promptsource import apply_prompt
from lm_eval.tasks import asking, scorer
from lm_eval.tasks.shots import Shots

logger = logging.getLogger(__name__)


class ConfigurableTask(Task):
    """A task made from a configuration alone."""

    VERSION: int | float | str | None = "Yaml"
    CONFIG: TaskConfig | None = None

    def __init__(
        self,
        data_dir: str | None = None,
        cache_dir: str | None = None,
        download_mode: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._config = self._settle_config(config)
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
        self._shots = Shots(self)
        try:
            self._filters = build_pipelines(self.config.filter_list)
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
                f"{self.config.cluster!r}.{suggestion(self.config.cluster, self.features)}"
            )
        self._look_at_first_document()

    def _settle_config(self, config: Mapping[str, Any] | None) -> TaskConfig:
        if isinstance(config, Mapping):
            config = {key: value for key, value in config.items() if key != "class"}
        if self.CONFIG is not None:
            settled = copy.copy(self.CONFIG)
            for key, value in (config or {}).items():
                settled[key] = value
            return settled
        if config is None:
            raise ConfigError(
                "a ConfigurableTask needs a configuration: pass `config`, or set `CONFIG`."
            )
        if isinstance(config, TaskConfig):
            return config
        return TaskConfig(**apply_prompt(config, _folder_of(config.get("metadata"))))

    def _look_at_first_document(self) -> None:
        """Learn from one document what the templates give: several inputs, several targets."""
        self.multiple_input = 0
        self.multiple_target = 0
        if len(self.eval_docs) == 0:
            raise DataError(f"task {self.task_name!r} has no documents to evaluate.")
        # A copy: a function may change the document, and must find it unchanged when it counts.
        doc = copy.deepcopy(self.eval_docs[0])
        try:
            text = self.doc_to_text(doc)
            target = self.doc_to_target(doc)
            choices = self.doc_to_choice(doc) if self.has_choices else None
        except EvalError as error:
            raise type(error)(self._told(0, str(error))) from error
        except (Exception, SystemExit) as error:  # from code in the task folder
            said = f"making its prompt failed: {whence(error)}"
            raise DataError(self._told(0, said)) from error
        if self.has_choices and not isinstance(choices, list):
            raise DataError(
                f"task {self.task_name!r}, document 0: doc_to_choice gave {choices!r}, not a list."
            )
        if isinstance(text, int) and choices is not None:
            self.multiple_input = len(choices)
        if isinstance(target, list):
            self.multiple_target = len(target)

    @property
    def has_choices(self) -> bool:
        return self.config.doc_to_choice is not None

    # -- documents ----------------------------------------------------------------------------

    def download(  # type: ignore[override]
        self, dataset_kwargs: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Load the data set, or call the task folder's own loader."""
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
        """Whether no code but ours sees the splits. That of a class of its own may do anything
        with them that `datasets` allows; a task file's only meets documents."""
        return type(self) is ConfigurableTask

    def describe_data(self) -> dict[str, Any]:
        used = [split for split in self.dataset if split in self._splits_used]
        return describe(self.dataset, self.data_origin, used)

    @property
    def _folder(self) -> Path | None:
        """Where the task file lies; data files beside it are found from anywhere."""
        return _folder_of(self.config.metadata)

    def has_training_docs(self) -> bool:
        return self.config.training_split is not None

    def has_validation_docs(self) -> bool:
        return self.config.validation_split is not None

    def has_test_docs(self) -> bool:
        return self.config.test_split is not None

    def training_docs(self) -> Any:
        return self._docs_of(self.config.training_split, self.config.process_docs)

    def validation_docs(self) -> Any:
        return self._docs_of(self.config.validation_split, self.config.process_docs)

    def test_docs(self) -> Any:
        return self._docs_of(self.config.test_split, self.config.process_docs)

    def fewshot_docs(self) -> Any:
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
        """A split's documents, processed once however often they are asked for."""
        if split is None:
            return None
        key, raw = (split, id(process)), self._rows_of(split)
        if key not in self._split_docs or self._split_docs[key][0] is not raw:
            made = process_split(raw, process)
            # Kept with what they were made of, and by what: that may have been exchanged.
            self._split_docs[key] = raw, process, made if self._is_plain else as_dataset(made)
        return self._split_docs[key][2]

    def _rows_of(self, split: str) -> Any:
        if split not in self.dataset:
            raise DataError(
                f"task {self.task_name!r}: its data set {self.DATASET_PATH} has no split "
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
        return self.config.fewshot

    @property
    def sampler(self) -> ContextSampler:
        """Draws the few-shot examples."""
        return self._shots.sampler

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        super().set_fewshot_seed(seed)
        self._shots.seed(seed)

    def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> Any:
        spec = doc_to_text if doc_to_text is not None else self.config.doc_to_text
        return fields.text_of(doc, spec, self.features, self.has_choices)

    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any:
        spec = doc_to_target if doc_to_target is not None else self.config.doc_to_target
        return fields.target_of(doc, spec, self.features, self.has_choices)

    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> Any:
        spec = doc_to_choice if doc_to_choice is not None else self.config.doc_to_choice
        return fields.choices_of(doc, spec, self.features)

    def doc_to_image(self, doc: Any, doc_to_image: Any = None) -> Any:
        return fields.media_of(doc, doc_to_image or self.config.doc_to_image, self.features)

    def doc_to_audio(self, doc: Any, doc_to_audio: Any = None) -> Any:
        return fields.media_of(doc, doc_to_audio or self.config.doc_to_audio, self.features)

    def doc_to_prefix(self, doc: Any) -> Any:
        return fields.column_or_template(doc, self.config.gen_prefix)

    def should_decontaminate(self) -> bool:
        return self.config.should_decontaminate

    def doc_to_decontamination_query(self, doc: Any) -> Any:
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
        """The prompt of one document, or one prompt a choice where the choices are the inputs."""
        if self.OUTPUT_TYPE == "loglikelihood_rolling":
            return ""  # the text stands for itself
        write: Callable[[list[Message]], str] = partial(
            render,
            chat_template=partial(chat_template, add_generation_prompt=not gen_prefix)
            if apply_chat_template and chat_template
            else None,
            multiturn=fewshot_as_multiturn,
        )
        opening = self._opening(doc, system_instruction) + self._shots.turns(doc, num_fewshot)
        if self.multiple_input:
            return [
                write(
                    [*opening, *question_and_answer(text, prefix=gen_prefix, target_delimiter="")]
                )
                for text in self.doc_to_choice(doc)
            ]
        question = question_and_answer(
            self.doc_to_text(doc),
            prefix=gen_prefix,
            target_delimiter=self.config.target_delimiter,
        )
        return write(opening + question)

    def _opening(self, doc: Any, system_instruction: str | None) -> list[Message]:
        description = fields.column_or_template(doc, self.config.description)
        system = join(system_instruction, description, self.config.fewshot_delimiter)
        return [Message("system", system)] if system else []

    # -- requests -----------------------------------------------------------------------------

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> list[Instance] | Instance:
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
            arguments = (ctx, asking.scored_text(self.doc_to_target(doc)))
        elif self.OUTPUT_TYPE == "loglikelihood_rolling":
            arguments = (asking.scored_text(self.doc_to_target(doc)),)
        else:
            arguments = (ctx, copy.deepcopy(self.config.generation_kwargs))
        return Instance(self.OUTPUT_TYPE or "generate_until", doc, arguments + media, 0, **kwargs)

    def _choice_pairs(self, doc: Any, ctx: Any, apply_chat_template: bool) -> list[tuple[str, str]]:
        """Context and continuation of every choice of a document."""
        offered = self.doc_to_choice(doc)
        asking.check_choices(offered)
        # Where nothing is scored, or by the task's own code, the gold answer may be anything.
        if self.config.process_results is None and not self.scores_metric("bypass"):
            asking.check_gold(self._stated_gold(doc), len(offered), self._gold_field)
        delimiter, prefix = self.config.target_delimiter, self.config.gen_prefix
        if apply_chat_template and (not prefix or prefix[-1].isspace()):
            delimiter = ""
        unconditional = self.needs("unconditional")
        if self.multiple_input:
            target = self.doc_to_target(doc)
            return asking.pairs_of_inputs(ctx, target, offered, delimiter, unconditional)
        return asking.pairs_of_choices(ctx, offered, delimiter, unconditional)

    @property
    def _gold_field(self) -> str:
        """The field that gives the gold answer: where the choices are the inputs, doc_to_text."""
        return "doc_to_text" if self.multiple_input else "doc_to_target"

    def _stated_gold(self, doc: Any) -> Any:
        """The gold answer as the document gives it: a choice, or the number of one."""
        return self.doc_to_text(doc) if self.multiple_input else self.doc_to_target(doc)

    def choices_and_gold(self, doc: Any) -> tuple[list[str], Any]:
        """Returns a document's choices, and the index (or indices) of the right one."""
        choices = self.doc_to_choice(doc)
        return choices, documents.gold_index(self._stated_gold(doc), choices)

    def _media(self, doc: Any) -> tuple[dict[str, Any], ...]:
        """Pictures and sounds that go with the text."""
        found = {}
        if self.config.doc_to_image:
            found["visual"] = self.doc_to_image(doc)
        if self.config.doc_to_audio:
            found["audio"] = self.doc_to_audio(doc)
        return (found,) if found else ()

    def scores_metric(self, name: str) -> bool:
        """Whether a metric is among those that the task is scored by."""
        return self._metrics.wants(name)

    def needs(self, what: Need) -> bool:
        return what in documents.needs_of(self._metrics.names)

    # -- scores -------------------------------------------------------------------------------

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        if callable(self.config.process_results):
            scored: dict[str, Any] = self.config.process_results(doc, results)
            return scored
        return self._score(self._metrics.shared, doc, results)

    def score_document(
        self, pipeline: str, doc: Any, answers: Any, tokens: Sequence[int] | None = None
    ) -> dict[str, Any]:
        if not self._scores_by_itself:
            return self._score(self._metrics.of(pipeline), doc, answers, tokens)
        values = super().score_document(pipeline, doc, answers)
        own = self._metrics.own.get(pipeline)
        return values if own is None else documents.only(own.metrics, values)

    def _score(
        self,
        metrics: ChosenMetrics,
        doc: Any,
        answers: Any,
        tokens: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """One document's values; `tokens` are the lengths of its choices, where they are known."""
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
        """The gold answer that a generated text is compared with, as text if the answer is."""
        gold = self.doc_to_target(doc)
        if self.has_choices:
            return self.doc_to_choice(doc)[gold]
        if self.multiple_target:
            return list(gold)
        if type(gold) is not type(answer) and not (isinstance(answer, list) or unscored):
            return type(answer)(gold)
        return gold

    def score_documents(
        self, pipeline: str, asked: Sequence[Sequence[Instance]]
    ) -> dict[str, list[Any]] | None:
        metrics = self._metrics.of(pipeline)
        own_functions = any(metric.fn is not None for metric in metrics.metrics.values())
        if self.OUTPUT_TYPE == "generate_until" or own_functions or self._scores_by_itself:
            return None
        docs = [requests[0].doc for requests in asked]
        try:
            if self.OUTPUT_TYPE == "loglikelihood":
                return scorer.score_targets(metrics, asked, pipeline)
            if self.OUTPUT_TYPE == "loglikelihood_rolling":
                texts = self._every("doc_to_target", docs)
                words, sizes = map(self.count_words, texts), map(self.count_bytes, texts)
                return scorer.score_texts(metrics, asked, pipeline, list(words), list(sizes))
            choices, golds = self._all_choices_and_golds(docs)
            columns = scorer.score_choices(metrics, asked, pipeline, choices, golds)
        except scorer.NotTogetherError as reason:
            logger.warning("%s: scoring document by document: %s", self.task_name, reason)
            return None
        self._gold_missing += sum(map(documents.is_missing, golds))
        return columns

    def _all_choices_and_golds(self, docs: Sequence[Any]) -> tuple[list[list[str]], list[Any]]:
        """`choices_and_gold` of many documents.

        Raises `NotTogetherError` where one of them cannot be read: scoring them one by one tells
        which.
        """
        choices = self._every("doc_to_choice", docs)
        stated = self._every(self._gold_field, docs)
        try:
            return choices, list(map(documents.gold_index, stated, choices))
        except (EvalError, TypeError, AttributeError) as error:  # choices that are no list
            raise scorer.NotTogetherError(str(error)) from error

    def _every(self, field: str, docs: Sequence[Any]) -> list[Any]:
        """A field of many documents; a column, the usual case, is read straight away."""
        spec, unchanged = self.get_config(field), self.is_unchanged(field)
        expected: tuple[type[Exception], ...] = (EvalError, KeyError)
        if callable(spec) or not unchanged:
            expected = (Exception,)  # from code in the task folder
        try:
            if isinstance(spec, str) and spec in self.features and unchanged:
                return [doc[spec] for doc in docs]
            return list(map(getattr(self, field), docs))
        except expected as error:
            raise scorer.NotTogetherError(f"{field} failed: {whence(error)}") from error

    @property
    def _scores_by_itself(self) -> bool:
        """Whether the task file, a subclass or somebody's hand has its own `process_results`."""
        return callable(self.config.process_results) or not self.is_unchanged("process_results")

    def is_unchanged(self, method: str) -> bool:
        """Whether a method is the one written here, not a subclass's or one set by hand."""
        here = getattr(type(self), method) is getattr(ConfigurableTask, method)
        return here and method not in vars(self)

    def has_column(self, column: str) -> bool:
        return "{" in column or column in self.features

    def cluster_of(self, doc: Any, column: str) -> Any:
        return fields.column_or_template(doc, column)

    def override_metric(self, metric_name: str) -> None:
        self.set_config("metric_list", [{"metric": metric_name}])
        self.set_config("process_results", None)
        self._metrics = TaskMetrics(choose_metrics(self.config))
        if self._scores_by_itself:
            super().override_metric(metric_name)

    def override_filters(self, pipelines: list[dict[str, Any]]) -> None:
        super().override_filters(pipelines)
        self._choose_metrics()

    def override_metrics(self, names: Sequence[str]) -> None:
        """Those of the task with the settings it gives them, others with their defaults."""
        pipelines = self._config.filter_list or []
        lists = [self._config.metric_list, *(p.get("metric_list") for p in pipelines)]
        own = {_metric_name(entry): entry for entries in lists for entry in entries or ()}
        self.set_config("metric_list", [own.get(name, {"metric": name}) for name in names])
        if self._config.filter_list is not None:
            bare = [{k: v for k, v in p.items() if k != "metric_list"} for p in pipelines]
            self.set_config("filter_list", bare)
        self._choose_metrics()

    def _choose_metrics(self) -> None:
        self._metrics = choose_for_pipelines(self.config, [p.name for p in self._filters])

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        return self._metrics.aggregations

    def higher_is_better(self) -> dict[str, bool]:
        return self._metrics.higher_is_better

    def __repr__(self) -> str:
        return (
            f"ConfigurableTask(task_name={self.config.task}, output_type={self.OUTPUT_TYPE}, "
            f"num_fewshot={self.config.num_fewshot}, num_samples={len(self.eval_docs)})"
        )


def _metric_name(entry: Mapping[str, Any]) -> Any:
    return getattr(entry["metric"], "__name__", entry["metric"])


def _folder_of(metadata: Any) -> Path | None:
    source = metadata.get("config_source") if isinstance(metadata, Mapping) else None
    return Path(source).parent if source and source != "inline" else None
