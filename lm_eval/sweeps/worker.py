"""The process of one job: loads the model, evaluates the job's runs and reports events.

The parent writes one line of JSON to stdin: a list of runs, each with its `name` and `settings`.
The worker answers on stdout with one line of JSON per event. What libraries print goes to stderr.
The parent keeps stdin open; when it ends, even if it is killed, the worker ends as well.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.config.run import RunConfig
from lm_eval.errors import EvalError, describe_cause, raise_interrupt
from lm_eval.evaluator import exits_as_errors, run_evaluation
from lm_eval.models.create import (
    check_before_loading,
    check_model,
    close_model,
    create_model,
)
from lm_eval.models.seeding import seed_generators
from lm_eval.runs.observer import RunObserver

#: Sends an event to the parent.
Send = Callable[[dict[str, Any]], None]

LOADING, LOADED, STARTED, FINISHED = "loading", "loaded", "started", "finished"
FAILED, MODEL_FAILED, DONE = "failed", "model failed", "done"


def connect() -> tuple[list[dict[str, Any]], Send]:
    """Returns the runs that the parent sent, and the function that sends events to it.

    Redirects stdout to stderr, and stdin to nothing, for the code of models and tasks. Starts a
    thread that ends this process when the parent has ended.
    """
    received = b""
    while not received.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            os._exit(1)
        received += part
    parent, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    def send(event: dict[str, Any]) -> None:
        os.write(events, (json.dumps(event) + "\n").encode())

    return json.loads(received), send


def _end_with(parent: int) -> None:
    """Ends this process at once when the other end of the pipe `parent` is closed.

    Stored answers are complete at any time.
    """
    while os.read(parent, 1):
        pass
    os._exit(1)


def work(
    runs: Sequence[dict[str, Any]], send: Send, observers: Callable[[], list[RunObserver]]
) -> None:
    """Evaluates the runs of a job with one model, and reports what becomes of each.

    An error in one run does not stop the next one. If the model cannot be loaded, none is run.

    Args:
        runs: the runs, each with its `name`, its `settings` (`RunConfig.settings`), and whether
            stored answers are ignored (`fresh`).
        send: sends an event.
        observers: returns the observers of one run.
    """
    configs = {run["name"]: _config(run) for run in runs}
    send({"event": LOADING})
    try:
        with exits_as_errors():
            first = next(iter(configs.values()))
            check_model(first)
            check_before_loading(first)
            seed_generators(first.seed)
            lm = create_model(first)
    except Exception as error:
        send({"event": MODEL_FAILED, "message": _message(error)})
        return
    send({"event": LOADED})
    for name, config in configs.items():
        send({"event": STARTED, "run": name})
        try:
            results = run_evaluation(config, observers=observers(), lm=lm)
        except BaseException as error:
            raise_interrupt(error)
            send({"event": FAILED, "run": name, "message": _message(error)})
            continue
        partial = bool(results and results.get("partial"))
        answers = results.get("answers") if results else None
        asked = answers["asked"] if answers else 0
        send({"event": FINISHED, "run": name, "partial": partial, "asked": asked})
    close_model(lm)
    send({"event": DONE})


def _config(run: dict[str, Any]) -> RunConfig:
    """Returns the settings of a run that the parent has sent."""
    return RunConfig.from_record({**run["settings"], "fresh": run["fresh"]}, "the sweep")


def _message(error: BaseException) -> str:
    """Returns the text of an error on one line; the type and place of one that is not ours."""
    text = str(error) if isinstance(error, EvalError) else describe_cause(error)
    return " ".join(text.split())
