"""Defines options that several commands share, and parses their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig


def add_include_path(parser: Any) -> None:
    """Adds `--include_path`; its value is a list of lists of folders (`include_paths`)."""
    parser.add_argument(
        "--include_path",
        metavar="DIR",
        action="append",
        type=lambda text: [part for part in text.split(":") if part],
        help="folder with additional tasks; repeat the option, or separate folders with ':'. If "
        "several folders define a name, the last one is used",
    )


def add_prompt_options(parser: Any, num_fewshot: bool = True) -> None:
    """Adds the options that determine the prompts, with or without `--num_fewshot`."""
    if num_fewshot:
        parser.add_argument(
            "--num_fewshot",
            "-f",
            type=int,
            metavar="N",
            help="number of few-shot examples in a prompt",
        )
    parser.add_argument(
        "--apply_chat_template",
        nargs="?",
        const=True,
        metavar="NAME",
        help="format prompts with the model's chat template; NAME chooses one of several templates",
    )
    parser.add_argument(
        "--fewshot_as_multiturn",
        nargs="?",
        const=True,
        type=boolean,
        metavar="BOOL",
        help="few-shot examples as separate turns of the chat (default with a chat template)",
    )
    parser.add_argument(
        "--system_instruction", metavar="TEXT", help="system message before every prompt"
    )
    add_table(parser, "--gen_kwargs", help="generation settings; override those of the tasks")
    add_table(parser, "--metadata", help="values that are passed to the tasks as metadata")


def add_uncertainty(parser: Any) -> None:
    """Adds the options for standard errors and confidence intervals."""
    parser.add_argument(
        "--bootstrap_iters",
        type=int,
        metavar="N",
        help="number of bootstrap samples for standard errors",
    )
    parser.add_argument(
        "--confidence",
        type=float,
        metavar="LEVEL",
        help="show confidence intervals of this level, for example 0.95",
    )
    parser.add_argument(
        "--cluster",
        metavar="COLUMN",
        help="clustered standard errors: documents with the same value in this column are one "
        "cluster",
    )


def add_decontaminate(parser: Any) -> None:
    """Adds `--decontaminate`, the path of a findings file."""
    parser.add_argument(
        "--decontaminate",
        metavar="FINDINGS",
        help="also report the scores without the documents that a scan of training data has found "
        "(`lm-eval contamination scan`)",
    )


def add_code_options(parser: Any) -> None:
    """Adds `--confirm_run_unsafe_code` and `--require_isolation`."""
    add_confirm_unsafe(parser)
    parser.add_argument(
        "--require_isolation",
        metavar="LEVEL",
        help="refuse to run code with less isolation than this, such as landlock+seccomp or "
        "namespaces+landlock+seccomp",
    )


def add_model_options(parser: Any, models: str) -> None:
    """Adds the options of commands that run several models; `models` names these in the help."""
    parser.add_argument("--batch_size", "-b", metavar="N", help="requests per batch, or 'auto'")
    parser.add_argument("--device", metavar="NAME", help=f"device of {models}: cuda, cpu …")
    parser.add_argument(
        "--use_cache", "-c", metavar="FILE", help="store answers in this file and reuse them"
    )
    parser.add_argument("--trust_remote_code", action="store_true", help="as for `lm-eval run`")
    parser.add_argument(
        "--confirm_run_unsafe_code", action="store_true", help="as for `lm-eval run`"
    )


def add_verbosity(parser: Any) -> None:
    """Adds `--verbosity`, a log level in upper case; None if it is not given."""
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    others = ("WARN", "CRITICAL", "FATAL", "NOTSET")
    parser.add_argument(
        "--verbosity",
        "-v",
        type=str.upper,
        choices=(*levels, *others),
        metavar="LEVEL",
        help=f"which log messages are shown: {', '.join(levels)}",
    )


def add_samples_format(parser: Any) -> None:
    """Adds `--samples_format`: `jsonl`, `zst` or `parquet`."""
    parser.add_argument(
        "--samples_format",
        choices=("jsonl", "zst", "parquet"),
        help="format of sample logs: jsonl (as in the published harness), or compressed, with one "
        "row per document",
    )


def add_table(parser: Any, *names: str, help: str) -> None:
    """Adds an option that takes `key=value` pairs; its value is a list of such texts."""
    parser.add_argument(*names, nargs="+", metavar="KEY=VALUE", help=help)


def add_data_dir(parser: Any) -> None:
    """Adds `--data_dir`, the folder of a mirror."""
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="folder with copies of datasets (made by `lm-eval fetch`), which is searched before "
        "the hub; the environment variable LMEVAL_DATA_DIR has the same effect",
    )


def add_workers(group: Any) -> None:
    """Adds the options that decide where the model runs; they are absent if they are not given."""
    absent = argparse.SUPPRESS
    group.add_argument(
        "--executor",
        choices=("in_process", "processes", "ray"),
        default=absent,
        help="where the model runs: in this process (default), in several processes, or on a Ray "
        "cluster",
    )
    group.add_argument(
        "--workers", metavar="N", default=absent, help="how many workers hold the model, or 'auto'"
    )
    group.add_argument(
        "--gpus_per_worker",
        type=float,
        metavar="N",
        default=absent,
        help="GPUs of each worker; a part of 1 if several share a GPU",
    )
    group.add_argument(
        "--cpus_per_worker", type=float, metavar="N", default=absent, help="processors of each"
    )
    group.add_argument(
        "--ray_address",
        metavar="ADDRESS",
        default=absent,
        help="the Ray cluster: auto, or ray://HOST:PORT (default: start one on this machine)",
    )
    group.add_argument(
        "--max_restarts",
        type=int,
        metavar="N",
        default=absent,
        help="how often in a row a worker may end without an answer (default: 3)",
    )


def workers_of(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Returns the options of `add_workers` that were given; None if none was.

    Raises `ConfigError` for others without `--executor`.
    """
    from lm_eval.errors import ConfigError

    given = {name: value for name, value in vars(arguments).items() if name in _WORKER_OPTIONS}
    if given and "executor" not in given:
        raise ConfigError(
            f"--{next(iter(given))} needs --executor: give both to go on elsewhere, or none of "
            "them to go on where the run was started."
        )
    return given or None


_WORKER_OPTIONS = (
    *("executor", "workers", "gpus_per_worker", "cpus_per_worker", "ray_address", "max_restarts"),
)


def add_consent(parser: Any) -> None:
    """Adds the options that allow a run of someone else to use code, a server or secrets.

    These are `--model`, `--model_args`, `--include_path`, `--trust_remote_code` and
    `--confirm_run_unsafe_code`.
    """
    parser.add_argument(
        "--model", "-M", metavar="NAME", help="the model class, if it is FILE.py:CLASS"
    )
    add_table(
        parser,
        "--model_args",
        "-a",
        help="arguments of the model that replace the recorded ones, and its keys, which are not "
        "recorded",
    )
    add_include_path(parser)
    parser.add_argument(
        "--trust_remote_code",
        action="store_true",
        help="allow code from the model's hub repository to run",
    )
    add_confirm_unsafe(parser)


def add_confirm_unsafe(parser: Any) -> None:
    """Adds `--confirm_run_unsafe_code`, False if it is not given."""
    parser.add_argument(
        "--confirm_run_unsafe_code",
        action="store_true",
        help="allow tasks to run code that the model has written, in a sandbox",
    )


def add_run_id(parser: Any) -> None:
    """Adds `--run`, the id of a run."""
    parser.add_argument(
        "--run",
        metavar="ID",
        help="id of one run, if the folder contains several",
    )


def model_run(spec: str, given: dict[str, Any]) -> RunConfig:
    """Returns the settings of a run of the model that `spec` names.

    Args:
        spec: `NAME,KEY=VALUE,…`, or the path of a YAML file with the settings of a run.
        given: further settings, which replace those of the file.

    Raises `ConfigError` if a setting is not valid.
    """
    from lm_eval.config.arguments import split_outside_brackets
    from lm_eval.config.run import RunConfig
    from lm_eval.errors import ConfigError

    if Path(spec).suffix in (".yaml", ".yml"):
        return RunConfig.from_file(spec, **given)
    name, *rest = split_outside_brackets(spec)
    if "=" in name or not name.strip():
        raise ConfigError(
            f"{spec!r} does not begin with the name of a model. Write NAME,KEY=VALUE,… such as "
            "hf,pretrained=gpt2."
        )
    return RunConfig(model=name.strip(), model_args=",".join(rest), **given)


def include_paths(given: list[list[str]] | None) -> list[str] | None:
    """Returns the folders of all `--include_path` options in one list; None if there are none."""
    return [path for group in given for path in group] if given else None


def names_in(given: list[str] | None) -> list[str] | None:
    """Returns the names in a list of comma-separated names, or None if `given` is None.

    Empty names are left out.
    """
    return None if given is None else [n for part in given for n in part.split(",") if n]


def given_settings(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Returns the settings of a run among the options `names`, without those not given."""
    given = {
        name: value
        for name in names
        if (value := getattr(arguments, name)) is not None and value is not False
    }
    if "include_path" in given:
        given["include_path"] = include_paths(given["include_path"])
    return given


def boolean(text: str) -> bool:
    """Returns True for `true`, `1`, `yes` and `on`, False for `false`, `0`, `no` and `off`.

    Case is ignored. Raises `ArgumentTypeError` for any other text.
    """
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise argparse.ArgumentTypeError(
        f"expected true or false (or 1/0, yes/no, on/off), not {text!r}"
    )
