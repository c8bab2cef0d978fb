"""`EvaluatorConfig`: the settings of a run under the published name, with the published methods."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.config.run import RunConfig
from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.errors import ConfigError
from lm_eval.tasks.manager import TaskManager

#: Attributes of a parsed command line that are not settings of a run.
_NOT_SETTINGS = ("command", "func", "debug", "config")


@dataclass
class EvaluatorConfig(RunConfig):
    """The settings of a run, from a YAML file, a parsed command line or keyword arguments.

    Example::

        config = EvaluatorConfig.from_config("run.yaml")
        task_manager = config.process_tasks()
        results = simple_evaluate(
            model=config.model,
            model_args=config.model_args,
            tasks=config.tasks,
            task_manager=task_manager,
        )
    """

    @classmethod
    def from_config(cls, config_path: str | Path) -> EvaluatorConfig:
        """Returns the settings in a YAML file; raises `ConfigError` if they are not valid."""
        return cls.from_file(config_path)._completed()

    @classmethod
    def from_cli(cls, namespace: Namespace) -> EvaluatorConfig:
        """Returns the settings of a parsed command line, and of the file that its `config` names.

        Options that are not set, or are empty, are taken from the file. Raises `ConfigError` if a
        setting is not valid, and `TypeError` if the namespace has an attribute that is not one.
        """
        given = {
            name: value
            for name, value in vars(namespace).items()
            if name not in _NOT_SETTINGS and (value or value == 0)
        }
        file = getattr(namespace, "config", None)
        return (cls.from_file(file, **given) if file else cls(**given))._completed()

    @staticmethod
    def load_yaml_config(config_path: str | Path) -> dict[str, Any]:
        """Returns the content of a YAML file; raises `ConfigError` if it is not a mapping."""
        return dict(load_yaml_file(config_path).values)

    def _completed(self) -> EvaluatorConfig:
        """Adds the model's arguments to `metadata`, and returns the configuration itself.

        Raises `ConfigError` if samples are to be written but there is no `output_path`.
        """
        if self.log_samples and not self.output_path:
            raise ConfigError("log_samples and predict_only need output_path: the folder to write.")
        self.metadata = self.task_metadata
        return self

    def process_tasks(self, metadata: dict[str, Any] | None = None) -> TaskManager:
        """Returns the task manager of the run, and replaces patterns in `tasks` by names.

        `metadata`, if given, replaces the `metadata` of the configuration. Raises
        `UnknownNameError` if a task does not exist.
        """
        self.metadata = metadata or self.metadata
        manager = TaskManager(include_path=self.include_path, metadata=self.metadata)
        tasks: dict[Any, None] = {}
        for spec in self.task_list:
            if isinstance(spec, str):
                manager.entries(spec)  # raises if there are none
                tasks |= dict.fromkeys(manager.match_tasks([spec]) or [spec])
            else:
                tasks[spec] = None
        self.tasks = list(tasks)
        return manager
