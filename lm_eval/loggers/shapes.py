"""Results and samples in the flat shapes that trackers take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval.errors import ConfigError

#: Metrics whose value of a document is a log-likelihood and what it is divided by.
_PERPLEXITIES = {"word_perplexity": "words", "byte_perplexity": "bytes", "bits_per_byte": "bytes"}


def missing(package: str, extra: str) -> ConfigError:
    return ConfigError(
        f"{package} is not installed, and --{extra}_args asks for it: "
        f'pip install "lm_eval[{extra}]", or run without.'
    )


def flat(results: Mapping[str, Any]) -> dict[str, Any]:
    """`task/metric` for every pair of every row; the filter is named unless it is `none`."""
    return {
        f"{task}/{key.removesuffix(',none')}": value
        for task, row in results.get("results", {}).items()
        for key, value in row.items()
    }


TABLE = ("Version", "Filter", "num_fewshot", "Metric", "Value", "Stderr")


def table(results: Mapping[str, Any], key: str) -> Iterator[list[Any]]:
    """The rows of a table of tasks (`results`) or groups: name, then the columns of `TABLE`."""
    groups = results.get("groups", {})
    for name, row in results[key].items():
        if key == "results" and name in groups:
            continue
        version = results.get("versions", {}).get(name)
        shots = results.get("n-shot", {}).get(name)
        for pair, value in row.items():
            metric, comma, pipeline = pair.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            error = row.get(f"{metric}_stderr,{pipeline}", "")
            shown = f"{error:.4f}" if isinstance(error, float) else str(error)
            yield [name, version, pipeline, shots, metric, str(value), shown]


def prompt_and_answer(sample: Mapping[str, Any], output_type: str) -> tuple[str, str]:
    """What a reader wants to see of a sample: the prompt, and the answer in words."""
    arguments, answers = sample["arguments"], sample["filtered_resps"]
    prompt = str(arguments[0][0]) if arguments and arguments[0] else ""
    if not answers:
        return prompt, ""
    if output_type == "multiple_choice":
        return prompt, f"selected choice {best_choice(answers)}"
    if output_type == "loglikelihood":
        value, greedy = answers[0]
        return prompt, f"continuation log-prob: {value}\n\ngreedy={bool(greedy)}"
    return prompt, str(answers[0])


def best_choice(answers: Sequence[Any]) -> int:
    values = [float(answer[0]) for answer in answers]
    return values.index(max(values))


def sample_table(
    samples: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """A task's samples as columns."""
    kind = config.get("output_type", "generate_until")
    columns: dict[str, list[Any]] = {
        "id": [s["doc_id"] for s in samples],
        "data": [str(s["arguments"][0][0]) for s in samples],
    }
    if kind == "multiple_choice":
        columns["choices"] = [
            "\n".join(f"{i}. {given[1]}" for i, given in enumerate(s["arguments"])) for s in samples
        ]
    labels = [s["arguments"][0][1] if kind == "loglikelihood" else s["target"] for s in samples]
    columns |= {
        "input_len": [len(text) for text in columns["data"]],
        "labels": [str(label) for label in labels],
        "output_type": [kind] * len(samples),
        "raw_predictions": [_prediction([r[0] for r in s["resps"]], kind) for s in samples],
        "filtered_predictions": [_prediction(s["filtered_resps"], kind) for s in samples],
    }
    for metric in samples[0]["metrics"] if samples else ():
        values = [s.get(metric) for s in samples]
        if metric in _PERPLEXITIES:
            columns[f"{metric}_loglikelihood"] = [value[0] for value in values if value]
            columns[f"{metric}_{_PERPLEXITIES[metric]}"] = [value[1] for value in values if value]
        else:
            plain = all(isinstance(value, (int, float, bool)) for value in values)
            columns[metric] = values if plain else [str(value) for value in values]
    return columns


def _prediction(answers: Sequence[Any], kind: str) -> str:
    if kind == "multiple_choice":
        return str(best_choice(answers))
    if kind == "loglikelihood":
        value, greedy = answers[0]
        return (
            f"log probability of continuation is {value} \n\ncontinuation will "
            f"{'be' if greedy else 'not be'} generated with greedy sampling"
        )
    return str(answers[0])
