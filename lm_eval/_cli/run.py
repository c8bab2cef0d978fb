"""The command `run` as the published class, with the published form of its arguments."""

from __future__ import annotations

from argparse import Namespace

from lm_eval._cli.subcommand import SubCommand
from lm_eval.cli import run
from lm_eval.config.arguments import merge_arguments
from lm_eval.errors import ConfigError, with_location

#: Options whose values are dictionaries.
_TABLES = (
    *("model_args", "gen_kwargs", "metadata"),
    *("wandb_args", "wandb_config_args", "trackio_args", "hf_hub_log_args"),
)
#: Other options that are None in the published namespace if they are not given.
_NONE_IF_NOT_GIVEN = (
    *("config", "tasks", "model", "limit", "use_cache", "num_fewshot", "max_batch_size", "device"),
    *("output_path", "samples", "cache_requests", "system_instruction", "include_path"),
    *("verbosity", "seed"),
)


class Run(SubCommand):
    """The command that evaluates a model.

    In the parsed arguments, `model_args` and the other options with `key=value` pairs are
    dictionaries, and most options that are not given are None. `_execute` ignores what is None.
    """

    name = "run"

    def _add_args(self) -> None:
        run.add_arguments(self._parser)
        self._parser.set_defaults(**dict.fromkeys((*_TABLES, *_NONE_IF_NOT_GIVEN)))

    @staticmethod
    def completed(args: Namespace) -> Namespace:
        """Returns parsed arguments in their published form: names in a list, pairs in dictionaries.

        Raises `ConfigError` if an option with `key=value` pairs cannot be parsed.
        """
        changed = dict(vars(args))
        if changed["tasks"] is not None:
            changed["tasks"] = [name for words in changed["tasks"] for name in words.split(",")]
        for name in _TABLES:
            if changed[name] is not None:
                try:
                    changed[name] = merge_arguments(changed[name])
                except ConfigError as error:
                    raise with_location(error, name) from error
        return Namespace(**changed)

    @staticmethod
    def _execute(args: Namespace) -> int:
        given = {key: value for key, value in vars(args).items() if value is not None}
        given.pop("func", None)
        return run.execute(Namespace(**given))
