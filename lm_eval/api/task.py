"""What a task is: documents in, requests out, answers in, scores out.

`Task` is the contract for tasks written as Python classes; `ConfigurableTask` is the one behind
every YAML file. Names and signatures are the published ones, so classes in the wild run unchanged.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from lm_eval._lazy import lazy_exports
from lm_eval.api.instance import OUTPUT_TYPES, Instance, OutputType
from lm_eval.api.registry import Need, get_metric, get_metric_aggregation, is_higher_better
from lm_eval.config.task import TASK_FIELDS, TaskConfig
from lm_eval.data import Origin, as_dataset_dict, load_splits
from lm_eval.data.fingerprint import describe_documents
from lm_eval.errors import ConfigError, DataError, EvalError, suggestion, whence
from lm_eval.filters import build_filter_ensemble, build_pipelines
from lm_eval.metrics import documents
from lm_eval.metrics.aggregations import bits_per_byte, mean, weighted_perplexity

logger = logging.getLogger(__name__)

ALL_OUTPUT_TYPES = list(OUTPUT_TYPES)

_lazy, _ = lazy_exports(__name__, {"ConfigurableTask": "lm_eval.tasks.configurable"})


def __getattr__(name: str) -> Any:
    """Returns `ConfigurableTask`, which builds on this module and is imported on first use."""
    return _lazy(name)


class Task(abc.ABC):
    """A benchmark: its documents, its prompts and its scoring."""

    VERSION: int | float | str | None = None
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None
    OUTPUT_TYPE: OutputType | None = None
    #: Where the data set came from; None where the task's own code made it.
    data_origin: Origin | None = None
    _gold_missing: int = 0

    def __init__(
        self,
        data_dir: str | None = None,
        cache_dir: str | None = None,
        download_mode: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
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
        """Load the data set into `self.dataset`; override to read from somewhere else."""
        given = {"data_dir": data_dir, "cache_dir": cache_dir, "download_mode": download_mode}
        splits = load_splits(
            self.DATASET_PATH,
            self.DATASET_NAME,
            **{k: v for k, v in given.items() if v is not None},
        )
        self.data_origin = splits.origin
        self.dataset: Any = as_dataset_dict(splits)

    def describe_data(self) -> dict[str, Any]:
        """Where the documents came from and a fingerprint of them, for the results."""
        return describe_documents(self.eval_docs, self.data_origin)

    @abc.abstractmethod
    def has_training_docs(self) -> bool: ...

    @abc.abstractmethod
    def has_validation_docs(self) -> bool: ...

    @abc.abstractmethod
    def has_test_docs(self) -> bool: ...

    def training_docs(self) -> Any:
        return []

    def validation_docs(self) -> Any:
        return []

    def test_docs(self) -> Any:
        return []

    def fewshot_docs(self) -> Any:
        """Where examples come from when no split is named: training, validation, at worst test."""
        if self.has_training_docs():
            return self.training_docs()
        if self.has_validation_docs():
            return self.validation_docs()
        if (self.config.num_fewshot or 0) > 0:
            logger.warning(
                "%s: few-shot examples are drawn from the test documents, for want of others.",
                self.task_name,
            )
        return self.test_docs()

    @property
    def eval_docs(self) -> Any:
        """The documents to evaluate: the test split, or validation where there is none."""
        if self.has_test_docs():
            return self.test_docs()
        if self.has_validation_docs():
            return self.validation_docs()
        raise DataError(
            f"task {self.task_name!r} has no documents to evaluate: "
            "set test_split or validation_split."
        )

    def doc_iterator(
        self,
        *,
        rank: int = 0,
        limit: int | None = None,
        world_size: int = 1,
        samples: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """`(number, document)` of those to evaluate: the first `limit`, or the given `samples`."""
        docs = self.eval_docs
        if samples:
            count, wanted = len(docs), set(samples)
            beyond = [index for index in samples if not 0 <= index < count]
            if beyond:
                raise ConfigError(
                    f"task {self.task_name!r}: samples {beyond} do not exist; "
                    f"its documents are numbered 0 to {count - 1}."
                )
            chosen = (doc for index, doc in enumerate(docs) if index in wanted)
            return islice(enumerate(chosen), rank, None, world_size)
        return islice(enumerate(docs), rank, limit or None, world_size)

    def _process_doc(self, doc: Any) -> Any:
        return doc

    # -- prompts ------------------------------------------------------------------------------

    @abc.abstractmethod
    def doc_to_text(self, doc: Any) -> Any: ...

    @abc.abstractmethod
    def doc_to_target(self, doc: Any) -> Any: ...

    def doc_to_image(self, doc: Any) -> Any:
        raise NotImplementedError

    def doc_to_audio(self, doc: Any) -> Any:
        raise NotImplementedError

    def doc_to_prefix(self, doc: Any) -> Any:
        return ""

    def doc_to_decontamination_query(self, doc: Any) -> Any:
        raise NotImplementedError

    def fewshot_examples(self, k: int, rnd: random.Random) -> list[Any]:
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
        """The prompt: description, examples, question."""
        rnd = rnd or self.fewshot_rnd
        if rnd is None:
            raise ConfigError(
                f"task {self.task_name!r}: call set_fewshot_seed before drawing examples."
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
        self.fewshot_rnd = random.Random(seed)

    # -- requests -----------------------------------------------------------------------------

    @property
    def instances(self) -> list[Instance]:
        """The requests, once `build_all_requests` has made them."""
        return self._instances or []

    def set_requests(self, requests: list[Instance] | None) -> None:
        """Replaces the requests; None discards them, as if none had been built."""
        self._instances = requests

    def with_requests(self, requests: list[Instance]) -> Task:
        """Returns a shallow copy of the task that holds these requests; the original keeps its own.

        The copy shares documents and configuration with the original.
        """
        made = copy.copy(self)
        made.set_requests(requests)
        return made

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
        """Make every request of every document to evaluate."""
        instances: list[Instance] = []
        chosen = self.doc_iterator(rank=rank, limit=limit, samples=samples, world_size=world_size)
        for doc_id, doc in chosen:
            try:
                instances.extend(
                    self._requests_of(
                        doc,
                        doc_id,
                        system_instruction=system_instruction,
                        apply_chat_template=apply_chat_template,
                        fewshot_as_multiturn=fewshot_as_multiturn,
                        chat_template=chat_template,
                    )
                )
            except EvalError as error:
                raise type(error)(self._told(doc_id, str(error))) from error
            except (Exception, SystemExit) as error:  # from code in the task folder
                said = f"making its prompt failed: {whence(error)}"
                raise DataError(self._told(doc_id, said)) from error
        if not instances:
            raise DataError(f"task {self.task_name!r} has no documents to evaluate.")
        self._instances = instances

    def _told(self, doc_id: int, problem: str) -> str:
        """A problem with the task and document it is about, the task named once."""
        task = f"task {self.task_name!r}"
        return f"{task}, document {doc_id}: {problem.removeprefix(f'{task}: ')}"

    def _requests_of(
        self,
        doc: Any,
        doc_id: int,
        *,
        apply_chat_template: bool,
        chat_template: Callable[..., str] | None,
        **prompt: Any,
    ) -> list[Instance]:
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
            raise DataError("construct_requests made no request of it.")
        return requests

    @abc.abstractmethod
    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> list[Instance] | Instance:
        """The requests of one document, given its prompt."""

    # -- scores -------------------------------------------------------------------------------

    @property
    def gold_missing(self) -> int:
        """How many documents, since `begin_scoring`, had a gold answer that is not a choice."""
        return self._gold_missing

    def needs(self, what: Need) -> bool:
        """Whether a metric needs the choices' lengths in `tokens`, or `unconditional` answers."""
        return what in documents.needs_of(self.aggregation())

    def begin_scoring(self) -> None:
        """Resets what is counted while documents are scored; called once per filter pipeline."""
        self._gold_missing = 0

    def apply_filters(self) -> None:
        """Run every filter pipeline over the answers."""
        for pipeline in self._filters:
            pipeline.apply(self.instances)

    def extracting_pipelines(self) -> list[str]:
        """The filter pipelines that look for an answer, and may find none."""
        return [pipeline.name for pipeline in self._filters if pipeline.extracts]

    def score_document(
        self, pipeline: str, doc: Any, answers: Any, tokens: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """One document's values under one filter pipeline; `tokens` if they were counted."""
        return dict(self.process_results(doc, answers))

    def score_documents(
        self, pipeline: str, asked: Sequence[Sequence[Instance]]
    ) -> dict[str, list[Any]] | None:
        """All documents' values at once, a column a metric; None means one by one."""
        return None

    def has_column(self, column: str) -> bool:
        """Whether the documents have this column."""
        docs = self.eval_docs
        return len(docs) > 0 and isinstance(docs[0], Mapping) and column in docs[0]

    def cluster_of(self, doc: Any, column: str) -> Any:
        """What a document shares with others that err together: a column's value."""
        return doc[column]

    @abc.abstractmethod
    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """The values of each metric for one document, given the answers to its requests."""

    @abc.abstractmethod
    def aggregation(self) -> dict[str, Callable[..., Any]]:
        """For each metric, the function from all documents' values to one number."""

    @abc.abstractmethod
    def higher_is_better(self) -> dict[str, bool]:
        """For each metric, whether more is better."""

    @classmethod
    def count_bytes(cls, doc: str) -> int:
        return documents.count_bytes(doc)

    @classmethod
    def count_words(cls, doc: str) -> int:
        return documents.count_words(doc)

    def override_metric(self, metric_name: str) -> None:
        """Measure only this; `bypass` measures nothing."""
        metric, aggregation = get_metric(metric_name), get_metric_aggregation(metric_name)
        self.process_results = lambda doc, results: {metric_name: metric(results)}  # type: ignore[method-assign]
        self.aggregation = lambda: {metric_name: aggregation}  # type: ignore[method-assign]
        self.higher_is_better = lambda: {metric_name: bool(is_higher_better(metric_name))}  # type: ignore[method-assign]
        self.set_config("metric_list", [{"metric": metric_name}])

    def override_filters(self, pipelines: list[dict[str, Any]]) -> None:
        """Put these filter pipelines in the place of the task's own."""
        self._filters = build_pipelines(pipelines)
        self.set_config("filter_list", pipelines)

    def override_metrics(self, names: Sequence[str]) -> None:
        """Report these metrics alone."""
        known, better = self.aggregation(), self.higher_is_better()
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"task {self.task_name!r} measures no {name!r}.{suggestion(name, known)} "
                    f"It measures: {', '.join(known)}."
                )
        self.aggregation = lambda: {name: known[name] for name in names}  # type: ignore[method-assign]
        self.higher_is_better = lambda: {name: better[name] for name in names}  # type: ignore[method-assign]

    # -- configuration ------------------------------------------------------------------------

    @property
    def config(self) -> TaskConfig:
        return self._config

    @property
    def task_name(self) -> str:
        return self.config.task or type(self).__name__

    def get_config(self, key: str) -> Any:
        return getattr(self._config, key, None)

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        """Set a field, or merge into one that is a table."""
        if update:
            value = {**(getattr(self._config, key, None) or {}), **value}
        self._config[key] = value

    def rename(self, name: str, alias: str | None = None) -> None:
        """Gives the task another name; `alias` is what tables show, where that is to differ."""
        self.config["task"] = name
        if alias is not None:
            self.config["task_alias"] = alias

    def dump_config(self) -> dict[str, Any]:
        return self.config.to_dict()


class MultipleChoiceTask(Task):
    """A Python-class task whose documents hold `choices` and the index `gold`."""

    OUTPUT_TYPE = "loglikelihood"

    def doc_to_target(self, doc: Any) -> str:
        return f" {doc['choices'][doc['gold']]}"

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> list[Instance]:
        return [
            Instance("loglikelihood", doc, (ctx, f" {choice}"), idx, **_instance_fields(kwargs))
            for idx, choice in enumerate(doc["choices"])
        ]

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        return documents.score_multiple_choice(
            list(results), doc["choices"], doc["gold"], ("acc", "acc_norm")
        )

    def higher_is_better(self) -> dict[str, bool]:
        return {"acc": True, "acc_norm": True}

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        return {"acc": mean, "acc_norm": mean}


class PerplexityTask(Task):
    """A Python-class task that measures how likely whole texts are."""

    OUTPUT_TYPE = "loglikelihood_rolling"

    def has_training_docs(self) -> bool:
        return False

    def fewshot_examples(self, k: int, rnd: random.Random) -> list[Any]:
        self._no_shots(k)
        return []

    def fewshot_context(self, doc: Any, num_fewshot: int, *args: Any, **kwargs: Any) -> str:
        self._no_shots(num_fewshot)
        return ""

    def _no_shots(self, count: int) -> None:
        if count != 0:
            raise ConfigError(
                f"task {self.task_name!r} measures whole texts: num_fewshot must be 0, not {count}."
            )

    def doc_to_decontamination_query(self, doc: Any) -> Any:
        return doc

    def doc_to_text(self, doc: Any) -> str:
        return ""

    def doc_to_target(self, doc: Any) -> Any:
        return doc

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Instance:
        return Instance(
            "loglikelihood_rolling", doc, (self.doc_to_target(doc),), 0, **_instance_fields(kwargs)
        )

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        (loglikelihood,) = results
        text = self.doc_to_target(doc)
        return documents.score_rolling(
            loglikelihood, self.count_words(text), self.count_bytes(text), self.aggregation()
        )

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        return {
            "word_perplexity": weighted_perplexity,
            "byte_perplexity": weighted_perplexity,
            "bits_per_byte": bits_per_byte,
        }

    def higher_is_better(self) -> dict[str, bool]:
        return dict.fromkeys(self.aggregation(), False)


_INSTANCE_FIELDS = {f.name for f in dataclasses.fields(Instance)}


def _instance_fields(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to the request among the keywords that `construct_requests` is called with."""
    return {k: v for k, v in kwargs.items() if k in _INSTANCE_FIELDS}
