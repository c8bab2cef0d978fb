"""Declares the fields of a results file: name, type, meaning, and when a field is absent.

Every field is declared once, in the part (TypedDict) that it belongs to, as
`Annotated[type, meaning, when it is absent]`. A field without the last item is always present.
`python -m lm_eval.results.json_schema` writes `results.schema.json` and the tables of
docs/results.md from these declarations.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

#: The value of the field `format`. Increase it when a field changes its meaning or is removed, but
#: not for a new optional field.
FORMAT = 1

#: The row of a task or group: the keys of `RowFields`, and scores under `metric,filter`.
Row = dict[str, Any]

#: Kinds of results in which a field is absent. docs/results.md explains their names.
_NO_REQUESTS = "partial, rescored"
_NO_RUN = "partial, evaluate"
_NO_MODEL = "partial, evaluate, rescored"
_NO_TOKENIZER = f"{_NO_MODEL}; if the model has no `tokenizer`"


class RowFields(TypedDict, total=False):
    """The keys of a row (the entry of a task or group in `results`) that are not scores."""

    name: Annotated[str, "name of the task or group"]
    alias: Annotated[str, "name shown in the table"]
    sample_len: Annotated[int, "number of documents scored", "in a group without aggregated scores"]
    sample_count: Annotated[
        dict[str, int],
        "for each `metric,filter`: number of documents that the score was computed from",
        "in a task where every document has a value for every metric; in a group without "
        "aggregated scores",
    ]


class CleanRowFields(TypedDict, total=False):
    """The keys of a row of `decontaminated` that are not scores."""

    name: Annotated[str, "name of the task or group"]
    alias: Annotated[str, "name shown in the table"]
    sample_len: Annotated[int, "number of clean documents"]
    dropped: Annotated[int, "number of contaminated documents, which were left out"]
    sample_count: Annotated[
        dict[str, int],
        "for each `metric,filter`: number of documents that the clean score was computed from",
        "in a task where every clean document has a value for every metric",
    ]
    difference: Annotated[
        dict[str, dict[str, Any]],
        "for each `metric,filter`: clean score minus score of the contaminated documents "
        "(`difference`), its standard error (`stderr`, or `N/A`) and confidence `interval`; and "
        "the score of the contaminated documents (`contaminated`)",
        "if there are no contaminated or no clean documents",
    ]


#: The scores, and what a reader needs to interpret them. `summarize` returns this part.
Scores = TypedDict(
    "Scores",
    {
        "results": Annotated[
            dict[str, Row], "one row per task and per group, under its name (see the keys of a row)"
        ],
        "group_subtasks": Annotated[
            dict[str, list[str]], "for each group: names of its tasks and subgroups"
        ],
        "configs": Annotated[
            dict[str, dict[str, Any]],
            "for each task: its configuration; functions are stored as source code",
        ],
        "versions": Annotated[
            dict[str, Any], "for each task and group: its version (`metadata.version`)"
        ],
        "n-shot": Annotated[
            dict[str, Any], "for each task and group: number of few-shot examples in a prompt"
        ],
        "higher_is_better": Annotated[
            dict[str, dict[str, bool | None]],
            "for each task and group, and each metric: whether a higher score is better; null "
            "if the tasks of a group disagree",
        ],
        "n-samples": Annotated[
            dict[str, dict[str, int]],
            "for each task: number of documents in the split (`original`) and of documents scored "
            "(`effective`)",
        ],
    },
)


class OptionalScores(TypedDict, total=False):
    """Fields about scores that only some runs have."""

    groups: Annotated[
        dict[str, Row],
        "rows of the groups that have aggregated scores; the same rows are in `results`",
        "if no group has aggregated scores",
    ]
    extraction_failed: Annotated[
        dict[str, dict[str, int]],
        "for each task and filter pipeline: number of documents in whose answers the filters found "
        "no answer to extract",
        "if no task has a filter that extracts answers",
    ]
    repeats_without_answer: Annotated[
        dict[str, dict[str, int]],
        "for each task with metrics of repeated answers (`avg@8`), and each filter pipeline: "
        "number of answers in which the filters found no answer to extract, of all repeats",
        "if no task has metrics of repeated answers and a filter that extracts answers",
    ]
    length_stopped: Annotated[
        dict[str, int],
        "for each task: number of answers that were cut off at the maximum length",
        "if the model does not report why answers end",
    ]
    answer_tokens: Annotated[
        dict[str, dict[str, int]],
        "for each task: number of `answers` whose length is known, all `tokens` that were "
        "generated for them, the `longest` answer, and the `thinking_tokens` among all tokens",
        "if the model does not report the length of answers; `thinking_tokens` if there are no "
        "thoughts",
    ]
    empty_answers: Annotated[
        dict[str, int],
        "for each task with empty answers: their number; they are scored as they are",
        "if no answer is empty",
    ]
    clusters: Annotated[
        dict[str, dict[str, Any]],
        "for each task with clustered standard errors: the column that defines the clusters "
        "(`by`) and the number of clusters (`count`)",
        "if no task has clustered standard errors",
    ]
    confidence: Annotated[
        float, "confidence level of `intervals`, for example 0.95", "without `--confidence`"
    ]
    intervals: Annotated[
        dict[str, dict[str, list[float]]],
        "for each task and group, and each `metric,filter`: lower and upper end of the confidence "
        "interval",
        "without `--confidence`",
    ]

    decontaminated: Annotated[
        dict[str, Row],
        "for each task that the findings cover, and each group of such tasks: its scores over the "
        "clean documents alone (see the keys of a clean row)",
        "without `--decontaminate`",
    ]
    decontaminated_with: Annotated[
        dict[str, Any],
        "path and SHA-256 hash of the findings (`findings`, `fingerprint`), `ngram` and "
        "`threshold` of the scan, fingerprint of its `corpus`, and confidence level of the "
        "intervals in `decontaminated` (`confidence`)",
        "without `--decontaminate`",
    ]


class Summary(Scores, OptionalScores, total=False):
    """What `summarize` returns. `samples` is stored in separate files, not in the results file."""

    checksum: Annotated[
        str,
        "hash over all other fields; shows whether the file was changed after it was written",
        "in results that are not read from a file; `read_results` checks and removes it",
    ]
    samples: dict[str, list[dict[str, Any]]]


class TaskInputs(TypedDict, total=False):
    """What the requests were built from."""

    datasets: Annotated[
        dict[str, dict[str, Any]],
        "for each task: source, revision and fingerprint of its documents",
        _NO_REQUESTS,
    ]
    hashes: Annotated[
        dict[str, dict[str, str]],
        "for each task: hashes of its configuration, data, prompts and document numbers",
        _NO_REQUESTS,
    ]


class RunStatistics(TypedDict, total=False):
    """Times, token counts and request counts of the run."""

    timings: Annotated[
        dict[str, float], "for each stage of the run: duration in seconds", _NO_REQUESTS
    ]
    answers: Annotated[
        dict[str, int],
        "number of answers that the run needs, including repeats (`requests`), and how many of "
        "them the model computed in this run (`asked`); the others were already stored",
        f"{_NO_REQUESTS}; in a run that stores no answers",
    ]
    usage: Annotated[
        dict[str, int | float],
        "number of input tokens, generated tokens and input tokens reused from other requests; "
        "number of truncated and failed requests; the cost, if the model knows prices",
        f"{_NO_REQUESTS}; if the model does not count them",
    ]
    truncated_requests: Annotated[
        dict[str, int],
        "for each task: number of requests that were truncated to the model's maximum length",
        _NO_REQUESTS,
    ]
    failed_requests: Annotated[
        dict[str, int], "for each task: number of requests that got no answer", _NO_REQUESTS
    ]
    isolation: Annotated[
        str,
        "how the programs of code tasks were isolated, for example `namespaces+landlock+seccomp`; "
        "`none` if a task runs programs with functions of its own",
        "partial; if no task runs programs",
    ]
    programs: Annotated[
        dict[str, dict[str, Any]],
        "for each task that runs programs in the sandbox: number of different programs "
        "(`programs`), of those run now (`run`) and by outcome (`outcomes`); shortest and longest "
        "time limit of a program (`wall_seconds`); number of canonical solutions that the limits "
        "are calibrated by, and the longest time that one of them took (`canonical_solutions`, "
        "`slowest_canonical_seconds`); documents whose canonical solution fails "
        "(`canonical_failed`)",
        "partial; if no task runs programs",
    ]
    partial: Annotated[
        bool,
        "true: documents are missing in the scores, because requests failed",
        "if all documents were scored",
    ]
    unanswered_documents: Annotated[
        dict[str, dict[str, str]],
        "for each task: the documents that are missing in the scores, by number, with the reason",
        "if all documents were scored",
    ]


class RunDescription(TypedDict, total=False):
    """Settings, model, software and hardware of the run."""

    config: Annotated[
        dict[str, Any],
        "model, model arguments, batch size, limit and seeds, as the published harness stores them",
        _NO_RUN,
    ]
    date: Annotated[float, "start of the run, in seconds since 1970", _NO_MODEL]
    total_evaluation_time_seconds: Annotated[str, "duration of the run, as text", _NO_MODEL]
    model_source: Annotated[
        str,
        "backend: the value of `--model`; `CUSTOM` if the model was passed as an object",
        _NO_RUN,
    ]
    model_name: Annotated[
        str, "name of the weights; if unknown, the backend or the class of the model", _NO_RUN
    ]
    model_name_sanitized: Annotated[str, "`model_name` as used in folder names", _NO_RUN]
    system_instruction: Annotated[
        str | None, "system message before every prompt; null if there is none", _NO_RUN
    ]
    system_instruction_sha: Annotated[
        str | None, "SHA-256 hash of `system_instruction`; null if there is none", _NO_MODEL
    ]
    fewshot_as_multiturn: Annotated[
        bool | None, "whether few-shot examples are separate turns of the chat", _NO_RUN
    ]
    chat_template: Annotated[
        str | None, "text of the chat template; null if none was applied", _NO_MODEL
    ]
    chat_template_sha: Annotated[
        str | None, "SHA-256 hash of `chat_template`; null if none was applied", _NO_MODEL
    ]
    tokenizer_pad_token: Annotated[
        list[str | None], "the tokenizer's padding token and its id", _NO_TOKENIZER
    ]
    tokenizer_eos_token: Annotated[
        list[str | None], "the tokenizer's end-of-sequence token and its id", _NO_TOKENIZER
    ]
    tokenizer_bos_token: Annotated[
        list[str | None], "the tokenizer's beginning-of-sequence token and its id", _NO_TOKENIZER
    ]
    eot_token_id: Annotated[
        int | None, "id of the token that the model uses as end of text", _NO_TOKENIZER
    ]
    max_length: Annotated[
        int | None, "maximum number of tokens in the model's context", _NO_TOKENIZER
    ]
    lm_eval_version: Annotated[str, "version of lm_eval that wrote the file", _NO_RUN]
    transformers_version: Annotated[
        str, "version of transformers; `N/A` if it is not installed", _NO_RUN
    ]
    libraries: Annotated[dict[str, str], "versions of the installed libraries", _NO_RUN]
    hardware: Annotated[
        dict[str, Any], "processor, number of cores, memory in GiB, accelerators", _NO_RUN
    ]
    pretty_env_info: Annotated[str, "versions of Python, platform and libraries, as text", _NO_RUN]
    git_hash: Annotated[
        str | None, "git commit of the working directory; null outside a repository", _NO_RUN
    ]
    upper_git_hash: Annotated[
        str | None, "git commit of the parent of the working directory", _NO_RUN
    ]


class Reproduction(TypedDict, total=False):
    """What `lm-eval reproduce` needs to repeat the run."""

    settings: Annotated[
        dict[str, Any],
        "the settings that differ from the defaults, without secrets",
        f"{_NO_MODEL}; if the model was passed as an object",
    ]
    directory: Annotated[
        str,
        "working directory of the command, to which paths in `settings` are relative",
        "if `settings` is absent",
    ]
    left_out: Annotated[
        list[str],
        "names of the settings that are secret, whose values are in no file",
        "if `settings` is absent",
    ]
    signature: Annotated[
        str | None,
        "marks the settings as those of a run of this user, for `reproduce`; null without a key",
        "if `settings` is absent",
    ]
    model_identity: Annotated[
        dict[str, Any],
        "class, arguments and weights of the model; stored answers are looked up by them",
        "if `settings` is absent",
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
    """Everything that an evaluation returns and a results file contains.

    `read_results` also returns files of the published harness, which lack some of the keys that
    are always present in the files of this package, such as `format`.
    """

    format: Annotated[
        int, "version of the file format, currently 1; optional new fields do not increase it"
    ]
    task_hashes: Annotated[
        dict[str, str],
        "for each task: one hash over its documents, prompts and targets; empty if the run kept "
        "no samples",
    ]
    scored_from: Annotated[
        dict[str, Any],
        "for rescored results: the run folder or the sample logs that the answers were read from, "
        "and the hashes of that run; under `not_scored`, logs that could not be used, and why",
        "in all but rescored results",
    ]
    checksum: Annotated[
        str,
        "hash over all other fields; shows whether the file was changed after it was written",
        "in results that are not read from a file; `read_results` checks and removes it",
    ]
    samples: dict[str, list[dict[str, Any]]]
