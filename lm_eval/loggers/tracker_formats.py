"""Converts results and samples to the flat dictionaries and tables that trackers accept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.extras import install_command

#: Metrics whose value for a document is a pair: a log-likelihood, and the number of words or bytes
#: that it is divided by.
_PERPLEXITIES = {"word_perplexity": "words", "byte_perplexity": "bytes", "bits_per_byte": "bytes"}


def missing_package_error(package: str, extra: str) -> ConfigError:
    """Returns the error for a tracker whose package is not installed.

    `extra` is the extra of lm_eval that installs `package`; the option is called `--<extra>_args`.
    """
    return ConfigError(
        f"--{extra}_args needs the package {package}, which is not installed. Install it "
        f"with: {install_command(extra)}. Or remove the option."
    )


def flatten_rows(results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all values of all rows in one dictionary, under `<task>/<key of the row>`.

    The suffix `,none` of a key, which stands for no filter, is removed: `demo_choice/acc`. Values
    that are not numbers, such as the alias, are included. Empty if there are no rows.

    Of clean scores (`--decontaminate`), the numbers are included: `demo_choice/clean/acc`, with its
    standard error and the number of documents that were dropped, and the difference between the
    clean and the contaminated documents, `demo_choice/clean_minus_contaminated/acc`.
    """
    values = {
        f"{task}/{_short(key)}": value
        for task, row in results.get("results", {}).items()
        for key, value in row.items()
    }
    for task, row in results.get("decontaminated", {}).items():
        clean = {key: value for key, value in row.items() if isinstance(value, (int, float))}
        values |= {f"{task}/clean/{_short(key)}": value for key, value in clean.items()}
        values |= {
            f"{task}/clean_minus_contaminated/{_short(key)}": compared["difference"]
            for key, compared in row.get("difference", {}).items()
        }
    return values


def _short(key: str) -> str:
    return key.removesuffix(",none")


#: Columns of a table of scores, after the name of the task or group.
SCORE_COLUMNS = ("Version", "Filter", "num_fewshot", "Metric", "Value", "Stderr")


def score_table(results: Mapping[str, Any], key: str) -> Iterator[list[Any]]:
    """Yields one row per task, filter pipeline and metric: the name, then `SCORE_COLUMNS`.

    `key` is `results` for the tasks, without groups, `groups` for the groups, or `decontaminated`
    for the clean scores of both; `KeyError` is raised if the results have no such key. Value and
    standard error are text; the latter is "" if there is none. Version and number of examples are
    None if unknown.
    """
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
    """Returns the prompt of a sample and a readable text of the model's answer.

    The prompt is that of the first request. For `multiple_choice`, the text names the choice (from
    0) with the highest log-likelihood; for `loglikelihood`, the log-likelihood and whether it is
    greedy; otherwise it is the first filtered answer. It is "" if there is no answer.
    """
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
    """Returns the index (from 0) of the answer with the highest log-likelihood, the first if equal.

    Each answer is a pair (log-likelihood, is greedy). Raises `ValueError` if there are none.
    """
    values = [float(answer[0]) for answer in answers]
    return values.index(max(values))


def sample_table(
    samples: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """Returns the samples of a task as a dictionary of column name to values, one per sample.

    Columns are `id`, `data` (the prompt), `choices` (only for multiple choice), `input_len`
    (characters of the prompt), `labels` (the gold answers), `output_type`, `raw_predictions`,
    `filtered_predictions`, `contaminated` and `contamination_overlap` (only with
    `--decontaminate`), and one per metric of the first sample, or two for perplexities:
    log-likelihood and number of words or bytes. `config` is the task's configuration, of which
    `output_type` is read; the default is `generate_until`.
    """
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
    for name in contamination_of(samples[0]) if samples else ():
        columns[name] = [s[name] for s in samples]
    for metric in samples[0]["metrics"] if samples else ():
        values = [s.get(metric) for s in samples]
        if metric in _PERPLEXITIES:
            columns[f"{metric}_loglikelihood"] = [value[0] for value in values if value]
            columns[f"{metric}_{_PERPLEXITIES[metric]}"] = [value[1] for value in values if value]
        else:
            plain = all(isinstance(value, (int, float, bool)) for value in values)
            columns[metric] = values if plain else [str(value) for value in values]
    return columns


def contamination_of(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a sample says about its contamination; empty without `--decontaminate`."""
    names = ("contaminated", "contamination_overlap")
    return {name: sample[name] for name in names if name in sample}


def _prediction(answers: Sequence[Any], kind: str) -> str:
    """Returns the answers to the requests of a document as text. `kind` is the output type.

    For `multiple_choice` it is the index of the likeliest choice, for `loglikelihood` a sentence,
    otherwise the first answer.
    """
    if kind == "multiple_choice":
        return str(best_choice(answers))
    if kind == "loglikelihood":
        value, greedy = answers[0]
        return (
            f"log probability of continuation is {value} \n\ncontinuation will "
            f"{'be' if greedy else 'not be'} generated with greedy sampling"
        )
    return str(answers[0])
