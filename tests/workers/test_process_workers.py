"""Tests runs with `--executor processes`."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.engine.workers import processes, same_model
from lm_eval.engine.workers.processes import environments, worker_count
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.scripted import ScriptedLM
from tests.workers import lms
from tests.workers.battery import (
    MODEL,
    assert_same_scores,
    command,
    demo_results,
    environment,
    failed,
    log_results,
    reference,
    request_text,
    saved,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_demo_has_the_scores_of_a_run_in_one_process(workers: int) -> None:
    one = demo_results(4)
    two = demo_results(4, executor="processes", workers=workers)
    assert_same_scores(one, two)
    assert two["usage"]["tokens_out"] == one["usage"]["tokens_out"]
    assert two["usage"]["tokens_in"] == one["usage"]["tokens_in"]
    assert two["model_identity"] == one["model_identity"]


def test_the_driver_loads_no_weights() -> None:
    code = (
        "import sys, lm_eval\n"
        "r = lm_eval.simple_evaluate('demo', tasks=['demo_choice'], limit=2, executor='processes',"
        " workers=1)\n"
        "from lm_eval.models.demo import llama\n"
        "import gc\n"
        "print([type(o).__name__ for o in gc.get_objects() if isinstance(o, llama.Llama)])\n"
    )
    done = subprocess.run(
        [command()[0], "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_killed_processes_are_replaced_and_answers_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = threading.Event()

    def kill_some() -> None:
        for _ in range(2):  # a request with which three workers end is given up
            before = set(lms.processes(log))
            while not (new := set(lms.processes(log)) - before) and not done.wait(0.01):
                continue
            for process in [*new][:1]:
                os.kill(process, signal.SIGKILL)

    killer = threading.Thread(target=kill_some)
    killer.start()
    arguments = {"seconds": 0.02}
    try:
        found = log_results(log, model_args=arguments, executor="processes", workers=2)
    finally:
        done.set()
        killer.join()
    assert found["results"] == log_results(tmp_path / "other")["results"]
    times = Counter(lms.asked(log))
    assert len(times) == len(set(lms.asked(tmp_path / "other")))
    # A batch may have been logged but not sent; with two workers, at most the portions in flight.
    assert times.total() - len(times) < 200


def test_a_request_that_kills_workers_is_named_and_the_rest_is_scored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {"deadly": request_text("demo_choice", 17, 2)}
    found = log_results(tmp_path / "log", model_args=arguments, executor="processes", workers=2)
    assert found["partial"] is True
    assert list(found["unanswered_documents"]["demo_choice"]) == ["17"]
    assert "task demo_choice, document 17 (request 2 of it) is given up" in caplog.text
    assert len(set(lms.asked(tmp_path / "log"))) == len(set(lms.asked(reference(tmp_path)))) - 1


def test_an_exception_on_everything_is_raised_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"LogLM\.loglikelihood failed: ValueError: cannot answer"):
        log_results(tmp_path / "log", model_args={"faulty": " "}, executor="processes", workers=2)


def test_a_killed_driver_is_resumed_without_workers(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    words = [
        *("run", "--model", MODEL, "--model_args", f"log={log},seconds=0.05"),
        *("--tasks", "demo_choice,demo_pairs", "--limit", "50", "--output_path", str(out)),
        *("--executor", "processes", "--workers", "2", "--bootstrap_iters", "0"),
    ]
    driver = subprocess.Popen(command(*words), env=environment(), stderr=subprocess.DEVNULL)
    while len(lms.asked(log)) < 100:
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    time.sleep(0.5)
    for process in lms.processes(log):
        assert not lms.is_running(process)  # no worker outlives its driver
    before = len(lms.asked(log))
    done = command("resume", str(out), "--executor", "in_process", "-v", "ERROR")
    subprocess.run(done, env=environment(), check=True, capture_output=True)
    times = Counter(lms.asked(log))
    assert times.total() - len(times) <= 32  # those of two batches that were not stored yet
    assert before + 50 < times.total()
    assert saved(out)["results"] == log_results(tmp_path / "other", limit=50)["results"]


def test_an_error_of_the_constructor_is_shown_once() -> None:
    words = ("run", "--model", MODEL, "--model_args", "broken=no disk", "--tasks", "demo_choice")
    error = failed(*words, "--executor", "processes", "--workers", "3")
    assert error.count("RuntimeError: no disk") == 1


@pytest.mark.parametrize("ends_it", [True, False])
def test_processes_that_a_model_starts_end_with_the_run(tmp_path: Path, ends_it: bool) -> None:
    """They hold the GPU of an engine. A worker that waits for requests ends as programs do."""
    other = tmp_path / "other"
    arguments = {"other": str(other), "ends_it": ends_it}
    lm_eval.simple_evaluate(
        f"{lms.__file__}:StartsAnother", arguments, ["demo_choice"], limit=1, executor="processes"
    )
    started = [int(line) for line in other.read_text().splitlines()]
    assert started
    assert all(map(lms.ends_soon, started))
    assert Path(f"{other}.ended").exists() == ends_it


def test_processes_that_a_model_starts_end_with_a_killed_worker(tmp_path: Path) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    first = []

    def kill() -> None:
        while not lms.processes(log):
            time.sleep(0.01)
        first.append(int(other.read_text().split()[0]))
        assert lms.is_running(first[0])
        os.kill(lms.processes(log)[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    arguments = {"other": str(other), "ends_it": False, "log": str(log), "seconds": 0.1}
    lm_eval.simple_evaluate(
        f"{lms.__file__}:StartsAnother",
        arguments,
        ["demo_choice"],
        limit=20,
        executor="processes",
        workers=1,
    )
    thread.join()
    assert first
    assert lms.ends_soon(first[0])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_that_a_model_starts_end_with_a_killed_driver(tmp_path: Path, how: int) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    words = ["--model", f"{lms.__file__}:StartsAnother", "--tasks", "demo_choice"]
    arguments = f"other={other},ends_it=False,log={log},seconds=0.1"
    where = ["--executor", "processes", "--workers", "1", "--output_path", str(tmp_path / "out")]
    driver = subprocess.Popen(
        command("run", *words, "--model_args", arguments, *where),
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    while len(lms.asked(log)) < 16:
        time.sleep(0.02)
        assert driver.poll() is None
    driver.send_signal(how)
    driver.wait()
    assert all(map(lms.ends_soon, [*lms.processes(log), *map(int, other.read_text().split())]))


def test_files_in_the_working_directory_hide_no_modules(tmp_path: Path) -> None:
    """The command does not import them either."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    script = tmp_path / "bin" / "lm-eval"
    script.write_text("from lm_eval.__main__ import cli_evaluate\ncli_evaluate()\n")
    (tmp_path / "work" / "queue.py").write_text("raise RuntimeError('not this file')\n")
    words = ("run", "--model", "demo", "--tasks", "demo_choice", "--limit", "1")
    done = subprocess.run(
        [command()[0], str(script), *words, "--executor", "processes", "--workers", "1"],
        cwd=tmp_path / "work",
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def own_class_in_documents(tmp_path: Path) -> dict[str, object]:
    """A task whose function puts an object of its own class into the documents."""
    (tmp_path / "utils.py").write_text(
        "class Extra:\n    number = 3\n\n\n"
        "def add(documents):\n    return [{**one, 'extra': Extra()} for one in documents]\n"
    )
    (tmp_path / "task.yaml").write_text(
        "include: demo_choice.yaml\ntask: own_class\nprocess_docs: !function utils.add\n"
    )
    demo = Path(lm_eval.__file__).parent / "tasks" / "demo"
    text = (demo / "demo_choice.yaml").read_text().replace("data/", f"{demo}/data/")
    (tmp_path / "demo_choice.yaml").write_text(text)
    manager = lm_eval.tasks.TaskManager(include_path=str(tmp_path), include_defaults=False)
    return {"tasks": ["own_class"], "task_manager": manager, "limit": 4, "bootstrap_iters": 0}


def test_documents_with_objects_of_a_task_are_no_obstacle(
    own_class_in_documents: dict[str, object], tmp_path: Path
) -> None:
    one = lm_eval.simple_evaluate(MODEL, executor="processes", workers=1, **own_class_in_documents)
    two = lm_eval.simple_evaluate(MODEL, **own_class_in_documents)
    assert one is not None
    assert two is not None
    assert_same_scores(one, two)


def test_a_model_that_reads_such_documents_is_told_the_reason(
    own_class_in_documents: dict[str, object],
) -> None:
    model = f"{lms.__file__}:ReadsDocuments"
    assert lm_eval.simple_evaluate(model, **own_class_in_documents) is not None
    with pytest.raises(ModelError, match=r"reads a document .* cannot be sent to workers"):
        lm_eval.simple_evaluate(model, executor="processes", workers=1, **own_class_in_documents)


def test_an_error_of_a_model_about_the_settings_of_the_run_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(
        ModelError, match=r"all workers have ended; the last one failed: .*no such seed"
    ):
        lm_eval.simple_evaluate(
            f"{lms.__file__}:BadContext",
            tasks=["demo_choice"],
            limit=1,
            executor="processes",
            workers=1,
            max_restarts=0,
        )
    assert "RuntimeError: no such seed" in caplog.text


def test_settings_that_cannot_work_are_refused_before_anything_starts() -> None:
    base = ("run", "--model", "demo", "--tasks", "demo_choice")
    assert "--executor processes" in failed(*base, "--workers", "2")
    assert "ray_address needs" in failed(*base, "--executor", "processes", "--ray_address", "auto")
    assert "workers must be a whole number" in failed(
        *base, "--executor", "processes", "--workers", "0"
    )
    gpus = ("--executor", "processes", "--workers", "2", "--gpus_per_worker", "1")
    needed = "2 workers with 1 GPUs each need 2 GPUs, and this machine has 1"
    assert needed in failed(*base, *gpus, CUDA_VISIBLE_DEVICES="0")


def test_workers_that_the_machine_cannot_start_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def child(*given: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(processes, "Child", child)
    with pytest.raises(ModelError, match=r"Too many open files. Give fewer --workers, or .*ulimit"):
        demo_results(1, executor="processes", workers=2)


def test_a_model_object_cannot_be_given_to_workers() -> None:
    with pytest.raises(ConfigError, match="a model object cannot be given to workers"):
        lm_eval.simple_evaluate(ScriptedLM(), tasks=["demo_choice"], executor="processes")


def test_other_versions_than_those_of_the_driver_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(same_model, "__version__", "0.0.1")
    with pytest.raises(ModelError, match=r"lm_eval 0\.0\.1 and .*Install the same versions"):
        demo_results(1, executor="processes", workers=1)


def test_gpus_are_divided_or_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def gpus(workers: int, each: float | None = None) -> list[str | None]:
        return [one.get("CUDA_VISIBLE_DEVICES") for one in environments(workers, each, None)]

    assert gpus(4) == ["4", "5", "6", "7"]
    assert gpus(2) == ["4,5", "6,7"]
    assert gpus(8) == ["4", "4", "5", "5", "6", "6", "7", "7"]
    assert gpus(2, 1) == ["4", "5"]
    assert gpus(3, 0) == ["", "", ""]
    assert (worker_count(None, None), worker_count(2, None), worker_count(0.5, None)) == (4, 2, 8)


def test_chat_templates_are_applied_by_a_worker(tmp_path: Path) -> None:
    """The class of the model is one of this file, which the worker imports by its path."""
    found = lm_eval.simple_evaluate(
        f"{__file__}:ChattyLM",
        tasks=["demo_choice"],
        limit=3,
        apply_chat_template=True,
        executor="processes",
        workers=1,
    )
    assert found is not None
    assert found["chat_template"] == "the template"
    assert found["samples"]["demo_choice"][0]["arguments"][0][0].startswith("<user>")


class ChattyLM(lms.LogLM):
    """A model with a chat template."""

    tokenizer_name = "chatty"

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return "".join(f"<{turn['role']}>{turn['content']}" for turn in chat_history)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return "the template"
