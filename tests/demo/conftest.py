"""Fixtures for the tests of the demo model: the repository's tools, the model and requests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.demo import DemoLM  # noqa: E402
from lm_eval.models.demo.llama import Llama  # noqa: E402
from lm_eval.models.demo.model import WEIGHTS  # noqa: E402

DATA = ROOT / "lm_eval" / "tasks" / "demo" / "data"


def instance(kind: str, *arguments: Any) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)  # type: ignore[arg-type]


def documents(name: str) -> list[dict[str, Any]]:
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def choice_requests(docs: list[dict[str, Any]]) -> list[Instance]:
    return [
        instance(
            "loglikelihood", f"{doc['scene']}\nQuestion: {doc['question']}\nAnswer:", f" {choice}"
        )
        for doc in docs
        for choice in doc["choices"]
    ]


def pair_requests(docs: list[dict[str, Any]]) -> list[Instance]:
    return [instance("loglikelihood", "", doc[key]) for doc in docs for key in ("good", "bad")]


def word_requests(docs: list[dict[str, Any]]) -> list[Instance]:
    return [instance("loglikelihood", doc["context"], f" {doc['word']}") for doc in docs]


def story_requests(docs: list[dict[str, Any]]) -> list[Instance]:
    return [instance("loglikelihood_rolling", doc["text"]) for doc in docs]


def sum_requests(docs: list[dict[str, Any]], settings: dict[str, Any]) -> list[Instance]:
    shown = "".join(
        f"Q: {doc['question']}\nA: {doc['working']}\n\n" for doc in documents("sums_fewshot")[:2]
    )
    return [
        instance("generate_until", f"{shown}Q: {doc['question']}\nA:", settings) for doc in docs
    ]


@pytest.fixture(scope="session")
def llama() -> Llama:
    return Llama(WEIGHTS)


@pytest.fixture(scope="session")
def demo() -> DemoLM:
    return DemoLM()
