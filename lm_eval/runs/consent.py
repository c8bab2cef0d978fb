"""What a recorded run may do: everything if it was made here, else what the command line allows.

Run folders and results files are exchanged between strangers. Their settings can name Python code
(task folders, a model class, code of a model's repository), an address to which requests and keys
are sent, and files to write. None of that is used unless the user names it on this command line.
"""

from __future__ import annotations

import glob
import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval.api.registry import model_registry
from lm_eval.config.arguments import parse_arguments
from lm_eval.config.run import WORKER_SETTINGS, absolute_path
from lm_eval.errors import ForeignRunError, OutputError

logger = logging.getLogger(__name__)

#: Model arguments that load weights or change numbers, but run no code and contact no other server.
#: Numbers and None are harmless under any name.
_PLAIN_ARGUMENTS = {
    *("pretrained", "model", "tokenizer", "revision", "subfolder", "dtype", "backend", "peft"),
    *("delta", "gguf_file", "device", "device_map_option", "parallelize", "batch_size"),
    *("softmax_dtype", "mixed_precision_dtype", "truncation", "truncation_side", "logits_cache"),
    *("add_bos_token", "use_fast_tokenizer", "low_cpu_mem_usage", "load_in_8bit", "load_in_4bit"),
    *("bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant", "autogptq"),
    *("gptqmodel", "enable_thinking", "think_end_token", "max_memory_per_gpu", "max_cpu_memory"),
    *("prefix_sharing", "quantization", "kv_cache_dtype", "enforce_eager", "max_length"),
    *("enable_prefix_caching", "tokenized_requests", "trust_remote_code"),
}
#: Implementations of attention that transformers contains; others are downloaded and run.
_PLAIN_ATTENTION = {"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"}
#: Models that trust the code of a repository unless they are told otherwise.
_TRUSTING_MODELS = {"sglang"}
#: Settings that send results elsewhere.
_TRACKERS = ("wandb_args", "wandb_config_args", "trackio_args", "hf_hub_log_args")
_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Consent:
    """What the user allows on this command line, in addition to what a recorded run contains.

    Attributes:
        trust_remote_code: code of the model's repository may run.
        confirm_run_unsafe_code: code that the model writes may run.
        include_path: folders with tasks, used instead of the recorded ones.
        model: the model class, used instead of the recorded one.
        model_args: model arguments, which replace the recorded ones of the same name.
        use_cache: the store of answers, used instead of the recorded one.
        executor: where the model runs, and its settings, used instead of the recorded ones. None
            for the recorded ones.
    """

    trust_remote_code: bool = False
    confirm_run_unsafe_code: bool = False
    include_path: Sequence[str] = ()
    model: str | None = None
    model_args: Mapping[str, Any] = field(default_factory=dict)
    use_cache: str | None = None
    executor: Mapping[str, Any] | None = None

    def apply(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns recorded settings with those of this command line in their place."""
        changed = dict(settings)
        changed["model_args"] = {**_arguments(settings), **self.model_args}
        if self.trust_remote_code:
            changed["trust_remote_code"] = True
        if self.confirm_run_unsafe_code:
            changed["confirm_run_unsafe_code"] = True
        if self.include_path:
            changed["include_path"] = [absolute_path(folder) for folder in self.include_path]
        if self.model is not None:
            changed["model"] = self.model
        if self.use_cache is not None:
            changed["use_cache"] = absolute_path(self.use_cache)
        if self.executor is not None:
            changed = {**_without_executor(changed), **self.executor}
        return changed


def _without_executor(settings: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("executor", *WORKER_SETTINGS)
    return {name: value for name, value in settings.items() if name not in left_out}


@dataclass(frozen=True)
class _Request:
    """Something that a foreign run would do, and the option that allows it."""

    what: str
    option: str


def permitted(
    settings: Mapping[str, Any], consent: Consent, where: object, *, is_own: bool, asks: bool = True
) -> dict[str, Any]:
    """Returns the settings with which a recorded run may be repeated, changed as `consent` says.

    A run that was made here (`is_own`) may do again what it did. Of any other run, nothing that
    runs code, contacts a server or writes a file is taken from the record.

    Args:
        settings: the recorded settings.
        consent: what this command line allows.
        where: the file of the record, for messages.
        is_own: whether the run was made here (`results.run_signature`).
        asks: whether the model will be loaded. To score stored answers, it is not.

    Raises `ForeignRunError` with a list of everything that `consent` would have to allow.
    """
    changed = consent.apply(settings)
    if is_own:
        return changed
    needed = list(_needed(settings, changed, consent, asks))
    if needed:
        raise ForeignRunError(_message(where, needed))
    if consent.executor is None:  # the address of a cluster is that of a stranger
        changed = _without_executor(changed)
    for name in _TRACKERS if asks else ():
        if changed.pop(name, None):
            logger.warning("%s: not made here, so its %s are not used.", where, name)
    # Packs contain code. The other variables name data.
    environment = dict(_table(changed, "environment"))
    packs = environment.pop("LMEVAL_PACKS_DIR", None)
    if packs and not os.environ.get("LMEVAL_PACKS_DIR"):
        logger.warning(
            "%s: not made here, so its packs in %s are not used. Set LMEVAL_PACKS_DIR to use them.",
            where,
            _shown(packs),
        )
    changed["environment"] = environment
    for what in sorted({one.what for one in _needed(settings, settings, Consent(), asks)}):
        logger.info("%s: not made here; this command allows %s.", where, what)
    return changed


def check_secrets_given(left_out: Sequence[str], consent: Consent, where: object) -> None:
    """Raises `OutputError` if a secret of a recorded run is not given on this command line.

    `left_out` are the names of the secrets that the run had (`config.run.secrets_in`); their values
    are not stored. Only model arguments can be given again.
    """
    missing = [str(name) for name in left_out if not _is_given(str(name), consent)]
    if not missing:
        return
    options = [name.partition(" ")[2].partition(".")[0] for name in missing]
    again = f"Pass them again: --model_args {','.join(f'{one}=…' for one in options)}. Or run"
    if any(not name.startswith("model_args ") for name in missing):
        again = "Run"
    raise OutputError(
        f"{where}: the run had secret settings ({', '.join(missing)}), which are not stored. "
        f"{again} the original command again; it continues from the stored answers. Keys from "
        "environment variables (docs/environment.md) need not be part of the command."
    )


def _is_given(name: str, consent: Consent) -> bool:
    table, _, inner = name.partition(" ")
    return table == "model_args" and inner.partition(".")[0] in consent.model_args


def is_task_path(spec: object) -> bool:
    """Returns whether a task of a run is a path, or could be that of a task file or folder here."""
    if not isinstance(spec, str):
        return False
    if any(mark in spec for mark in ("/", "\\", "~", ".yaml", ".yml")):
        return True
    path = Path(spec.partition("@")[0])
    try:
        found = glob.glob(spec)  # noqa: PTH207 (as the task manager does)
        return path.is_file() or any(path.glob("*.yaml")) or any(map(os.path.isfile, found))
    except (OSError, ValueError):  # such as a null character
        return True


def _needed(
    recorded: Mapping[str, Any], changed: Mapping[str, Any], consent: Consent, asks: bool
) -> Iterator[_Request]:
    """Yields what the settings would do and `consent` does not allow."""
    if not consent.include_path:
        for folder in _as_list(recorded.get("include_path")):
            yield _option("the tasks in a folder, and their code", "--include_path", folder)
    for spec in _tasks(recorded):
        if is_task_path(spec) and not _is_below(spec, consent.include_path):
            yield _option("a task file, and its code", "--include_path", Path(spec).parent, spec)
        elif isinstance(spec, Mapping) and _runs_metric_code(spec):
            yield _Request(
                f"a metric from the hub, in the task {_shown(spec.get('task'))}",
                "(write the task to a file of yours, and pass --include_path)",
            )
    if recorded.get("confirm_run_unsafe_code") and not consent.confirm_run_unsafe_code:
        yield _Request("code that the model writes", "--confirm_run_unsafe_code")
    if not asks:
        return
    trusts = consent.trust_remote_code or consent.model_args.get("trust_remote_code")
    if not trusts and _trusts_remote_code(changed):
        yield _Request("code of the model's repository", "--trust_remote_code")
    model = recorded.get("model")
    if consent.model is None and isinstance(model, str) and _is_location(model):
        yield _option("a model class", "--model", model)
    for name, value in _arguments(recorded).items():
        if name not in consent.model_args and not _is_plain_argument(name, value):
            shown = shlex.quote(f"{name}={_shown(value)}")
            yield _Request("an argument of the model", f"--model_args {shown}")
    if "custom_generate" in _table(recorded, "gen_kwargs"):
        yield _Request(
            "code that generates answers (custom_generate)",
            "(use `lm-eval run`, with --gen_kwargs)",
        )
    if recorded.get("use_cache") and consent.use_cache is None:
        yield _option("a store, which answers are written to", "--use_cache", recorded["use_cache"])


def _message(where: object, needed: Sequence[_Request]) -> str:
    listed = "".join(f"\n  {one.what}: {one.option}" for one in dict.fromkeys(needed))
    return (
        f"{where}: this run was not made here, and it would use:{listed}\n"
        "Nothing has been run. If you trust these, add the options to the command (in Python: "
        "arguments of the same name)."
    )


def _option(what: str, option: str, value: object, shown: object = None) -> _Request:
    named = f" ({_shown(shown)})" if shown is not None else ""
    return _Request(f"{what}{named}", f"{option} {shlex.quote(_shown(value))}")


def _shown(value: object) -> str:
    """Returns a recorded value for a message: on one line, and without control characters."""
    text = str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] if value else []


def _tasks(settings: Mapping[str, Any]) -> list[Any]:
    """Returns the recorded tasks; comma-separated names are split, as in `RunConfig.task_list`."""
    split = [s.split(",") if isinstance(s, str) else [s] for s in _as_list(settings.get("tasks"))]
    return [one.strip() if isinstance(one, str) else one for part in split for one in part]


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = settings.get(name)
    return given if isinstance(given, Mapping) else parse_arguments(given)


def _arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_table(settings, "model_args"))


def _is_below(path: str, folders: Sequence[str]) -> bool:
    """Returns whether a path is inside one of the folders, wherever links lead."""
    resolved = Path(path).expanduser().resolve()
    return any(resolved.is_relative_to(Path(f).expanduser().resolve()) for f in folders)


def _runs_metric_code(spec: Mapping[str, Any]) -> bool:
    """Returns whether a task that is recorded as a mapping loads code of a metric."""
    metrics = _as_list(spec.get("metric_list"))
    return any(isinstance(one, Mapping) and one.get("hf_evaluate") for one in metrics)


def _trusts_remote_code(settings: Mapping[str, Any]) -> bool:
    """Returns whether `trust_remote_code` is set, in the settings or in one of their tables."""
    tables = (settings, *(_table(settings, n) for n in ("model_args", "metadata", "gen_kwargs")))
    given = [table["trust_remote_code"] for table in tables if "trust_remote_code" in table]
    trusting = str(settings.get("model")) in _TRUSTING_MODELS
    explicit = "trust_remote_code" in _arguments(settings)
    return any(value not in (False, None, 0) for value in given) or (trusting and not explicit)


def _is_location(model: str) -> bool:
    """Returns whether a model is given as the location of a class, `FILE.py:CLASS`."""
    return model not in model_registry and (":" in model or model.endswith(".py"))


def _is_plain_argument(name: str, value: Any) -> bool:
    """Returns whether a model argument cannot run code or contact another server."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return True
    if name == "attn_implementation":
        return isinstance(value, str) and value in _PLAIN_ATTENTION
    return name in _PLAIN_ARGUMENTS and isinstance(value, (str, bool))
