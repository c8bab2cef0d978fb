"""The documents of all runs of a task side by side, with columns to filter and sort them by."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.redaction import SHORTEST_IN_DATA, known_redactor
from lm_eval.report.chunks import json_text, line_chunks
from lm_eval.report.distributions import distribution, judging_keys, status_of
from lm_eval.report.documents import Answered, documents
from lm_eval.report.inputs import ReportRun

#: Characters of a document that the list of samples shows.
_SNIPPET = 160
#: The seed of `--samples N`.
_SEED = 1234


@dataclass(frozen=True)
class Selection:
    """Which documents of each task a report contains.

    Attributes:
        rule: `all`, `wrong` (in at least one run), `flips` (right in one run, wrong in another), or
            `random`.
        count: the number of documents per task, if they are chosen at random.
    """

    rule: str = "all"
    count: int = 0

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Returns the selection that `--samples` names; raises `ConfigError` if there is none."""
        if text in ("all", "wrong", "flips"):
            return cls(text)
        if text.isdecimal():
            return cls("random", int(text))
        raise ConfigError(f"--samples must be all, wrong, flips or a number, not {text!r}.")

    def describe(self) -> str:
        """Returns which documents are shown, in words; empty if all are."""
        return {
            "wrong": "those that at least one run answered wrongly (--samples wrong)",
            "flips": "those that one run answers correctly and another does not (--samples flips)",
            "random": f"up to {self.count} random ones of each task (--samples {self.count})",
        }.get(self.rule, "")


@dataclass(frozen=True)
class TaskSamples:
    """The documents of one task.

    Attributes:
        summary: what the page shows before it unpacks anything: counts, plots, chunks.
        index: the columns of the documents.
        chunks: the compressed documents, a JSON object per line.
    """

    summary: dict[str, Any]
    index: dict[str, Any]
    chunks: list[str]


def task_samples(
    task: str, runs: Sequence[ReportRun], selection: Selection
) -> tuple[TaskSamples | None, list[str]]:
    """Returns the documents of a task, and notes; None if no run has any."""
    answered = [
        documents(run.samples(task), _config(run.results, task)) if task in run.tasks else {}
        for run in runs
    ]
    if not any(answered):
        empty = any(task in run.logs for run in runs) and not any(run.notes for run in runs)
        return None, [f"{task}: the sample log has no samples."] if empty else []
    lower = {
        metric
        for run in runs
        for metric, higher in _table(run.results.get("higher_is_better"), task).items()
        if higher is False
    }
    keys = judging_keys((one for found in answered for one in found.values()), lower)
    key = keys[0] if keys else None
    numbers = list(dict.fromkeys(number for found in answered for number in found))
    rows = [(number, [found.get(number) for found in answered]) for number in numbers]
    notes = []
    if changed := sum(_differ(both) for _, both in rows):
        notes.append(f"{task}: {changed} documents have the same number in two runs but differ.")
    shown = [row for row in rows if _is_chosen(row[1], keys, selection.rule)]
    if selection.rule == "random" and len(shown) > selection.count:
        chosen = sorted(random.Random(_SEED).sample(range(len(shown)), selection.count))
        shown = [shown[i] for i in chosen]
    made = list(line_chunks(_lines(shown)))
    summary = {
        "name": task,
        "keys": keys,
        "total": len(rows),
        "shown": len(shown),
        "chunks": [count for count, _ in made],
        "plots": [distribution(list(found.values()), key) if found else None for found in answered],
    }
    index = _index(shown, keys, len(runs))
    return TaskSamples(summary, index, [text for _, text in made]), notes


def _lines(rows: Sequence[tuple[Any, Sequence[Answered | None]]]) -> Iterator[str]:
    hidden = known_redactor(SHORTEST_IN_DATA)
    for number, both in rows:
        first = next(one for one in both if one is not None)
        shown = first.segments
        line = json_text(
            {
                "i": number,
                "d": first.doc,
                "t": first.target,
                "r": [
                    None if one is None else one.to_json(None if one is first else shown)
                    for one in both
                ],
            }
        )
        yield hidden.text(line)


def _index(
    rows: Sequence[tuple[Any, Sequence[Answered | None]]], keys: Sequence[str], runs: int
) -> dict[str, Any]:
    """Returns the columns of the documents: one list per run where runs differ."""
    columns: dict[str, list[list[Any]]] = {
        name: [[] for _ in range(runs)] for name in ("confidence", "margin", "length", "flags")
    }
    for _, both in rows:
        for place, one in enumerate(both):
            columns["confidence"][place].append(_rounded(None if one is None else one.confidence))
            columns["margin"][place].append(_rounded(None if one is None else one.margin))
            columns["length"][place].append(None if one is None else one.length)
            columns["flags"][place].append(0 if one is None else one.flags)
    return {
        "ids": [number for number, _ in rows],
        "snippets": [_snippet(both) for _, both in rows],
        "status": {
            key: ["".join(_status(both[i], key) for _, both in rows) for i in range(runs)]
            for key in keys
        },
        **columns,
    }


def _status(one: Answered | None, key: str) -> str:
    return "-" if one is None else status_of(one.values.get(key))


def _is_chosen(both: Sequence[Answered | None], keys: Sequence[str], rule: str) -> bool:
    """Returns whether a document is shown; under a rule, any of the `keys` may decide."""
    if rule not in ("wrong", "flips"):
        return True
    for key in keys:
        found = {status_of(one.values.get(key)) for one in both if one is not None} - {"-"}
        if rule == "wrong" and found & {"0", "p"}:
            return True
        if rule == "flips" and len(found) > 1:
            return True
    return False


def _differ(both: Sequence[Answered | None]) -> bool:
    return len({one.hash for one in both if one is not None and one.hash}) > 1


def _snippet(both: Sequence[Answered | None]) -> str:
    """Returns the beginning of the question on one line; without a prompt, that of the choices."""
    first = next(one for one in both if one is not None)
    question = (one.text for one in first.segments if not one.folded and one.text.strip())
    choices = " / ".join(text[:_SNIPPET].strip() for text, *_ in first.choices[:4])
    text = next(question, choices or first.target)
    return re.sub(r"\s+", " ", text[: 4 * _SNIPPET]).strip()[:_SNIPPET]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _config(results: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Returns the configuration of a task, with the number of few-shot examples in prompts."""
    config = dict(_table(results.get("configs"), task))
    shots = results.get("n-shot")
    if isinstance(shots, Mapping) and shots.get(task) is not None:
        config["num_fewshot"] = shots[task]
    return config


def _table(content: Any, key: str) -> Mapping[str, Any]:
    found = content.get(key) if isinstance(content, Mapping) else None
    return found if isinstance(found, Mapping) else {}
