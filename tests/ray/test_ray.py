"""Tests runs with `--executor ray` on a cluster whose nodes are processes of this machine."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lm_eval.engine.workers import crew
from lm_eval.errors import ModelError
from tests.ray.conftest import Nodes
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

LOSSES = 10


@pytest.fixture(scope="module")
def expected() -> Mapping[str, Any]:
    return demo_results(6)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_demo_has_the_scores_of_a_run_in_one_process(
    workers: int, cluster: Nodes, expected: Mapping[str, Any]
) -> None:
    found = demo_results(
        6, executor="ray", ray_address=cluster.address, workers=workers, cpus_per_worker=1
    )
    assert_same_scores(expected, found)
    assert found["usage"]["tokens_out"] == expected["usage"]["tokens_out"]
    assert found["model_identity"] == expected["model_identity"]


def run_with_losses(
    folder: Path, lose: Callable[[], bool], address: str, losses: int
) -> Counter[str]:
    """Runs an evaluation during which workers are lost; returns how often each text was begun with.

    Raises `AssertionError` if the scores are not those of a run without losses. `lose` returns
    whether it could do it. The model pauses so that there is something to do for all losses,
    however long a loss takes.
    """
    log, out = folder / "log", folder / "out"
    pause = Path(f"{log}.pause")
    share = 1500 // losses
    pause.write_text(str(share))
    words = [
        *("run", "--model", MODEL, "--model_args", f"log={log},seconds=0.05"),
        *("--tasks", "demo_choice,demo_pairs", "--output_path", str(out), "--bootstrap_iters", "0"),
        *("--executor", "ray", "--ray_address", address, "--workers", "3"),
    ]
    with (folder / "messages").open("w") as messages:
        driver = subprocess.Popen(command(*words), env=environment(), stderr=messages)
    draw = random.Random(7)
    lost = 0
    while driver.poll() is None and lost < losses:
        known = len(lms.asked(log))
        while len(lms.asked(log)) < known + 8 and driver.poll() is None:
            time.sleep(0.02)  # until a worker answers again
        time.sleep(draw.uniform(0.0, 0.5))
        lost += lose()
        pause.with_suffix(".next").write_text(str(share * (lost + 1)))
        pause.with_suffix(".next").rename(pause)
    pause.unlink()
    assert driver.wait() == 0, (folder / "messages").read_text()
    assert lost == losses
    assert saved(out)["results"] == log_results(folder / "other")["results"]
    assert set(lms.asked(log)) == set(lms.asked(folder / "other"))
    return Counter(lms.asked(Path(f"{log}.begun")))


def test_workers_are_killed_at_random_moments(cluster: Nodes, tmp_path: Path) -> None:
    """Kills the process of the model or, every other time, that of the actor."""
    draw = random.Random(3)
    turn = 0

    def kill_worker() -> bool:
        nonlocal turn
        running = [p for p in lms.processes(tmp_path / "log") if lms.is_running(p)]
        if not running:
            return False
        process = draw.choice(running)
        turn += 1
        if turn % 2:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(process, signal.SIGKILL)
        return True

    times = run_with_losses(tmp_path, kill_worker, cluster.address, LOSSES)
    repeated = times.total() - len(times)
    print(f"{LOSSES} workers killed, {repeated} of {len(times)} requests asked again")
    # Answers are sent batch by batch: a loss costs the batch in flight, and a few on their way.
    assert 0 < repeated <= LOSSES * 32


def test_nodes_are_killed_at_random_moments(cluster: Nodes, tmp_path: Path) -> None:
    def kill_node() -> bool:
        cluster.kill(draw.choice(cluster.nodes))
        cluster.add()
        return True

    draw = random.Random(5)
    times = run_with_losses(tmp_path, kill_node, cluster.address, LOSSES)
    repeated = times.total() - len(times)
    print(f"{LOSSES} nodes killed, {repeated} of {len(times)} requests asked again")
    assert repeated <= LOSSES * 2 * 32  # two workers per node


def test_a_cluster_that_shrinks_to_nothing_and_grows_again_goes_on(
    cluster: Nodes, tmp_path: Path
) -> None:
    def replace_all() -> bool:
        for node in list(cluster.nodes):
            cluster.kill(node)
        time.sleep(4)
        cluster.add()
        return True

    run_with_losses(tmp_path, replace_all, cluster.address, 1)


def test_a_request_that_kills_workers_is_named_and_the_rest_is_scored(
    cluster: Nodes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = log_results(
        tmp_path / "log",
        model_args={"deadly": request_text("demo_choice", 17, 2)},
        executor="ray",
        ray_address=cluster.address,
        workers=2,
    )
    assert found["partial"] is True
    assert list(found["unanswered_documents"]["demo_choice"]) == ["17"]
    assert "task demo_choice, document 17 (request 2 of it) is given up" in caplog.text
    assert len(set(lms.asked(tmp_path / "log"))) == len(set(lms.asked(reference(tmp_path)))) - 1


@pytest.mark.parametrize("again", ["in_process", "ray"])
def test_a_killed_driver_is_resumed(cluster: Nodes, tmp_path: Path, again: str) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    there = ("--executor", "ray", "--ray_address", cluster.address, "--workers", "2")
    words = [
        *("run", "--model", MODEL, "--model_args", f"log={log},seconds=0.05"),
        *("--tasks", "demo_choice,demo_pairs", "--limit", "60", "--output_path", str(out)),
        *("--bootstrap_iters", "0"),
    ]
    driver = subprocess.Popen(command(*words, *there), env=environment(), stderr=subprocess.DEVNULL)
    while len(lms.asked(log)) < 100:
        time.sleep(0.02)
        assert driver.poll() is None
    driver.kill()
    driver.wait()
    while any(lms.is_running(process) for process in lms.processes(log)):
        time.sleep(0.1)
    options = there if again == "ray" else ("--executor", again)
    subprocess.run(
        command("resume", str(out), *options), env=environment(), check=True, capture_output=True
    )
    times = Counter(lms.asked(log))
    repeated = times.total() - len(times)
    print(f"{repeated} of {len(times)} requests asked again")
    assert repeated <= 200  # answers on their way, and those that orphaned workers still gave
    assert saved(out)["results"] == log_results(tmp_path / "other", limit=60)["results"]


def test_an_address_without_a_cluster_is_an_error() -> None:
    words = ("run", "--model", "demo", "--tasks", "demo_choice", "--executor", "ray")
    error = failed(*words, "--ray_address", "127.0.0.1:6", RAY_gcs_rpc_server_connect_timeout_s="1")
    assert "Ray cluster at '127.0.0.1:6'" in error


def test_workers_that_fit_nowhere_are_an_error(
    cluster: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "PLACE_SECONDS", 3.0)
    with pytest.raises(ModelError, match="needs 64 CPUs and 0 GPUs on one machine"):
        demo_results(1, executor="ray", ray_address=cluster.address, workers=2, cpus_per_worker=64)


def test_more_workers_than_there_is_room_for_do_not_block(cluster: Nodes) -> None:
    found = demo_results(2, executor="ray", ray_address=cluster.address, workers=9)
    assert_same_scores(demo_results(2), found)


def test_an_error_of_the_constructor_is_shown_once(cluster: Nodes) -> None:
    words = ("run", "--model", MODEL, "--model_args", "broken=no disk", "--tasks", "demo_choice")
    where = ("--executor", "ray", "--ray_address", cluster.address, "--workers", "3")
    assert failed(*words, *where).count("RuntimeError: no disk") == 1


def test_a_worker_with_another_model_ends_the_run(cluster: Nodes, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def change() -> None:
        while not lms.processes(log):
            time.sleep(0.02)
        Path(f"{log}.identity").write_text("other weights")
        os.kill(lms.processes(log)[0], signal.SIGKILL)

    thread = threading.Thread(target=change)
    thread.start()
    with pytest.raises(ModelError, match=r"has loaded another model .*\(different: own\)"):
        log_results(
            log,
            model_args={"seconds": 0.1},
            executor="ray",
            ray_address=cluster.address,
            workers=2,
        )
    thread.join()
