"""`Task`: the base class of tasks, which turn documents into requests and answers into scores.

Tasks written as Python classes derive from `Task`. Tasks written as YAML files are objects of
`ConfigurableTask`, a subclass. Names and signatures are those of the published harness, whose task
classes run unchanged.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lm_eval._lazy import lazy_exports
from lm_eval.api.instance import OUTPUT_TYPES, Instance, OutputType
from lm_eval.api.registry import Need, get_metric, get_metric_aggregation, is_higher_better
from lm_eval.config.task import TASK_FIELDS, TaskConfig
from lm_eval.data import Origin, as_dataset_dict, load_splits
from lm_eval.data.fingerprint import describe_documents
from lm_eval.errors import (
    ConfigError,
    DataError,
    EvalError,
    describe_cause,
    raise_interrupt,
    suggestion,
)
from lm_eval.filters import absolute_paths, build_filter_ensemble, build_pipelines
from lm_eval.filters.selection import TakeFirstFilter, TakeKFilter
from lm_eval.metrics import documents
from lm_eval.metrics.aggregations import bits_per_byte, mean, weighted_perplexity
from lm_eval.metrics.repeat_metrics import RepeatMetric
from lm_eval.prompts.fields import column_or_template

logger = logging.getLogger(__name__)
eval_logger = logger  # the published name

ALL_OUTPUT_TYPES = list(OUTPUT_TYPES)

_lazy, _ = lazy_exports(__name__, {"ConfigurableTask": "lm_eval.tasks.configurable"})


def __getattr__(name: str) -> Any:
    """Returns `ConfigurableTask`; raises `AttributeError` for any other name.

    It is imported on first use, because its module imports this one.
    """
    return _lazy(name)


class Task(abc.ABC):
    """Base class of tasks: the documents, prompts and scoring of a benchmark.

    A subclass implements `has_training_docs`, `has_validation_docs`, `has_test_docs` (and the
    methods that return those documents), `doc_to_text`, `doc_to_target`, `construct_requests`,
    `process_results`, `aggregation` and `higher_is_better`.

    An evaluation calls the methods in this order:

    1. `download`, from `__init__`, and `set_fewshot_seed`;
    2. `build_all_requests`, which calls `fewshot_context` and `construct_requests` for each
       document of `eval_docs`;
    3. after the model has answered, `apply_filters`, then `process_results` for each document and
       each filter pipeline;
    4. `aggregation` and `higher_is_better`.

    Example::

        class Capitals(Task):
            VERSION = 1.0
            OUTPUT_TYPE = "generate_until"

            def download(self, *args, **kwargs):
                self.dataset = {"test": [{"question": "Capital of Peru?", "answer": "Lima"}]}

            def has_training_docs(self):
                return False

            has_validation_docs = has_training_docs

            def has_test_docs(self):
                return True

            def test_docs(self):
                return self.dataset["test"]

            def doc_to_text(self, doc):
                return doc["question"]

            def doc_to_target(self, doc):
                return " " + doc["answer"]

            def construct_requests(self, doc, ctx, **kwargs):
                arguments = (ctx, {"max_gen_toks": 5})
                return Instance("generate_until", doc, arguments, 0, metadata=kwargs["metadata"])

            def process_results(self, doc, results):
                return {"acc": float(results[0].strip() == doc["answer"])}

            def aggregation(self):
                return {"acc": mean}

            def higher_is_better(self):
                return {"acc": True}

    Attributes:
        VERSION: the version of the task, saved with the results.
        DATASET_PATH: the dataset on the hub, or the loader ("json"), that `download` reads.
        DATASET_NAME: the configuration (subset) of the dataset; None for the default.
        OUTPUT_TYPE: the type of requests, or "multiple_choice" for log-likelihoods of choices.
    """

    VERSION: int | float | str | None = None
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None
    OUTPUT_TYPE: OutputType | None = None
    #: Where the dataset was loaded from; None if the code of the task created it.
    data_origin: Origin | None = None
    _gold_missing: int = 0

    def __init__(
        self,
        data_dir: str | None = None,
        cache_dir: str | None = None,
        download_mode: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Loads the dataset (`download`) and reads the configuration.

        Args:
            data_dir: passed to `download`, as are `cache_dir` and `download_mode`.
            cache_dir: see `data_dir`.
            download_mode: see `data_dir`.
            config: settings with the keys of a task file; unknown keys are ignored.

        Raises `ConfigError` if a setting is invalid, and `DataError` if there is no such dataset.
        """
        self.download(data_dir, cache_dir, download_mode)
        self._training_docs: list[Any] | None = None
        self._fewshot_docs: list[Any] | None = None
        self._instances: list[Instance] | None = None
        known = {k: v for k, v in (config or {}).items() if k in TASK_FIELDS}
        self._config = TaskConfig(**known)
        self._filters = [build_filter_ensemble("none", [("take_first", None)])]
        self.fewshot_rnd: random.Random | None = None

    # -- documents ----------------------------------------------------------------------------

    def download(
        self,
        data_dir: str | None = None,
        cache_dir: str | None = None,
        download_mode: Any = None,
    ) -> None:
        """Loads the dataset `DATASET_PATH` into `self.dataset`, a dictionary of splits.

        Override it to read the data from somewhere else. Arguments that are not None are passed to
        the dataset loader. Raises `DataError` if the dataset is not set or cannot be loaded.
        """
        given = {"data_dir": data_dir, "cache_dir": cache_dir, "download_mode": download_mode}
        splits = load_splits(
            self.DATASET_PATH,
            self.DATASET_NAME,
            **{k: v for k, v in given.items() if v is not None},
        )
        self.data_origin = splits.origin
        self.dataset: Any = as_dataset_dict(splits)

    def describe_data(self) -> dict[str, Any]:
        """Returns the task's entry under `datasets` in the results.

        It contains the source of the data, and the number and a fingerprint of the evaluation
        documents.
        """
        return describe_documents(self.eval_docs, self.data_origin)

    @abc.abstractmethod
    def has_training_docs(self) -> bool:
        """Returns whether there is a training split; few-shot examples are drawn from it."""

    @abc.abstractmethod
    def has_validation_docs(self) -> bool:
        """Returns whether there is a validation split, evaluated if there is no test split."""

    @abc.abstractmethod
    def has_test_docs(self) -> bool:
        """Returns whether there is a test split, which is then the one that is evaluated."""

    def training_docs(self) -> Any:
        """Returns the documents of the training split, as a sequence; `[]` in the base class."""
        return []

    def validation_docs(self) -> Any:
        """Returns the documents of the validation split, as a sequence; `[]` in the base class."""
        return []

    def test_docs(self) -> Any:
        """Returns the documents of the test split, as a sequence; `[]` in the base class."""
        return []

    def fewshot_docs(self) -> Any:
        """Returns the documents that few-shot examples are drawn from.

        These are the training documents, or else the validation documents, or else the test
        documents. In the last case a warning is logged if the task uses few-shot examples.
        """
        if self.has_training_docs():
            return self.training_docs()
        if self.has_validation_docs():
            return self.validation_docs()
        if (self.config.num_fewshot or 0) > 0:
            logger.warning(
                "%s: few-shot examples are drawn from the test documents, because the task has no "
                "training or validation documents. Set fewshot_split to draw them from elsewhere.",
                self.task_name,
            )
        return self.test_docs()

    @property
    def eval_docs(self) -> Any:
        """The documents to evaluate: the test split if the task has one, else the validation split.

        Raises `DataError` if there is neither.
        """
        if self.has_test_docs():
            return self.test_docs()
        if self.has_validation_docs():
            return self.validation_docs()
        raise DataError(
            f"task {self.task_name!r} has no documents to evaluate: set test_split or "
            "validation_split. (In a task class, has_test_docs or has_validation_docs must return "
            "True.)"
        )

    def doc_iterator(
        self,
        *,
        rank: int = 0,
        limit: int | None = None,
        world_size: int = 1,
        samples: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Returns an iterator over `(number, document)` of the documents to evaluate.

        Documents come in the order of the split, and numbers are counted from 0.

        Args:
            rank: index of this process; it gets every `world_size`-th document, from `rank` on.
            limit: evaluate only the first `limit` documents; None or 0 for all.
            world_size: number of processes that share the documents.
            samples: indices of the documents to evaluate, in place of `limit`; None or empty for no
                such choice. Their order does not matter, and duplicates count once. The numbers
                that are returned then count the chosen documents (0, 1, …) and are not these
                indices.

        Raises `ConfigError` if an index in `samples` is out of range, and `DataError` if the task
        has no split to evaluate.
        """
        docs = self.eval_docs
        if samples:
            count, wanted = len(docs), set(samples)
            beyond = [index for index in samples if not 0 <= index < count]
            if beyond:
                raise ConfigError(
                    f"task {self.task_name!r}: the samples {beyond} do not exist. "
                    f"Its documents are numbered 0 to {count - 1}."
                )
            chosen = (doc for index, doc in enumerate(docs) if index in wanted)
            return islice(enumerate(chosen), rank, None, world_size)
        return islice(enumerate(docs), rank, limit or None, world_size)

    def _process_doc(self, doc: Any) -> Any:
        """Returns the document unchanged; task classes override it to convert raw rows."""
        return doc

    # -- prompts ------------------------------------------------------------------------------

    @abc.abstractmethod
    def doc_to_text(self, doc: Any) -> Any:
        """Returns the question of a document, as it appears in the prompt (without the answer)."""

    @abc.abstractmethod
    def doc_to_target(self, doc: Any) -> Any:
        """Returns the gold answer of a document, as it follows the question in an example.

        It begins with the space between the two: `" Paris"`.
        """

    def doc_to_image(self, doc: Any) -> Any:
        """Returns the images of a document; the base class raises `NotImplementedError`."""
        raise NotImplementedError

    def doc_to_audio(self, doc: Any) -> Any:
        """Returns the sounds of a document; the base class raises `NotImplementedError`."""
        raise NotImplementedError

    def doc_to_prefix(self, doc: Any) -> Any:
        """Returns the beginning of the answer that the prompt already contains; "" for none."""
        return ""

    def doc_to_decontamination_query(self, doc: Any) -> Any:
        """Returns the text by which to search for the document in a model's training data.

        The base class raises `NotImplementedError`.
        """
        raise NotImplementedError

    def fewshot_examples(self, k: int, rnd: random.Random) -> list[Any]:
        """Returns `k` training documents, drawn without replacement by the generator `rnd`.

        Raises `ValueError` if there are fewer.
        """
        if self._training_docs is None:
            self._training_docs = list(self.training_docs())
        return rnd.sample(self._training_docs, k)

    def fewshot_context(
        self,
        doc: Any,
        num_fewshot: int,
        rnd: random.Random | None = None,
        description: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Returns the prompt of a document: description, few-shot examples, question.

        Called by `build_all_requests` once per document. The result is passed to
        `construct_requests` as `ctx`. Examples are training documents or, if the task has none,
        documents of `fewshot_docs` other than `doc`. Each consists of its question and gold answer,
        followed by an empty line.

        Args:
            doc: the document.
            num_fewshot: the number of examples.
            rnd: the random generator to draw with; None for the one of `set_fewshot_seed`.
            description: text at the start of the prompt.
            kwargs: chat and system settings of the run, which this implementation ignores.

        Raises `ConfigError` if there is no random generator, and `ValueError` if there are not
        enough documents for the examples.
        """
        rnd = rnd or self.fewshot_rnd
        if rnd is None:
            raise ConfigError(
                f"task {self.task_name!r}: call set_fewshot_seed before prompts are built."
            )
        examples: list[Any] = []
        if num_fewshot > 0 and self.has_training_docs():
            examples = self.fewshot_examples(k=num_fewshot, rnd=rnd)
        elif num_fewshot > 0:
            if self._fewshot_docs is None:
                self._fewshot_docs = list(self.fewshot_docs())
            drawn = rnd.sample(self._fewshot_docs, num_fewshot + 1)
            examples = [other for other in drawn if other != doc][:num_fewshot]
        shown = [self.doc_to_text(shot) + self.doc_to_target(shot) + "\n\n" for shot in examples]
        return (description or "") + "".join(shown) + self.doc_to_text(doc)

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        """Restarts the random generator that draws few-shot examples, with this seed.

        With None, the examples are different each time.
        """
        self.fewshot_rnd = random.Random(seed)

    @staticmethod
    def resolve_field(doc: Mapping[str, Any], field: str | None = None) -> Any:
        """Returns the column `field` of a document, or else renders it as a template.

        Returns None if `field` is None or empty.
        """
        return column_or_template(doc, field)

    # -- requests -----------------------------------------------------------------------------

    @property
    def instances(self) -> list[Instance]:
        """The requests that `build_all_requests` has built; empty before it is called."""
        return self._instances or []

    def set_requests(self, requests: list[Instance] | None) -> None:
        """Replaces the requests; None discards them."""
        self._instances = requests

    def with_requests(self, requests: list[Instance]) -> Task:
        """Returns a shallow copy of the task with these requests in place of its own.

        The copy shares documents and configuration with this task, which is not changed.
        """
        copied = copy.copy(self)
        copied.set_requests(requests)
        return copied

    def build_all_requests(
        self,
        *,
        limit: int | None = None,
        samples: Sequence[int] | None = None,
        rank: int = 0,
        world_size: int = 1,
        system_instruction: str | None = None,
        apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = False,
        chat_template: Callable[..., str] | None = None,
        **_: Any,
    ) -> None:
        """Builds the requests of all documents to evaluate and stores them in `instances`.

        Args:
            limit: evaluate only the first `limit` documents; None or 0 for all.
            samples: indices of the documents to evaluate, in place of `limit`, counted from 0.
            rank: index of this process among those that share the documents.
            world_size: number of processes that share the documents.
            system_instruction: text at the start of every prompt.
            apply_chat_template: whether prompts are formatted with `chat_template`.
            fewshot_as_multiturn: whether few-shot examples become separate chat messages.
            chat_template: the model's `apply_chat_template`; None if it is not used.

        Other arguments are ignored. Raises `DataError` if there are no documents, or if the code of
        the task fails; an `EvalError` that it raises keeps its type. The message names the
        document. Raises `ConfigError` if an index in `samples` is out of range.
        """
        instances: list[Instance] = []
        chosen = self.doc_iterator(rank=rank, limit=limit, samples=samples, world_size=world_size)
        for doc_id, doc in chosen:
            try:
                instances.extend(
                    self._build_requests(
                        doc,
                        doc_id,
                        system_instruction=system_instruction,
                        apply_chat_template=apply_chat_template,
                        fewshot_as_multiturn=fewshot_as_multiturn,
                        chat_template=chat_template,
                    )
                )
            except EvalError as error:
                raise type(error)(self._locate_message(doc_id, str(error))) from error
            except BaseException as error:  # from code in the task folder
                raise_interrupt(error)
                problem = f"making its prompt failed: {describe_cause(error)}"
                raise DataError(self._locate_message(doc_id, problem)) from error
        if not instances:
            raise DataError(
                f"task {self.task_name!r} has no documents to evaluate: check its splits, and "
                "--limit or --samples."
            )
        if samples:
            numbers = sorted(set(samples))
            for request in instances:
                request.set_doc_number(numbers[request.doc_id or 0])
        self._instances = instances

    def _locate_message(self, doc_id: int, problem: str) -> str:
        """Returns `task 'x', document 3: <problem>`, for error messages.

        If `problem` begins with the task, that is removed, so that the task is named once.
        """
        task = f"task {self.task_name!r}"
        return f"{task}, document {doc_id}: {problem.removeprefix(f'{task}: ')}"

    def _build_requests(
        self,
        doc: Any,
        doc_id: int,
        *,
        apply_chat_template: bool,
        chat_template: Callable[..., str] | None,
        **prompt: Any,
    ) -> list[Instance]:
        """Returns the requests of one document; raises `DataError` if there are none.

        `prompt` contains further arguments of `fewshot_context`.
        """
        context = self.fewshot_context(
            doc,
            num_fewshot=self.config.num_fewshot or 0,
            apply_chat_template=apply_chat_template,
            chat_template=chat_template,
            gen_prefix=self.doc_to_prefix(doc),
            **prompt,
        )
        made = self.construct_requests(
            doc=doc,
            ctx=context,
            metadata=(self.config.task, doc_id, self.config.repeats),
            apply_chat_template=apply_chat_template,
            chat_template=chat_template,
        )
        requests = made if isinstance(made, list) else [made]
        if not requests:
            raise DataError(
                "construct_requests returned no request for this document; it must return at least "
                "one."
            )
        return requests

    @abc.abstractmethod
    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> list[Instance] | Instance:
        """Returns the request or requests of one document.

        Called by `build_all_requests` once per document.

        Args:
            doc: the document.
            ctx: the prompt that `fewshot_context` returned.
            kwargs: `metadata`, to be passed on to each `Instance`; `apply_chat_template` and
                `chat_template`.
        """

    # -- scores -------------------------------------------------------------------------------

    @property
    def gold_missing(self) -> int:
        """Number of documents since `begin_scoring` whose gold answer is none of the choices."""
        return self._gold_missing

    def needs(self, what: Need) -> bool:
        """Returns whether a metric of the task needs more than the log-likelihoods of the choices.

        Only registered multiple-choice metrics can.

        Args:
            what: "tokens" for the lengths of the choices in tokens; "unconditional" for their
                log-likelihoods without the question.
        """
        return what in documents.needs_of(self.aggregation())

    def begin_scoring(self) -> None:
        """Resets `gold_missing`; called before the documents of each filter pipeline are scored."""
        self._gold_missing = 0

    def apply_filters(self) -> None:
        """Applies every filter pipeline to the answers, which fills `Instance.filtered_resps`.

        Raises `EvalError` if a filter does not return one entry per request.
        """
        for pipeline in self._filters:
            pipeline.apply(self.instances)
            if self.repeat_metrics(pipeline.name):
                pipeline.apply_to_repeats(self.instances)

    def filter_steps(self) -> list[Callable[[], Any]]:
        """Returns the functions that create the filters of all pipelines, in order."""
        return [step for pipeline in self._filters for step in pipeline.filters]

    def check_filters(self) -> None:
        """Raises an `EvalError` if a filter cannot be applied to the answers of this task.

        Called before the model is loaded. Only filters that read files about the task can fail
        here, such as `decontaminate`.
        """
        for pipeline in self._filters:
            pipeline.check_task(self)

    def extracting_pipelines(self) -> list[str]:
        """Returns the names of the filter pipelines that report if they find no answer in a text.

        For these, the results contain the number of documents without an answer, even if it is 0.
        """
        return [pipeline.name for pipeline in self._filters if pipeline.extracts]

    def pipelines_without_extraction(self) -> list[str]:
        """Returns the names of the filter pipelines that only choose among repeats, or do nothing.

        Their answers are whole texts.
        """
        return [
            pipeline.name
            for pipeline in self._filters
            if all(isinstance(make(), (TakeFirstFilter, TakeKFilter)) for make in pipeline.filters)
        ]

    def score_document(
        self, pipeline: str, doc: Any, answers: Any, tokens: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Returns the metric values of one document under one filter pipeline.

        Args:
            pipeline: the name of the filter pipeline.
            doc: the document.
            answers: the filtered answers to its requests, in order.
            tokens: the lengths of the continuations in tokens; None if they were not counted.

        Returns:
            The values by metric name; the base class returns those of `process_results`.
        """
        return dict(self.process_results(doc, answers))

    def repeat_metrics(self, pipeline: str) -> list[tuple[RepeatMetric, str]]:
        """Returns the metrics of repeated answers (`avg@8`) that a filter pipeline reports.

        Each comes with the name of the metric that scores one answer. The base class has none.
        """
        return []

    def score_repeat(self, pipeline: str, doc: Any, answers: Any) -> dict[str, Any]:
        """Returns the metric values of one repeat, by name; called if there are `repeat_metrics`.

        `answers` are the filtered answers to the requests of `doc` in this repeat.
        """
        return self.score_document(pipeline, doc, answers)

    def override_repeats(self, repeats: int) -> None:
        """Sets how often the task asks for an answer to each document."""
        self.set_config("repeats", repeats)

    def add_average(self, repeats: int) -> None:
        """Reports the mean over the repeats beside the other metrics, if the task supports it.

        The base class does not.
        """
        logger.info("%s: its class has no mean over %d repeats.", self.task_name, repeats)

    def score_documents(
        self, pipeline: str, requests_by_doc: Sequence[Sequence[Instance]]
    ) -> dict[str, list[Any]] | None:
        """Returns the metric values of all documents at once, if the task supports that.

        Args:
            pipeline: the name of the filter pipeline.
            requests_by_doc: for each document, its requests with their answers.

        Returns:
            For each metric a list with one value per document; or None, as in the base class, to
            have `score_document` called for each document.
        """
        return None

    def scoring_functions(self) -> list[Callable[..., Any]]:
        """Returns the functions that compute the metric values of a document."""
        return [self.process_results]

    def has_column(self, column: str) -> bool:
        """Returns whether the first document to evaluate has this column; for the `cluster` option.

        False if there are no documents, or if they are not mappings.
        """
        docs = self.eval_docs
        return len(docs) > 0 and isinstance(docs[0], Mapping) and column in docs[0]

    def cluster_of(self, doc: Any, column: str) -> Any:
        """Returns the cluster of a document, for clustered standard errors: its value in `column`.

        Documents with the same value are one cluster. Raises `KeyError` if the document has no such
        column.
        """
        return doc[column]

    @abc.abstractmethod
    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """Returns the metric values of one document.

        Called once per document and filter pipeline, after the model has answered.

        Args:
            doc: the document.
            results: the filtered answers to its requests, in the order of `construct_requests`. An
                answer is what the `LM` method returned, for example `(log-likelihood, is greedy)`.

        Returns:
            The values by metric name: `{"acc": 1.0}`.
        """

    @abc.abstractmethod
    def aggregation(self) -> dict[str, Callable[..., Any]]:
        """Returns for each metric the function that turns the values of all documents into one."""

    @abc.abstractmethod
    def higher_is_better(self) -> dict[str, bool]:
        """Returns for each metric whether higher values are better."""

    @classmethod
    def count_bytes(cls, doc: str) -> int:
        """Returns the number of bytes of a text in UTF-8."""
        return documents.count_bytes(doc)

    @classmethod
    def count_words(cls, doc: str) -> int:
        """Returns the number of pieces of a text that are separated by whitespace.

        Whitespace at the start or the end adds an empty piece, and an empty text counts as 1, as in
        the published harness.
        """
        return documents.count_words(doc)

    def override_metric(self, metric_name: str) -> None:
        """Replaces all metrics of the task by this one; "bypass" scores nothing.

        The metric is called with the filtered answers to the requests of a document. Raises
        `UnknownNameError` if it is not registered, or has no default aggregation.
        """
        metric, aggregation = get_metric(metric_name), get_metric_aggregation(metric_name)
        self.process_results = lambda doc, results: {metric_name: metric(results)}  # type: ignore[method-assign]
        self.aggregation = lambda: {metric_name: aggregation}  # type: ignore[method-assign]
        self.higher_is_better = lambda: {metric_name: bool(is_higher_better(metric_name))}  # type: ignore[method-assign]
        self.set_config("metric_list", [{"metric": metric_name}])

    @property
    def _folder(self) -> Path | None:
        """The folder of the task file, to which paths in it are relative; None if there is none."""
        return None

    def should_decontaminate(self) -> bool:
        """Returns whether documents are to be searched for in training data; False if not set."""
        return self.config.should_decontaminate

    def override_filters(self, pipelines: list[dict[str, Any]]) -> None:
        """Replaces the filter pipelines; `pipelines` is written as `filter_list` in task files.

        Raises `ConfigError` if an entry is malformed, two have the same name, or a filter does not
        accept its arguments, and `UnknownNameError` if a filter is not registered.
        """
        self._filters = build_pipelines(absolute_paths(pipelines, self._folder))
        self.set_config("filter_list", pipelines)

    def override_metrics(self, names: Sequence[str]) -> None:
        """Restricts the reported metrics to `names`.

        Raises `ConfigError` if the task does not have one of them.
        """
        known, better = self.aggregation(), self.higher_is_better()
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"task {self.task_name!r} has no metric {name!r}.{suggestion(name, known)} "
                    f"Its metrics are: {', '.join(known)}."
                )
        self.aggregation = lambda: {name: known[name] for name in names}  # type: ignore[method-assign]
        self.higher_is_better = lambda: {name: better[name] for name in names}  # type: ignore[method-assign]

    # -- configuration ------------------------------------------------------------------------

    @property
    def config(self) -> TaskConfig:
        """The settings of the task, as attributes with the names of the keys in task files."""
        return self._config

    @property
    def task_name(self) -> str:
        """The name of the task in results; the name of the class if the configuration has none."""
        return self.config.task or type(self).__name__

    def get_config(self, key: str) -> Any:
        """Returns a setting of the task; None if it is not set or does not exist."""
        return getattr(self._config, key, None)

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        """Sets the setting `key` of the task to `value`.

        With `update`, both are dictionaries, and `value` is merged into the present one: its items
        replace those with the same key. A setting that is not set counts as empty.
        """
        if update:
            value = {**(getattr(self._config, key, None) or {}), **value}
        self._config[key] = value

    def rename(self, name: str, alias: str | None = None) -> None:
        """Changes the name of the task and, if `alias` is given, the name that tables show."""
        self.config["task"] = name
        if alias is not None:
            self.config["task_alias"] = alias

    def dump_config(self) -> dict[str, Any]:
        """Returns the settings as plain values, which are saved with the results.

        Settings that are None are left out, and functions become their source code.
        """
        return self.config.to_dict()


class MultipleChoiceTask(Task):
    """Base class of multiple-choice tasks written in Python.

    Each document has `choices`, a list of strings, and `gold`, the index of the correct one, from
    0. The model scores each choice as a continuation of the prompt; the metrics are `acc` and
    `acc_norm`.
    """

    OUTPUT_TYPE = "loglikelihood"

    def doc_to_target(self, doc: Any) -> str:
        """Returns the correct choice after a space: `" Paris"`."""
        return f" {doc['choices'][doc['gold']]}"

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> list[Instance]:
        """Returns one log-likelihood request per choice; its continuation is `" choice"`."""
        return [
            Instance("loglikelihood", doc, (ctx, f" {choice}"), idx, **_instance_fields(kwargs))
            for idx, choice in enumerate(doc["choices"])
        ]

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """Returns `acc` and `acc_norm` of one document, given the log-likelihoods of its choices.

        They are 1.0 if the choice with the highest log-likelihood is the correct one, else 0.0. For
        `acc_norm` each log-likelihood is divided by the length of the choice in characters.
        """
        return documents.score_multiple_choice(
            list(results), doc["choices"], doc["gold"], ("acc", "acc_norm")
        )

    def higher_is_better(self) -> dict[str, bool]:
        """Returns True for both metrics."""
        return {"acc": True, "acc_norm": True}

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        """Returns the mean for both metrics."""
        return {"acc": mean, "acc_norm": mean}


class PerplexityTask(Task):
    """Base class of tasks written in Python that measure the perplexity of whole texts.

    A document is a string, unless the subclass overrides `doc_to_target` to return it. There are no
    prompts and no few-shot examples.
    """

    OUTPUT_TYPE = "loglikelihood_rolling"

    def has_training_docs(self) -> bool:
        """Returns False: there are no few-shot examples."""
        return False

    def fewshot_examples(self, k: int, rnd: random.Random) -> list[Any]:
        """Returns an empty list; raises `ConfigError` if `k` is not 0."""
        self._refuse_fewshot(k)
        return []

    def fewshot_context(self, doc: Any, num_fewshot: int, *args: Any, **kwargs: Any) -> str:
        """Returns an empty prompt; raises `ConfigError` if `num_fewshot` is not 0."""
        self._refuse_fewshot(num_fewshot)
        return ""

    def _refuse_fewshot(self, count: int) -> None:
        """Raises `ConfigError` if `count`, the number of few-shot examples, is not 0."""
        if count != 0:
            raise ConfigError(
                f"task {self.task_name!r} measures the perplexity of whole texts, which have no "
                f"few-shot examples: num_fewshot must be 0, not {count}."
            )

    def doc_to_decontamination_query(self, doc: Any) -> Any:
        """Returns the document itself."""
        return doc

    def doc_to_text(self, doc: Any) -> str:
        """Returns an empty string: there is no question."""
        return ""

    def doc_to_target(self, doc: Any) -> Any:
        """Returns the text whose perplexity is measured: the document itself."""
        return doc

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Instance:
        """Returns one request for the log-likelihood of the whole text; `ctx` is ignored."""
        return Instance(
            "loglikelihood_rolling", doc, (self.doc_to_target(doc),), 0, **_instance_fields(kwargs)
        )

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """Returns for each metric the pair `(log-likelihood, size)` of one document.

        The size is the number of words of the text for `word_perplexity`, and of bytes for the
        others.
        """
        (loglikelihood,) = results
        text = self.doc_to_target(doc)
        return documents.score_rolling(
            loglikelihood, self.count_words(text), self.count_bytes(text), self.aggregation()
        )

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        """Returns the aggregations of `word_perplexity`, `byte_perplexity` and `bits_per_byte`."""
        return {
            "word_perplexity": weighted_perplexity,
            "byte_perplexity": weighted_perplexity,
            "bits_per_byte": bits_per_byte,
        }

    def higher_is_better(self) -> dict[str, bool]:
        """Returns False for every metric."""
        return dict.fromkeys(self.aggregation(), False)


_INSTANCE_FIELDS = {f.name for f in dataclasses.fields(Instance)}


def _instance_fields(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keyword arguments of `construct_requests` that are fields of `Instance`."""
    return {k: v for k, v in kwargs.items() if k in _INSTANCE_FIELDS}
