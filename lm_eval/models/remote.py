"""Connects a run to workers that load its model, so that the driver does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lm_eval.api.registry import model_registry
from lm_eval.config.run import RunConfig
from lm_eval.engine.workers.crew import Crew
from lm_eval.engine.workers.messages import Start
from lm_eval.engine.workers.pool import WorkerPool
from lm_eval.engine.workers.processes import ProcessPool, environments, worker_count
from lm_eval.engine.workers.remote_model import RemoteLM
from lm_eval.errors import ConfigError
from lm_eval.launch import launched_count

#: The settings of a run that its model depends on.
_SETTINGS = (
    *("model", "model_args", "batch_size", "max_batch_size", "device", "apply_chat_template"),
    *("seed", "environment"),
)

_HOST = "lm_eval.models.worker_host:ModelHost"
#: How often in a row a worker may end without an answer, if the run does not say it.
DEFAULT_RESTARTS = 3


def connect(run: RunConfig) -> RemoteLM:
    """Starts the workers of a run; returns when the first one has loaded the model.

    `run.executor` is `processes` or `ray`. Raises `ConfigError` if the model or the settings cannot
    be used with workers, and what `RemoteLM` raises.
    """
    check_workers(run)
    start = Start(_HOST, host_settings(run, _module_of(run)), str(Path.cwd()))
    pool: WorkerPool
    if run.executor == "ray":
        from lm_eval.engine.workers.ray_cluster import RayPool

        pool = RayPool(start, run.ray_address, run.gpus_per_worker, run.cpus_per_worker)
        count = run.workers
    else:
        count = run.workers or worker_count(run.gpus_per_worker, run.cpus_per_worker)
        pool = ProcessPool(start, environments(count, run.gpus_per_worker, run.cpus_per_worker))
    restarts = DEFAULT_RESTARTS if run.max_restarts is None else run.max_restarts
    batch = run.batch_size if isinstance(run.batch_size, int) else None
    return RemoteLM(Crew(pool, count, restarts), batch)


def check_workers(run: RunConfig) -> None:
    """Raises `ConfigError` for a run that cannot use workers; starts nothing."""
    if not isinstance(run.model, str):
        raise ConfigError(
            f"executor {run.executor!r}: a model object cannot be given to workers. Give the name "
            "of a model, or its class as FILE.py:CLASS, with model_args."
        )
    if launched_count() > 1:
        raise ConfigError(
            f"executor {run.executor!r} starts its workers itself: run the command without "
            "accelerate launch or torchrun."
        )
    if run.executor == "ray":
        from lm_eval.engine.workers.ray_cluster import check_installed

        check_installed()


def _module_of(run: RunConfig) -> str | None:
    """Returns the module that a worker must import to know the name of the model; None for ours.

    Raises `ConfigError` if the program has registered the name itself, in its main module.
    """
    place = model_registry.locations().get(run.model, "")
    module = place.partition(":")[0]
    if module == "__main__":
        raise ConfigError(
            f"executor {run.executor!r}: workers cannot import the model {run.model!r} from the "
            "main program. Put the class into a file and give it as FILE.py:CLASS."
        )
    known = module and module.partition(".")[0] != "lm_eval" and module in sys.modules
    return module if known else None


def host_settings(run: RunConfig, module: str | None = None) -> dict[str, Any]:
    """Returns the settings that a `ModelHost` needs to create the model of the run.

    `module` is a module that registers the model, if it is not one of this package.
    """
    return {"module": module, **{name: getattr(run, name) for name in _SETTINGS}}
