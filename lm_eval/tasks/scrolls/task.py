"""SCROLLS: questions about, and summaries of, texts of several thousand words.

These tasks are Python classes, because rows with the same id are merged into one document, and
because in Qasper the kind of request depends on the document.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.data import load_splits
from lm_eval.errors import ConfigError, DataError
from lm_eval.helpers.squad import compute_f1, normalize_answer
from lm_eval.tasks.configurable import ConfigurableTask

Doc = dict[str, Any]
Answers = Sequence[tuple[str, Sequence[str]]]


def f1_percent(items: Answers) -> float:
    """Returns the mean F1 in percent over (answer, references); the best reference counts."""
    return 100 * mean([max(compute_f1(gold, answer) for gold in golds) for answer, golds in items])


@functools.cache
def _rouge() -> Any:
    """Returns the ROUGE scorer. Raises ConfigError if rouge_score is not installed."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise ConfigError(
            "the summary tasks of SCROLLS need the package rouge_score, which is not installed. "
            "Install it with: pip install -e '.[rouge]' in the checkout of lm_eval."
        ) from error
    return RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)


def rouge_percent(kind: str, items: Answers) -> float:
    """Returns the mean ROUGE F1 in percent; of several references, the most similar counts.

    `kind` is "rouge1", "rouge2" or "rougeL"; `items` are (answer, references).
    """
    return 100 * mean(
        [
            max(_rouge().score(gold, answer)[kind].fmeasure for gold in golds)
            for answer, golds in items
        ]
    )


class Scrolls(ConfigurableTask):
    """Base class of the seven tasks: questions about a text, answered freely and scored by F1.

    In the dataset, the question comes before the text, separated from it by an empty line.
    """

    VERSION = 2
    DATASET_PATH = "tau/scrolls"

    def __init__(self, config: Doc | None = None) -> None:
        super().__init__(config={"metadata": {"version": self.VERSION}, **(config or {})})

    def download(self, *args: Any, **kwargs: Any) -> None:
        """Loads the dataset from a mirror, else the zipped JSON files in its hub repository."""
        from datasets import Dataset

        name = self.DATASET_NAME
        try:
            splits: Any = load_splits(self.DATASET_PATH, name)
        except DataError:
            url = f"https://huggingface.co/datasets/{self.DATASET_PATH}/resolve/main/{name}.zip"
            files = {s: f"zip://{name}/{s}.jsonl::{url}" for s in ("train", "validation")}
            splits = load_splits("json", data_files=files)
        self.dataset = {
            split: Dataset.from_list([self.prepared(doc) for doc in _merge_by_id(splits[split])])
            for split in ("train", "validation")
        }

    def prepared(self, doc: Doc) -> Doc:
        """Returns the document with the fields that prompts are made of: `question` and `text`."""
        question, _, text = doc["input"].partition("\n\n")
        return {**doc, "question": question, "text": text}

    def has_training_docs(self) -> bool:
        return True

    def has_validation_docs(self) -> bool:
        return True

    def has_test_docs(self) -> bool:
        return False

    def training_docs(self) -> Any:
        return self.dataset["train"]

    def validation_docs(self) -> Any:
        return self.dataset["validation"]

    def should_decontaminate(self) -> bool:
        return True

    def doc_to_decontamination_query(self, doc: Doc) -> Any:
        return doc["input"]

    def doc_to_text(self, doc: Doc, doc_to_text: Any = None) -> str:
        return f"{doc['text']}\n\nQuestion: {doc['question']}\nAnswer:"

    def doc_to_target(self, doc: Doc, doc_to_target: Any = None) -> str:
        return " " + ", ".join(doc["outputs"])

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        in_chat = kwargs.pop("apply_chat_template", False)
        kwargs.pop("chat_template", None)
        choices = self.choices(doc)
        if not choices:
            return Instance("generate_until", doc, (ctx, {"until": ["\n"]}), 0, **kwargs)
        return [
            Instance("loglikelihood", doc, (ctx, c if in_chat else f" {c}"), number, **kwargs)
            for number, c in enumerate(choices)
        ]

    def choices(self, doc: Doc) -> list[str]:
        """Returns the choices that are ranked by log-likelihood; empty if text is generated."""
        return []

    def process_results(self, doc: Doc, results: Any) -> Doc:
        return dict.fromkeys(self.aggregation(), (results[0], doc["outputs"]))

    def aggregation(self) -> dict[str, Callable[..., float]]:
        return {"f1": f1_percent}

    def higher_is_better(self) -> dict[str, bool]:
        return dict.fromkeys(self.aggregation(), True)


def _merge_by_id(rows: Any) -> list[Doc]:
    """Merges the rows of each id into one document, whose `outputs` are all of their answers."""
    found: dict[Any, Doc] = {}
    for row in rows:
        doc = {key: value for key, value in row.items() if key != "output"}
        found.setdefault(row["id"], {**doc, "outputs": []})["outputs"].append(row["output"])
    return list(found.values())


class Choice(Scrolls):
    """A task whose documents have `choices` and the index `gold` of the correct one."""

    def choices(self, doc: Doc) -> list[str]:
        return list(doc["choices"])

    def process_results(self, doc: Doc, results: Any) -> Doc:
        scores = np.array([score for score, _ in results])
        lengths = np.array([len(choice) for choice in doc["choices"]], dtype=float)
        by_length = float(np.argmax(scores / lengths) == doc["gold"])
        return {
            "acc": float(np.argmax(scores) == doc["gold"]),
            "acc_norm": by_length,
            "em": 100 * by_length,
        }

    def aggregation(self) -> dict[str, Callable[..., float]]:
        return {"em": mean, "acc": mean, "acc_norm": mean}


class Summary(Scrolls):
    """A task without a question: the model summarizes the whole input. Scored by ROUGE."""

    def __init__(self, config: Doc | None = None) -> None:
        _rouge()  # fail now if its package is missing, not after hours of generation
        super().__init__(config)

    def prepared(self, doc: Doc) -> Doc:
        return doc

    def doc_to_text(self, doc: Doc, doc_to_text: Any = None) -> str:
        return f"{doc['input']}\n\nQuestion: What is a summary of the preceding text?\nAnswer:"

    def aggregation(self) -> dict[str, Callable[..., float]]:
        kinds = ("rouge1", "rouge2", "rougeL")
        return {kind: functools.partial(rouge_percent, kind) for kind in kinds}


class Qasper(Scrolls):
    """Questions about research papers (Dasigi et al. 2021, <https://arxiv.org/abs/2105.03011>).

    Yes-no questions are multiple choice; others are answered freely.
    """

    DATASET_NAME = "qasper"

    def choices(self, doc: Doc) -> list[str]:
        yes_no = all(normalize_answer(answer) in ("yes", "no") for answer in doc["outputs"])
        return ["yes", "no"] if yes_no else []

    def process_results(self, doc: Doc, results: Any) -> Doc:
        if self.choices(doc):
            answer = " yes" if results[0] > results[1] else " no"
        else:
            answer = results[0] if results[0].strip() else "Unanswerable"
        return {"f1": (answer, doc["outputs"])}


class QuALITY(Choice):
    """Multiple-choice questions about stories (Pang et al. 2021, <https://arxiv.org/abs/2112.08608>)."""

    DATASET_NAME = "quality"

    def prepared(self, doc: Doc) -> Doc:
        doc = super().prepared(doc)
        end = doc["text"].find("\n\n", doc["text"].find("(D)"))
        options = re.split(r" *\([A-D]\) *", doc["text"][:end])[1:]
        choices = [" ".join(option.split()) for option in options]
        gold = choices.index(" ".join(doc["outputs"][0].split()))
        return {**doc, "text": doc["text"][end:].strip(), "choices": choices, "gold": gold}


class NarrativeQA(Scrolls):
    """Questions about books and film scripts (Kočiský et al. 2017, <https://arxiv.org/abs/1712.07040>)."""

    DATASET_NAME = "narrative_qa"


class ContractNLI(Choice):
    """Natural language inference on contracts (Koreeda and Manning 2021, <https://arxiv.org/abs/2110.01799>)."""

    DATASET_NAME = "contract_nli"
    CHOICES = ("Not mentioned", "Entailment", "Contradiction")

    def prepared(self, doc: Doc) -> Doc:
        gold = self.CHOICES.index(doc["outputs"][0])
        return {**super().prepared(doc), "choices": list(self.CHOICES), "gold": gold}

    def doc_to_text(self, doc: Doc, doc_to_text: Any = None) -> str:
        return f"{doc['text']}\n\nHypothesis: {doc['question']}\nConclusion:"


class GovReport(Summary):
    """Summaries of government reports (Huang et al. 2021, <https://arxiv.org/abs/2104.02112>)."""

    DATASET_NAME = "gov_report"


class SummScreenFD(Summary):
    """Summaries of TV show episodes (Chen et al. 2021, <https://arxiv.org/abs/2104.07091>)."""

    DATASET_NAME = "summ_screen_fd"


class QMSum(Summary):
    """Summaries of meetings that answer a question (Zhong et al. 2021, <https://arxiv.org/abs/2104.05938>)."""

    DATASET_NAME = "qmsum"

    prepared = Scrolls.prepared
    doc_to_text = Scrolls.doc_to_text
