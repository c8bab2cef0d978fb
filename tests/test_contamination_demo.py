"""Tests a scan of the demo model's training text for the documents of the demo tasks."""

from __future__ import annotations

import json
import random
import string
from collections import Counter
from pathlib import Path

import pytest

from lm_eval.contamination.queries import texts_of
from lm_eval.contamination.scan import ScanOptions, scan
from lm_eval.contamination.search import TaskSelection
from lm_eval.tasks import TaskManager
from tools.demo import overlap, world

DEMO = TaskSelection(("demo",))
TABLE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase, string.punctuation)


@pytest.fixture(scope="module")
def training_text() -> list[str]:
    index = overlap.Index(overlap.benchmark_texts())
    return overlap.clean(list(world.shard(7, count=1500)), index)


def write(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def ngrams(text: str) -> set[str]:
    words = text.translate(TABLE).split()
    n = min(13, len(words))
    return {" ".join(words[i : i + n]) for i in range(len(words) - n + 1)}


def test_the_training_text_of_the_demo_model_is_clean(
    training_text: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "train.jsonl", training_text)
    tasks = TaskManager().load(["demo"])["tasks"]
    found = scan(
        TaskSelection(("demo",)), [str(tmp_path / "train.jsonl")], tmp_path / "f", ScanOptions()
    )
    assert found.documents == {name: {} for name in tasks}
    assert found.header.corpus.files[0].records == len(training_text)


def test_exactly_the_documents_that_were_planted_are_found(
    training_text: list[str], tmp_path: Path
) -> None:
    tasks = TaskManager().load(["demo"])["tasks"]
    texts = {
        (name, number): " ".join(texts_of(task, doc))
        for name, task in tasks.items()
        for number, doc in enumerate(task.eval_docs)
    }
    # Documents whose n-grams no other document has: planting others would reveal several.
    owners = Counter(gram for text in texts.values() for gram in ngrams(text))
    alone = [key for key, text in texts.items() if all(owners[g] == 1 for g in ngrams(text))]
    draw = random.Random(30)
    planted = draw.sample(sorted(alone), 30)
    assert len({name for name, _ in planted}) > 2
    corpus = list(training_text)
    for key in planted:
        corpus[draw.randrange(len(corpus))] += f"\n\n{texts[key].upper()}"
    write(tmp_path / "train.jsonl", corpus)
    found = scan(
        TaskSelection(("demo",)), [str(tmp_path / "train.jsonl")], tmp_path / "f", ScanOptions()
    )
    contaminated = [(name, number) for name in tasks for number in found.contaminated(name)]
    assert sorted(contaminated) == sorted(planted)
    assert all(found.documents[n][i].with_answer.overlap == 1 for n, i in planted)
