"""The fields of a results file: name, type, meaning, and when a field is absent.

Every field is declared once, in the part that it belongs to, as
`Annotated[type, meaning, when it is absent]`; a field without the last text is always present.
`python -m lm_eval.results.json_schema` writes `results.schema.json` and the tables of
docs/results.md from these declarations.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

#: The number under `format`. It is raised when a field changes its meaning or is removed; a new
#: optional field does not raise it.
FORMAT = 1

#: One task's or group's row: the keys of `RowFields`, and `metric,filter` pairs.
Row = dict[str, Any]

#: Kinds of results, as docs/results.md explains them, that lack a field.
_NOT_ASKED = "partial, rescored"
_NO_RUN = "partial, evaluate"
_NO_MODEL = "partial, evaluate, rescored"
_NO_TOKENIZER = f"{_NO_MODEL}; where the model has no `tokenizer`"


class RowFields(TypedDict, total=False):
    """The keys of a row that are no scores."""

    name: Annotated[str, "name of the task or group"]
    alias: Annotated[str, "name shown in the table"]
    sample_len: Annotated[int, "number of documents scored", "in a group without joint scores"]
    sample_count: Annotated[
        dict[str, int],
        "by `metric,filter`, the number of documents that the score is taken over",
        "in a task where every document has a value for every metric; in a group without joint "
        "scores",
    ]


#: What the rows say, and what is needed to read them: the part that `summarise` returns.
Scores = TypedDict(
    "Scores",
    {
        "results": Annotated[
            dict[str, Row], "one row per task and per group, by name (see the keys of a row)"
        ],
        "group_subtasks": Annotated[
            dict[str, list[str]], "by group, the names of its tasks and groups"
        ],
        "configs": Annotated[
            dict[str, dict[str, Any]], "by task, its configuration; functions as source code"
        ],
        "versions": Annotated[dict[str, Any], "by task and group, `metadata.version`"],
        "n-shot": Annotated[
            dict[str, Any], "by task and group, the number of few-shot examples in a prompt"
        ],
        "higher_is_better": Annotated[
            dict[str, dict[str, bool | None]],
            "by task and group, then by metric; null where the tasks of a group disagree",
        ],
        "n-samples": Annotated[
            dict[str, dict[str, int]],
            "by task: documents in the split (`original`), documents scored (`effective`)",
        ],
    },
)


class OptionalScores(TypedDict, total=False):
    """Scores that not every run has."""

    groups: Annotated[
        dict[str, Row],
        "the rows of groups with joint scores, also found in `results`",
        "where no group has joint scores",
    ]
    extraction_failed: Annotated[
        dict[str, dict[str, int]],
        "by task, then by filter pipeline: documents in whose answers the filter found nothing",
        "where no task has a filter that extracts",
    ]
    clusters: Annotated[
        dict[str, dict[str, Any]],
        "by task: the column (`by`) that documents are clustered by for standard errors, and the "
        "number of clusters (`count`)",
        "where nothing is clustered",
    ]
    confidence: Annotated[
        float, "confidence level of `intervals`, such as 0.95", "without `--confidence`"
    ]
    intervals: Annotated[
        dict[str, dict[str, list[float]]],
        "by task and group, then by `metric,filter`: lower and upper end of the confidence "
        "interval",
        "without `--confidence`",
    ]


class Summary(Scores, OptionalScores, total=False):
    """What `summarise` returns. Samples are stored in files of their own, not with the results."""

    samples: dict[str, list[dict[str, Any]]]


class TaskInputs(TypedDict, total=False):
    """What the requests were made from."""

    datasets: Annotated[
        dict[str, dict[str, Any]],
        "by task: source, revision and fingerprint of its documents",
        _NOT_ASKED,
    ]
    hashes: Annotated[
        dict[str, dict[str, str]],
        "by task: hashes of its configuration, data, prompts and document numbers",
        _NOT_ASKED,
    ]


class RunStatistics(TypedDict, total=False):
    """What the run took: time, tokens, requests."""

    timings: Annotated[dict[str, float], "seconds by stage of the run", _NOT_ASKED]
    answers: Annotated[
        dict[str, int],
        "number of answers that the run needs, repeats counted (`requests`), and how many of them "
        "the model was asked for this time (`asked`); the others were stored",
        f"{_NOT_ASKED}; in a run that stores no answers",
    ]
    usage: Annotated[
        dict[str, int],
        "tokens read, written and shared; requests truncated and failed",
        f"{_NOT_ASKED}; where the model counts nothing",
    ]
    truncated_requests: Annotated[
        dict[str, int], "by task: requests that were truncated to fit the model", _NOT_ASKED
    ]
    failed_requests: Annotated[dict[str, int], "by task: requests that got no answer", _NOT_ASKED]


class RunDescription(TypedDict, total=False):
    """How the run was made: settings, model, software, hardware."""

    config: Annotated[
        dict[str, Any],
        "model, model arguments, batch size, limit and seeds, as the published harness stores them",
        _NO_RUN,
    ]
    date: Annotated[float, "start of the run, in seconds since 1970", _NO_MODEL]
    total_evaluation_time_seconds: Annotated[str, "duration of the run, as text", _NO_MODEL]
    model_source: Annotated[
        str, "backend: the value of `--model`; `CUSTOM` for a model object", _NO_RUN
    ]
    model_name: Annotated[
        str, "name of the weights; without one, the backend or the class", _NO_RUN
    ]
    model_name_sanitized: Annotated[str, "`model_name` as used in folder names", _NO_RUN]
    system_instruction: Annotated[
        str | None, "system message put before every prompt; null for none", _NO_RUN
    ]
    system_instruction_sha: Annotated[str | None, "its SHA-256 hash; null for none", _NO_MODEL]
    fewshot_as_multiturn: Annotated[
        bool | None, "whether few-shot examples are turns of a chat", _NO_RUN
    ]
    chat_template: Annotated[
        str | None, "text of the chat template; null if none was applied", _NO_MODEL
    ]
    chat_template_sha: Annotated[str | None, "its SHA-256 hash; null for none", _NO_MODEL]
    tokenizer_pad_token: Annotated[
        list[str | None], "the tokenizer's padding token and its number", _NO_TOKENIZER
    ]
    tokenizer_eos_token: Annotated[
        list[str | None], "the tokenizer's end token and its number", _NO_TOKENIZER
    ]
    tokenizer_bos_token: Annotated[
        list[str | None], "the tokenizer's start token and its number", _NO_TOKENIZER
    ]
    eot_token_id: Annotated[
        int | None, "number of the token that ends a text for the model", _NO_TOKENIZER
    ]
    max_length: Annotated[int | None, "most tokens that the model reads at once", _NO_TOKENIZER]
    lm_eval_version: Annotated[str, "version of this package that wrote the file", _NO_RUN]
    transformers_version: Annotated[str, "version of transformers; `N/A` for none", _NO_RUN]
    libraries: Annotated[dict[str, str], "versions of the libraries installed", _NO_RUN]
    hardware: Annotated[dict[str, Any], "processor, cores, memory, accelerators in use", _NO_RUN]
    pretty_env_info: Annotated[str, "Python, platform and libraries, as text", _NO_RUN]
    git_hash: Annotated[
        str | None, "commit of the working directory; null outside a repository", _NO_RUN
    ]
    upper_git_hash: Annotated[str | None, "commit of the directory above it", _NO_RUN]


class Reproduction(TypedDict, total=False):
    """What `lm-eval reproduce` needs to run this again."""

    settings: Annotated[
        dict[str, Any],
        "the settings that differ from the defaults, without secrets",
        f"{_NO_MODEL}; where the model was given as an object",
    ]
    directory: Annotated[
        str,
        "working directory of the command, for relative paths in `settings`",
        "where `settings` is",
    ]
    model_identity: Annotated[
        dict[str, Any],
        "what stored answers are found by: class, arguments, weights",
        "where `settings` is",
    ]


class EvalResults(
    Scores,
    OptionalScores,
    TaskInputs,
    RunStatistics,
    RunDescription,
    Reproduction,
    total=False,
):
    """Everything that an evaluation returns and a results file holds.

    `read_results` also returns files of the published harness, which lack some of the keys that
    are always present in ours, such as `format`.
    """

    format: Annotated[int, "version of this format, 1 today; optional new fields do not raise it"]
    task_hashes: Annotated[
        dict[str, str],
        "by task: one hash over all documents, prompts and targets; empty if no samples were kept",
    ]
    scored_from: Annotated[
        dict[str, Any],
        "the run folder or the sample logs that the answers were read from, with the hashes of "
        "that run",
        "in all but rescored results",
    ]
    samples: dict[str, list[dict[str, Any]]]
