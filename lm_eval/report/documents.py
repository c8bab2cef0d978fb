"""Documents as the page shows them, made of the samples of a run.

A sample log has one sample per document and filter pipeline; the page has one document with all of
its pipelines. Sample logs are untrusted input, so every field may be missing or of another type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.report.prompts import Segment, prompt_segments
from lm_eval.results.serialize import handle_non_serializable

Sample = Mapping[str, Any]

#: Keys of a sample that are shown in a place of their own, or not at all.
_KNOWN_KEYS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash", "thinking", "extraction_failed", "checksum"),
    *("contaminated", "length_stopped", "truncated"),
}
NO_ANSWER, LENGTH_STOPPED, TRUNCATED, CONTAMINATED = 1, 2, 4, 8


@dataclass
class Answered:
    """One document as one run answered it.

    Attributes:
        segments: the prompt, in pieces of which some are folded.
        choices: for log-likelihoods: text, log-likelihood, whether it is greedy, own context.
        best: index of the most likely choice.
        gold: indices of the right choices.
        text_score: log-likelihood of the whole text, for rolling log-likelihoods.
        answers: the generated answers, one per repeat.
        thoughts: the reasoning of each answer.
        filtered: for each filter pipeline, the filtered answers.
        values: for each `metric,filter`, the value of this document.
        flags: a sum of `NO_ANSWER`, `LENGTH_STOPPED`, `TRUNCATED` and `CONTAMINATED`.
        settings: the generation settings.
        others: further fields of the samples.
        hash: the hash of the document; empty if it is not known.
    """

    segments: Sequence[Segment]
    choices: list[tuple[str, float | None, bool | None, str | None]] = field(default_factory=list)
    best: int | None = None
    gold: list[int] = field(default_factory=list)
    text_score: float | None = None
    answers: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    filtered: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    flags: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    doc: Any = None
    target: str = ""
    hash: str = ""

    @property
    def confidence(self) -> float | None:
        """The probability of the most likely choice among all, or of the only continuation."""
        scores = [score for _, score, *_ in self.choices if score is not None]
        if not scores:
            return None
        if len(scores) == 1:
            return math.exp(min(scores[0], 0.0))
        best = max(scores)
        if math.isinf(best):
            return None
        return 1.0 / sum(math.exp(score - best) for score in scores)

    @property
    def margin(self) -> float | None:
        """The log-likelihood of the best choice minus that of the second; None without two."""
        scores = sorted((s for _, s, *_ in self.choices if s is not None), reverse=True)
        if len(scores) < 2 or math.isinf(scores[0]) or math.isinf(scores[1]):
            return None
        return scores[0] - scores[1]

    @property
    def length(self) -> int | None:
        """The number of characters of the first generated answer; None if there is none."""
        return len(self.answers[0]) if self.answers else None

    def to_json(self, shown: Sequence[Segment] | None) -> dict[str, Any]:
        """Returns the data of the page; empty fields are left out.

        `shown` is the prompt of another run that is shown anyway: the same prompt is left out.
        """
        content = {
            "p": None if self.segments == shown else [one.to_json() for one in self.segments],
            "c": self.choices,
            "b": self.best,
            "g": self.gold,
            "l": self.text_score,
            "a": self.answers,
            "h": self.thoughts if any(self.thoughts) else None,
            "f": self.filtered,
            "m": self.values,
            "x": self.flags,
            "s": self.settings,
            "e": self.others,
        }
        return {key: value for key, value in content.items() if value or value in (0.0,)}


def documents(samples: Iterable[Sample], config: Mapping[str, Any]) -> dict[Any, Answered]:
    """Returns the documents of a task by number, in the order of the samples.

    `config` is the configuration of the task, from which few-shot examples are recognized.
    """
    found: dict[Any, Answered] = {}
    for sample in samples:
        number = sample.get("doc_id")
        number = number if isinstance(number, (int, str)) else str(number)
        if number not in found:
            found[number] = _answered(sample, config)
        _add_pipeline(found[number], sample)
    return found


def _answered(sample: Sample, config: Mapping[str, Any]) -> Answered:
    """Returns a document from its first sample, without the values of a pipeline."""
    requests = [_list(given) for given in _list(sample.get("arguments"))]
    answers = [_list(given) for given in _list(sample.get("resps"))]
    contexts = [_text(given[0]) if given else "" for given in requests]
    doc = sample.get("doc")
    first = contexts[0] if contexts else ""
    made = Answered(
        prompt_segments(first, doc, config),
        doc=doc,
        target=_text(sample.get("target")),
        hash=str(sample.get("doc_hash") or "").strip("0"),
        thoughts=[_text(one) for given in _list(sample.get("thinking")) for one in _list(given)],
        others={
            str(key): value
            for key, value in sample.items()
            if key not in _KNOWN_KEYS and key not in _list(sample.get("metrics"))
        },
    )
    second = requests[0][1] if requests and len(requests[0]) > 1 else None
    if isinstance(second, str):
        _add_choices(made, requests, contexts, answers, sample.get("target"))
    elif isinstance(second, Mapping):
        made.settings = second
        made.answers = [_text(one) for given in answers for one in given]
    elif answers and answers[0]:
        made.text_score = _number(answers[0][0])
        if made.text_score is None:
            made.answers = [_text(one) for given in answers for one in given]
    return made


def _add_choices(
    made: Answered,
    requests: Sequence[Sequence[Any]],
    contexts: Sequence[str],
    answers: Sequence[Sequence[Any]],
    target: Any,
) -> None:
    """Adds the choices of a log-likelihood task, the most likely and the right ones."""
    # Requests without a context are those of `acc_mutual_info`.
    conditional = [i for i, one in enumerate(contexts) if one] or list(range(len(contexts)))
    for i in conditional:
        answer = answers[i][0] if i < len(answers) and answers[i] else None
        score, greedy = [*_list(answer), None, None][:2]
        own = contexts[i] if contexts[i] != contexts[0] else None
        made.choices.append(
            (
                _text(requests[i][1]) if len(requests[i]) > 1 else "",
                _number(score),
                None if greedy is None else str(greedy) == "True",
                own,
            )
        )
    scored = [(one[1], -i) for i, one in enumerate(made.choices) if one[1] is not None]
    made.best = -max(scored)[1] if scored else None
    if len(made.choices) > 1:
        texts = [one[0].strip() for one in made.choices]
        for one in _targets(target):
            if isinstance(one, int) and 0 <= one < len(texts):
                made.gold.append(one)
            elif str(one).strip() in texts:
                made.gold.append(texts.index(str(one).strip()))
    elif made.choices:
        made.gold = [0]


def _targets(target: Any) -> list[Any]:
    """Returns the gold answers in a target, which older logs have as text: `1`, `[0, 2]`, `A`."""
    if isinstance(target, str):
        try:
            target = json.loads(target)
        except (ValueError, RecursionError):
            return [target]
    return target if isinstance(target, list) else [target]


def _add_pipeline(made: Answered, sample: Sample) -> None:
    """Adds the filtered answers, values and flags of one sample."""
    pipeline = str(sample.get("filter") or "none")
    if made.answers:
        made.filtered[pipeline] = [
            _text(one[0] if isinstance(one, list) and len(one) == 1 else one)
            for one in _list(sample.get("filtered_resps"))
        ]
    names = sample.get("metrics")
    if not isinstance(names, list):  # logs before 0.4.5 do not say which fields are metrics
        names = [k for k, v in sample.items() if k not in _KNOWN_KEYS and isinstance(v, float)]
    for name in names:
        if isinstance(name, str) and name in sample:
            made.values[f"{name},{pipeline}"] = _shown(sample[name])
            made.others.pop(str(name), None)
    if sample.get("extraction_failed") is True or (made.answers and not any(made.answers)):
        made.flags |= NO_ANSWER
    if _any_true(sample.get("length_stopped")):
        made.flags |= LENGTH_STOPPED
    if _any_true(sample.get("truncated")):
        made.flags |= TRUNCATED
    if sample.get("contaminated") is True:
        made.flags |= CONTAMINATED


def _any_true(value: Any) -> bool:
    """Returns whether a flag is set; it is one value, a count, or a list with one per answer."""
    if isinstance(value, list):
        return any(_any_true(one) for one in value)
    return isinstance(value, (bool, int)) and bool(value)


def _shown(value: Any) -> Any:
    """Returns the value of a metric as JSON data: numbers stay, anything else becomes text."""
    if isinstance(value, bool) or value is None:
        return value
    number = _number(value) if not isinstance(value, (list, tuple)) else None
    return _text(value) if number is None else number


def _number(value: Any) -> float | None:
    """Returns a number, also one that a log has as text; None if it is not one or nan."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _list(value: Any) -> list[Any]:
    """Returns a list or tuple as a list, None as an empty one, another value as its element."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _text(value: Any) -> str:
    """Returns a value as text: strings as they are, anything else as JSON."""
    if isinstance(value, str):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=handle_non_serializable)
