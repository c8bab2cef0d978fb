"""Small tasks, a model whose right answers a test chooses, and stored runs of both."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.cli import main
from tests.conftest import Folder

STAMP = "2025-03-04T05-06-07.890123"
DOCUMENTS = 10

CHOICE = """\
task: numbers
dataset_path: json
dataset_kwargs:
  data_files: {test: numbers.jsonl}
test_split: test
fewshot_split: test
output_type: multiple_choice
doc_to_text: "Question {{number}}:"
doc_to_choice: ["no", "yes"]
doc_to_target: 1
metric_list:
  - metric: acc
metadata:
  version: 1.0
"""
TEXT = """\
task: words
dataset_path: json
dataset_kwargs:
  data_files: {test: numbers.jsonl}
test_split: test
output_type: generate_until
doc_to_text: "Question {{number}}:"
doc_to_target: "yes it is right"
generation_kwargs: {until: ["."], max_gen_toks: 5}
metric_list:
  - metric: exact_match
  - metric: bleu
metadata:
  version: 1.0
"""
ROLLING = """\
task: stories
dataset_path: json
dataset_kwargs:
  data_files: {test: numbers.jsonl}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "Question {{number}}: yes"
metric_list:
  - metric: word_perplexity
metadata:
  version: 1.0
"""


@register_model("chosen_answers")
class ChosenAnswers(LM):
    """Answers the questions with the numbers in `right` correctly, and the others wrongly."""

    stand_in = True

    def __init__(self, right: str = "", pretrained: str = "a/b", **_: Any) -> None:
        super().__init__()
        self._right = {int(number) for number in str(right).split(";") if number}

    def _is_right(self, text: str) -> bool:
        return int(text.rpartition("Question ")[2].partition(":")[0]) in self._right

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [
            (-2.0 if one.args[1] == " no" else -1.0 if self._is_right(one.args[0]) else -3.0, False)
            for one in requests
        ]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [-3.0 if self._is_right(one.args[0]) else -6.0 for one in requests]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [
            "yes it is right" if self._is_right(one.args[0]) else "no it is left"
            for one in requests
        ]


def write_tasks(folder: Folder) -> None:
    """Writes the tasks `numbers`, `passages` (in clusters), `few`, `words`, `stories`, 2 groups."""
    rows = [{"number": i, "passage": i // 2} for i in range(DOCUMENTS)]
    folder.rows("numbers.jsonl", rows)
    folder.rows("few.jsonl", rows[:4])
    folder.write("numbers.yaml", CHOICE)
    passages = CHOICE.replace("numbers\n", "passages\n") + "cluster: passage\n"
    folder.write("passages.yaml", passages.replace("acc\n", "acc\n  - metric: f1\n"))
    folder.write(
        "few.yaml",
        CHOICE.replace("task: numbers", "task: few").replace("numbers.jsonl", "few.jsonl"),
    )
    folder.write("words.yaml", TEXT)
    folder.write("stories.yaml", ROLLING)
    for name, by_size in (("by_size", "true"), ("by_task", "false")):
        folder.write(
            f"{name}.yaml",
            f"group: {name}\ntask: [numbers, few]\n"
            f"aggregate_metric_list: [{{metric: acc, weight_by_size: {by_size}}}]\n",
        )


def right(numbers: Iterable[int]) -> str:
    """Returns model arguments with the numbers of the questions to answer correctly."""
    return "right=" + ";".join(map(str, numbers))


def run(tasks: Folder, name: str, numbers: Iterable[int], names: str, *words: str) -> Path:
    """Stores a run of the model that answers some questions correctly; returns its folder."""
    out = tasks.path / "runs" / name
    arguments = f"{right(numbers)},pretrained=org/{name}"
    command = ["run", "--model", "chosen_answers", "--model_args", arguments, "--tasks", names]
    command += ["--include_path", str(tasks.path), "-o", str(out), "--bootstrap_iters", "0"]
    assert main([*command, *words]) == 0
    return out


def sample(number: int, correct: bool, form: str) -> dict[str, Any]:
    """Returns a sample of `numbers` as a version of the published harness writes it."""
    prompt = f"Question {number}:"
    pairs: Any = [[prompt, " no"], [prompt, " yes"]]
    resps: Any = [[[-2.0, False]], [[-1.0 if correct else -3.0, False]]]
    if form not in ("0.4.0", "0.4.2"):
        pairs = {
            f"gen_args_{i}": {f"arg_{j}": part for j, part in enumerate(one)}
            for i, one in enumerate(pairs)
        }
        resps = [[[str(part) for part in one[0]]] for one in resps]
    written: dict[str, Any] = {
        "doc_id": number,
        "doc": {"number": number, "passage": number // 2},
        "target": "1",
        "arguments": pairs,
        "resps": resps,
        "filtered_resps": [one[0] for one in resps],
        "acc": float(correct),
    }
    if form not in ("0.4.0", "0.4.2"):
        written |= {"doc_hash": "0" * 64, "prompt_hash": "0" * 64, "target_hash": "0" * 64}
    if form == "0.4.13":
        written |= {"filter": "none", "metrics": ["acc"]}
    return written


def published_logs(folder: Path, numbers: Iterable[int], form: str, **more: Any) -> Path:
    """Writes the results and the log of `numbers` as a version of the published harness does."""
    folder.mkdir(parents=True)
    correct = set(numbers)
    samples = [sample(i, i in correct, form) for i in range(DOCUMENTS)]
    arguments = f"pretrained=org/{folder.name}"
    content = {
        "results": {"numbers": {"acc,none": len(correct) / DOCUMENTS}},
        "configs": {"numbers": {"task": "numbers"}},
        "versions": {"numbers": 1.0},
        "n-shot": {"numbers": 0},
        "config": {"model": "hf", "model_args": arguments},
        **more,
    }
    if form in ("0.4.0", "0.4.2"):
        log = folder / f"pretrained__org__{folder.name}_numbers.jsonl"
        log.write_text(json.dumps(samples, indent=2))
        (folder / "results.json").write_text(json.dumps(content))
        return folder
    text = "".join(json.dumps(one) + "\n" for one in samples)
    (folder / f"samples_numbers_{STAMP}.jsonl").write_text(text)
    (folder / f"results_{STAMP}.json").write_text(json.dumps(content))
    return folder
