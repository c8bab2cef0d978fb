"""Groups the runs of a sweep into jobs: the runs of one job share a loaded model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lm_eval.sweeps.devices import Gpu, gpus_needed, split_arguments, weights_size
from lm_eval.sweeps.matrix import SweepRun

#: Settings that do not change which model is created, so that runs that differ in them share it.
_NOT_OF_MODEL = {
    *("tasks", "num_fewshot", "limit", "samples", "sample", "sample_seed", "use_cache", "fresh"),
    *("max_failed", "cache_requests", "check_integrity", "write_out", "log_samples"),
    *("samples_format", "output_path", "predict_only", "system_instruction"),
    *("apply_chat_template", "fewshot_as_multiturn", "show_config", "include_path", "data_dir"),
    *("gen_kwargs", "wandb_args", "wandb_config_args", "hf_hub_log_args", "trackio_args", "seed"),
    *("bootstrap_iters", "confidence", "cluster", "decontaminate", "confirm_run_unsafe_code"),
    *("require_isolation", "metadata", "environment", "verbosity"),
}


@dataclass(frozen=True)
class Job:
    """Runs of one model, one after the other in one process.

    Attributes:
        runs: the runs.
        gpus: how many GPUs the model needs.
        size: the size of its weights in bytes; 0 if it is not known.
    """

    runs: Sequence[SweepRun]
    gpus: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        """The name of its model; that of its first run if there is none."""
        return self.runs[0].model or self.runs[0].name

    def without(self, names: Sequence[str]) -> Job | None:
        """Returns the job without these runs; None if none is left."""
        left = [run for run in self.runs if run.name not in names]
        return replace(self, runs=left) if left else None


def jobs_of(runs: Sequence[SweepRun], gpus: Sequence[Gpu]) -> list[Job]:
    """Returns the jobs of a sweep, those with the largest models first.

    Large models start first, so that small ones fill the GPUs that these leave. Jobs of equal size
    keep the order of the runs. A transformers model that one GPU cannot hold is split over several.
    """
    by_model: dict[str, list[SweepRun]] = {}
    for run in runs:
        settings = run.config.settings()
        of_model = {key: value for key, value in settings.items() if key not in _NOT_OF_MODEL}
        by_model.setdefault(json.dumps(of_model, sort_keys=True, default=str), []).append(run)
    jobs = [_job(own, gpus) for own in by_model.values()]
    return sorted(jobs, key=lambda job: (-job.gpus, -job.size))


def _job(runs: Sequence[SweepRun], gpus: Sequence[Gpu]) -> Job:
    first = runs[0].config
    count = gpus_needed(first, gpus)
    if extra := split_arguments(first, count):
        runs = [
            replace(run, config=replace(run.config, model_args={**run.config.model_args, **extra}))
            for run in runs
        ]
    return Job(runs, count, (weights_size(first) or 0) if count else 0)
