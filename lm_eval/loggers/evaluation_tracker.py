"""Writes results and samples to files and pushes them to dataset repositories on the hub."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lm_eval.config.arguments import parse_arguments
from lm_eval.errors import ConfigError, OutputError
from lm_eval.results.files import save, save_samples
from lm_eval.results.names import name_of_weights, sanitize_model_name

logger = logging.getLogger(__name__)


@dataclass
class GeneralConfigTracker:
    """The model and prompt settings of the run, as attributes that the published harness has."""

    model_source: str | None = None
    model_name: str = "model"
    system_instruction: str | None = None
    chat_template: str | None = None
    fewshot_as_multiturn: bool | None = None

    def log_experiment_args(
        self,
        model_source: str,
        model_args: str | Mapping[str, Any],
        system_instruction: str | None = None,
        chat_template: str | None = None,
        fewshot_as_multiturn: bool = False,
    ) -> None:
        """Sets the attributes. The model is named after its weights, or else `model_source`.

        Its weights are the path or hub name in `model_args` (`pretrained`, `peft`, …).
        """
        given = parse_arguments(model_args) if isinstance(model_args, str) else model_args
        self.model_source = model_source
        self.model_name = name_of_weights(given) or model_source
        self.system_instruction = system_instruction
        self.chat_template = chat_template
        self.fewshot_as_multiturn = fewshot_as_multiturn

    def set_model_name(self, name: str) -> None:
        """Sets the model name, which names the folder in the repositories."""
        self.model_name = name


class EvaluationTracker:
    """Writes results and samples under `output_path` and optionally pushes them to the hub.

    Args:
        output_path: where files are written, as for `lm_eval.results.files.save`; None for nowhere.
        hub_results_org: user or organization on the hub; by default, the owner of `token`.
        hub_repo_name: repository for results and samples. Overrides the next two arguments.
        details_repo_name: repository for samples; by default, `lm-eval-results`.
        results_repo_name: repository for results; by default, the one for samples.
        push_results_to_hub: push results files.
        push_samples_to_hub: push sample logs.
        public_repo: create public repositories. Otherwise they are private, and `-private` is
            appended to their names.
        token: access token for the hub; required for pushing.
        leaderboard_url: a link for the dataset card.
        point_of_contact: a contact for the dataset card.
        gated: users must request access to the repositories.

    Raises `ConfigError` if something is to be pushed and there is no token.
    """

    def __init__(
        self,
        output_path: str | Path | None = None,
        hub_results_org: str = "",
        hub_repo_name: str = "",
        details_repo_name: str = "",
        results_repo_name: str = "",
        push_results_to_hub: bool = False,
        push_samples_to_hub: bool = False,
        public_repo: bool = False,
        token: str = "",
        leaderboard_url: str = "",
        point_of_contact: str = "",
        gated: bool = False,
    ) -> None:
        self.general_config_tracker = GeneralConfigTracker()
        self.output_path = output_path
        self.push_results_to_hub = push_results_to_hub
        self.push_samples_to_hub = push_samples_to_hub
        self.public_repo = public_repo
        self.leaderboard_url, self.point_of_contact = leaderboard_url, point_of_contact
        self.gated_repo = gated
        self.api: Any = None
        self._saved: Path | None = None
        """The last results file, if it was written without samples."""
        if push_results_to_hub or push_samples_to_hub:
            if not token:
                raise ConfigError(
                    "hf_hub_log_args: pushing to the hub needs a token: set the environment "
                    "variable HF_TOKEN, or add token=… to the arguments."
                )
            from huggingface_hub import HfApi

            self.api = HfApi(token=token)
            hub_results_org = hub_results_org or str(self.api.whoami()["name"])
        details = hub_repo_name or details_repo_name or "lm-eval-results"
        results = hub_repo_name or results_repo_name or details
        ending = "" if public_repo else "-private"
        self.details_repo = f"{hub_results_org}/{details}{ending}"
        self.results_repo = f"{hub_results_org}/{results}{ending}"

    # -- methods of the published harness: first the results, then the samples of each task ------

    def save_results_aggregated(
        self, results: dict[str, Any], samples: Mapping[str, Any] | None = None
    ) -> Path | None:
        """Writes results and samples to files and pushes them to the hub if so configured.

        Returns the path of the results file, or None if no `output_path` is set. `samples` are the
        samples by task; without them, only the results are written, and `save_results_samples` can
        follow. Raises `OutputError` if writing or pushing fails.
        """
        if not self.output_path:
            logger.info("Results are not saved, because no output_path is set.")
            return None
        name = self.general_config_tracker.model_name
        written = save(results, self.output_path, name, samples)
        self._saved = written if samples is None else None
        self.push(written, samples is not None, name)
        return written

    def save_results_samples(self, task_name: str, samples: Sequence[Mapping[str, Any]]) -> None:
        """Writes a task's sample log beside the last results file, and pushes it if configured.

        Does nothing if `save_results_aggregated` was not called, or already wrote the samples.
        Raises `OutputError` if pushing fails.
        """
        if self._saved is not None:
            stamp = self._saved.stem.rpartition("_")[2]
            file = save_samples(self._saved.parent, task_name, stamp, samples)
            if self.push_samples_to_hub:
                model = self.general_config_tracker.model_name
                self._upload_samples([file], model)

    def recreate_metadata_card(self) -> None:
        """Uploads a dataset card (README.md) to the hub repositories for results and for samples.

        Skips a repository if pushing to it is disabled; if both are the same one,
        `push_samples_to_hub` decides. The card tells the dataset viewer the latest results and
        sample files of every model and task.
        """
        from huggingface_hub import DatasetCard, DatasetCardData

        repositories = {self.results_repo: self.push_results_to_hub}
        repositories[self.details_repo] = self.push_samples_to_hub
        for repository, pushed in repositories.items():
            if not pushed:
                continue
            data = DatasetCardData(
                configs=_configs(self.api.list_repo_files(repository, repo_type="dataset")),
                pretty_name=f"Evaluation of {self.general_config_tracker.model_name}",
            )
            lines = [f"---\n{data.to_yaml()}\n---", f"# {data.pretty_name}"]
            lines += [f"Leaderboard: {self.leaderboard_url}"] if self.leaderboard_url else []
            lines += [f"Contact: {self.point_of_contact}"] if self.point_of_contact else []
            card = DatasetCard("\n\n".join(lines) + "\n")
            self.api.upload_file(
                path_or_fileobj=str(card).encode(),
                path_in_repo="README.md",
                repo_id=repository,
                repo_type="dataset",
                commit_message=f"Card of {datetime.now():%Y-%m-%d}",
            )

    def push(self, results: Path, with_samples: bool, model: str) -> None:
        """Pushes a results file and the sample logs beside it, as configured.

        `with_samples` is whether sample logs were written, and `model` is the model's name, which
        names the folder in the repositories. Does nothing if no push is configured. Raises
        `OutputError` if pushing fails.
        """
        self.general_config_tracker.set_model_name(model)
        stamp = results.stem.rpartition("_")[2]
        folder = sanitize_model_name(model)
        if self.push_results_to_hub:
            self._upload(self.results_repo, [results], folder, f"Results of {model}")
        if self.push_samples_to_hub and with_samples:
            logs = sorted(results.parent.glob(f"samples_*_{stamp}.*"))
            self._upload_samples(logs, model)

    def _upload_samples(self, logs: Sequence[Path], model: str) -> None:
        folder = sanitize_model_name(model)
        self._upload(self.details_repo, logs, folder, f"Samples of {model}")

    def _upload(self, repository: str, files: Sequence[Path], folder: str, message: str) -> None:
        """Commits `files` to `folder` of a dataset repository, which is created if missing.

        `message` is the commit message. Raises `OutputError` if anything fails.
        """
        from huggingface_hub import CommitOperationAdd

        try:
            self.api.create_repo(
                repo_id=repository, repo_type="dataset", private=not self.public_repo, exist_ok=True
            )
            if self.gated_repo:
                self.api.update_repo_settings(repository, gated="auto", repo_type="dataset")
            self.api.create_commit(
                repo_id=repository,
                repo_type="dataset",
                operations=[CommitOperationAdd(f"{folder}/{f.name}", str(f)) for f in files],
                commit_message=message,
            )
        except Exception as error:
            raise OutputError(
                f"{repository}: could not push to this repository ({error}). The files are saved "
                f"in {files[0].parent if files else self.output_path}."
            ) from error


def _configs(files: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the `configs` of a dataset card: for each model and task, its latest file.

    `files` are the paths in the repository, `<model>/<kind>_<time>.<extension>`, where `<kind>` is
    `results` or `samples_<task>`; files that are in no folder, or have no underscore, are ignored.
    The name of a config is `<model>__results` or `<model>__<task>`.
    """
    latest: dict[str, str] = {}
    for file in sorted(files):
        folder, _, name = file.rpartition("/")
        kind = name.rpartition("_")[0].removeprefix("samples_")
        if folder and kind:
            latest[f"{folder}__{kind}"] = file
    return [
        {"config_name": name, "data_files": [{"split": "latest", "path": file}]}
        for name, file in latest.items()
    ]
