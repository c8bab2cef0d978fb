"""Tests whole evaluations against a server that fails in every way that servers do."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from tests.conftest import Folder
from tests.served import faulty_server as faults
from tests.served.faulty_server import MODEL, Fault, FaultyServer
from tests.served.runs import (
    CHAT,
    COMPLETIONS,
    check_answers,
    questions,
    start,
    words,
    write_task,
)

Captured = pytest.CaptureFixture[str]

COUNT = 40


@pytest.fixture(autouse=True)
def _no_thread_stays_behind() -> Iterator[None]:
    yield
    assert "lm_eval-http" not in [thread.name for thread in threading.enumerate()]


@pytest.fixture
def work(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the working directory, with a task of 40 documents."""
    write_task(folder, COUNT)
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(folder.path / "cache"))
    return folder.path


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


def asked(server: FaultyServer) -> dict[str, int]:
    """Returns how often each prompt was asked since the last `forget`."""
    return dict(server.counts.asked)


def once(prompts: list[str]) -> dict[str, int]:
    return dict.fromkeys(prompts, 1)


# -- faults that pass --------------------------------------------------------------------------


PASSING = {
    "429": faults.status(429),
    "429 with Retry-After": faults.status(429, "slow", Retry_After="0.1"),
    "429 with Retry-After as a date": faults.status(429, "slow", **faults.retry_after_date(0)),
    "429 with retry-after-ms": faults.status(429, "slow", retry_after_ms="50"),
    "500": faults.status(500),
    "503": faults.status(503),
    "reset": faults.reset,
    "cut off": faults.cut_off,
    "half-written JSON": faults.HALF_JSON,
    "stall": faults.stall(1.0),
    **{f"wrong content {n}": fault for n, fault in enumerate(faults.WRONG_CONTENTS)},
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_costs_no_answer(fault: str, server: FaultyServer, work: Path) -> None:
    server.plan = lambda attempt: (
        PASSING[fault] if attempt.number == 1 and attempt.prompt in questions(COUNT)[::4] else None
    )
    timeout = 0.5 if fault == "stall" else 60
    assert main(words(server, "--log_samples", timeout=timeout)) == 0
    check_answers(work, COUNT)
    assert server.counts.answered == once(questions(COUNT))
    again = set(questions(COUNT)[::4])
    assert asked(server) == {prompt: 1 + (prompt in again) for prompt in questions(COUNT)}


@pytest.mark.parametrize("model", [COMPLETIONS, CHAT])
def test_many_faults_at_random_cost_no_answer(model: str, server: FaultyServer, work: Path) -> None:
    kinds = [fault for name, fault in PASSING.items() if name != "stall"]
    server.plan = faults.at_random(0.3, *kinds)
    assert main(words(server, "--log_samples", model=model, max_retries=10)) == 0
    check_answers(work, COUNT)
    assert server.counts.answered == once(questions(COUNT))
    assert server.counts.asked.total() > COUNT + 5


@pytest.mark.parametrize("fault", [faults.status(500), faults.reset, faults.HALF_JSON])
def test_one_worker_of_eight_that_always_fails_costs_no_answer(
    fault: Fault, server: FaultyServer, work: Path
) -> None:
    server.plan, server.delay = faults.one_worker_of_eight(fault), 0.02
    assert main(words(server, "--log_samples")) == 0
    check_answers(work, COUNT)
    assert server.counts.answered == once(questions(COUNT))


def test_a_server_that_restarts_midway_costs_no_answer(server: FaultyServer, work: Path) -> None:
    server.delay = 0.02

    def restart() -> None:
        while server.counts.answered.total() < 10:
            time.sleep(0.001)
        server.stop()
        time.sleep(0.3)
        server.start()

    thread = threading.Thread(target=restart)
    thread.start()
    code = main(words(server, "--log_samples", num_concurrent=4))
    thread.join()
    assert code == 0
    check_answers(work, COUNT)
    assert max(asked(server).values()) <= 2


@pytest.mark.parametrize("fault", ["503", "429 with Retry-After", "500", "reset", "cut off"])
def test_a_fault_that_passes_does_not_change_what_the_probe_finds(
    fault: str, server: FaultyServer, work: Path, capsys: Captured
) -> None:
    arguments = f"base_url={server.url},model={MODEL},tokenizer_backend=none"
    doctor = ["doctor", "--json", "--model", COMPLETIONS, "--model_args", arguments]
    assert main(doctor) == 0
    healthy = json.loads(capsys.readouterr().out)
    seen: set[str] = set()

    def rules(body: Mapping[str, Any]) -> Fault | None:
        is_new = str(body) not in seen and not (fault == "500" and not body)
        seen.add(str(body))
        return PASSING[fault] if is_new else None

    server.rules = rules
    assert main(doctor) == 0
    found = json.loads(capsys.readouterr().out)
    assert server.refused > 3
    assert {**found, "time": 0} == {**healthy, "time": 0}


# -- faults that stay --------------------------------------------------------------------------

STAYING: dict[str, tuple[Fault, str]] = {
    "content filter": (faults.FILTERED, "status 400: The content was filtered."),
    "too long": (faults.TOO_LONG, "status 400: This model's maximum context length is 256 tokens."),
    "always 500": (faults.status(500, "out of memory"), "status 500: out of memory (6 attempts)"),
    "an hour": (
        faults.status(429, "slow", Retry_After="3600"),
        "status 429: slow (the server asks to wait 3600 s, longer than the deadline of 600 s)",
    ),
    "always half": (faults.HALF_JSON, "unusable reply"),
    "always reset": (faults.reset, "ClientOSError"),
    "always late": (faults.stall(1.0), "no reply within 0.3 s (6 attempts)"),
}


@pytest.mark.parametrize("fault", STAYING)
def test_a_request_that_fails_for_good_is_named_and_asked_again_when_resumed(
    fault: str, server: FaultyServer, work: Path, capsys: Captured
) -> None:
    kind, reason = STAYING[fault]
    server.plan = faults.prompts_with("(103|117) plus", kind)
    began = time.monotonic()
    command = words(server, "--log_samples", timeout=0.3 if fault == "always late" else 60)
    assert main(command) == 1
    assert time.monotonic() - began < 15
    named = check_answers(work, COUNT, [3, 17])["unanswered_documents"]["sums"]
    assert named["3"].startswith(reason.removesuffix("…"))
    assert f"task sums, document 3: the model gave no answer ({reason}" in capsys.readouterr().err
    healthy = [prompt for n, prompt in enumerate(questions(COUNT)) if n not in (3, 17)]
    assert server.counts.answered == once(healthy)

    server.forget()
    server.plan = None
    assert main(command) == 0
    check_answers(work, COUNT)
    assert asked(server) == once([questions(COUNT)[n] for n in (3, 17)])

    server.forget()
    assert main(command) == 0
    assert asked(server) == {}


def test_too_many_failures_stop_the_run_with_the_last_reason(
    server: FaultyServer, work: Path, capsys: Captured
) -> None:
    server.plan = faults.prompts_with("1[0-2]. plus", faults.FILTERED)
    server.delay = 0.3
    command = words(server, num_concurrent=2)
    assert main(command) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "of 40 requests failed, more than --max_failed allows (2)" in error
    assert "status 400: The content was filtered. Run the same command again" in error
    assert server.counts.asked.total() < COUNT  # it did not wait for the rest
    assert not [*work.rglob("results_2*.json")]

    answered, server.plan, server.delay = set(server.counts.answered), None, 0.0
    server.forget()
    assert main([*command, "--log_samples"]) == 0
    check_answers(work, COUNT)
    stored_none = set(questions(COUNT)) - answered
    assert set(asked(server)) >= stored_none
    assert server.counts.asked.total() <= len(stored_none) + 4  # those in flight at the end


@pytest.mark.parametrize(("allowed", "code"), [("0", 2), ("3", 1), ("0.05", 2), ("0.9", 1)])
def test_max_failed_is_a_number_or_a_share(
    allowed: str, code: int, server: FaultyServer, work: Path
) -> None:
    server.plan = faults.prompts_with("10[123] plus", faults.FILTERED)
    assert main(words(server, "--max_failed", allowed)) == code


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (faults.status(401, "bad key"), "status 401: bad key"),
        (faults.QUOTA, "status 429: You have no credit."),
    ],
)
def test_an_error_that_concerns_all_requests_ends_the_run_and_keeps_the_answers(
    fault: Fault, reason: str, server: FaultyServer, work: Path, capsys: Captured
) -> None:
    server.plan = faults.after(15, fault)
    command = words(server, "--log_samples", num_concurrent=2)
    assert main(command) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert server.counts.asked.total() <= 15 + 2
    answered = set(server.counts.answered)

    server.plan = None
    server.forget()
    assert main(command) == 0
    check_answers(work, COUNT)
    assert set(asked(server)) >= set(questions(COUNT)) - answered
    assert server.counts.asked.total() <= COUNT - 15 + 2


def test_a_server_that_stays_away_ends_the_run_and_keeps_the_answers(
    server: FaultyServer, work: Path, capsys: Captured
) -> None:
    server.delay = 0.02

    def stop() -> None:
        while server.counts.answered.total() < 10:
            time.sleep(0.001)
        server.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    command = words(server, "--log_samples", num_concurrent=2, deadline=0.5)
    assert main(command) == 2
    thread.join()
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{server.url}/v1/completions cannot be reached" in error
    assert "run the same command again" in error

    answered = set(server.counts.answered)
    server.forget()
    server.start()
    assert main(command) == 0
    check_answers(work, COUNT)
    assert server.counts.asked.total() <= COUNT - len(answered) + 2


def test_no_server_at_all_is_reported_at_once(
    server: FaultyServer, work: Path, capsys: Captured
) -> None:
    server.stop()
    began = time.monotonic()
    assert main(words(server)) == 2
    assert time.monotonic() - began < 3
    assert f"no server answers at {server.url}" in capsys.readouterr().err
    server.start()


# -- log-likelihoods ---------------------------------------------------------------------------


def test_one_refused_prompt_of_a_batch_leaves_the_others_their_scores(
    colours: Folder, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts are token ids here, several in a request, and one of them is too long."""
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(colours.path / "cache"))
    weights = Path(lm_eval.__file__).parent / "models" / "demo" / "weights"
    model = {"base_url": server.url, "model": "m", "tokenizer": str(weights), "probe": False}

    def evaluate() -> Any:
        found: Any = lm_eval.simple_evaluate(
            COMPLETIONS,
            model_args={**model, "batch_size": 4},
            tasks=["colours"],
            task_manager=lm_eval.tasks.TaskManager(include_path=str(colours.path)),
            max_failed=None,
            bootstrap_iters=0,
        )
        return found

    whole = evaluate()
    assert "partial" not in whole
    bad = server.attempts[0].prompt
    server.forget()
    server.plan = lambda attempt: faults.TOO_LONG if attempt.prompt == bad else None
    part = evaluate()
    (missing,) = part["unanswered_documents"]["colours"]
    scores = {s["doc_id"]: s["resps"] for s in whole["samples"]["colours"]}
    del scores[int(missing)]
    assert {s["doc_id"]: s["resps"] for s in part["samples"]["colours"]} == scores
    assert part["failed_requests"] == {"colours": 1}


# -- parameters that the server refuses --------------------------------------------------------


def refusing(*names: str, renamed: str | None = None) -> faults.Rules:
    """Returns rules of a server that refuses parameters, and wants another name for one."""

    def rules(body: Mapping[str, Any]) -> Fault | None:
        for name in names:
            if name in body:
                return faults.status(400, f"Unsupported parameter: '{name}' is not supported.")
        if renamed is not None and "max_tokens" in body:
            message = f"'max_tokens' is not supported with this model. Use '{renamed}' instead."
            return faults.status(400, message)
        return None

    return rules


def test_parameters_that_the_server_refuses_are_learned_once_and_logged_once(
    server: FaultyServer, work: Path, capsys: Captured
) -> None:
    server.rules = refusing("temperature", "seed", renamed="max_completion_tokens")
    assert main(words(server, "--log_samples", model=CHAT)) == 0
    check_answers(work, COUNT)
    assert asked(server) == once(questions(COUNT))  # right at the first attempt
    assert server.refused == 3  # one for each parameter, by the probe
    assert all("temperature" not in attempt.body for attempt in server.attempts)
    assert {attempt.body["max_completion_tokens"] for attempt in server.attempts} == {8}
    errors = capsys.readouterr().err
    assert errors.count("refuses the parameter temperature") == 1
    assert errors.count("refuses the parameter max_tokens; max_completion_tokens is sent") == 1

    server.forget()
    assert main(words(server, "--fresh", model=CHAT)) == 0
    assert server.refused == 0  # remembered with the certificate
    assert "refuses the parameters seed, temperature, max_tokens" in capsys.readouterr().err


def test_parameters_are_learned_without_a_probe_too(server: FaultyServer, work: Path) -> None:
    server.rules, server.delay = refusing("temperature"), 0.01
    command = words(server, "--log_samples", model=CHAT, probe=False, identity="x")
    assert main(command) == 0
    check_answers(work, COUNT)
    assert asked(server) == once(questions(COUNT))
    assert server.refused <= 16  # those in flight before the first refusal


def test_an_answer_that_cannot_be_begun_is_asked_for_in_the_question(
    server: FaultyServer, work: Path, capsys: Captured
) -> None:
    def rules(body: Mapping[str, Any]) -> Fault | None:
        messages = body.get("messages")
        if messages and messages[-1]["role"] == "assistant":
            return faults.status(400, "This model does not support assistant message prefill.")
        return None

    file = work / "sums.yaml"
    file.write_text(file.read_text() + 'gen_prefix: "The sum is"\n')
    server.rules, server.delay = rules, 0.01
    assert main(words(server, "--log_samples", model=CHAT)) == 0
    check_answers(work, COUNT)
    assert set(asked(server).values()) == {1}
    assert server.refused <= 16
    assert {attempt.body["messages"][-1]["role"] for attempt in server.attempts} == {"user"}
    assert server.attempts[0].prompt.endswith("\nThe sum is")
    assert capsys.readouterr().err.count("does not continue an assistant message") == 1


# -- interrupts and notebooks ------------------------------------------------------------------


def test_ctrl_c_takes_the_answers_in_flight_and_the_same_command_asks_for_the_rest(
    server: FaultyServer, work: Path
) -> None:
    server.delay = 0.15
    command = words(server, "--log_samples", num_concurrent=4)
    process = start(work, command)
    while server.counts.answered.total() < 8:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted: waiting a few seconds for the answers to" in errors
    assert "Traceback" not in errors
    first = set(server.counts.answered)
    assert 8 <= len(first) < COUNT
    assert server.counts.asked == server.counts.answered  # those in flight were waited for

    server.forget()
    server.delay = 0.0
    assert main(command) == 0
    check_answers(work, COUNT)
    assert asked(server) == once([prompt for prompt in questions(COUNT) if prompt not in first])


def test_a_second_ctrl_c_stops_at_once(server: FaultyServer, work: Path) -> None:
    server.delay = 30.0
    process = start(work, words(server, num_concurrent=4))
    while server.counts.asked.total() < 4:
        assert process.poll() is None
        time.sleep(0.01)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - began < 5


def test_it_works_in_a_notebook_whose_event_loop_runs(server: FaultyServer, work: Path) -> None:
    async def cell() -> Any:
        return lm_eval.simple_evaluate(
            COMPLETIONS,
            model_args={"base_url": server.url, "model": "m", "tokenizer_backend": "none"},
            tasks=["sums"],
            task_manager=lm_eval.tasks.TaskManager(include_path="."),
            bootstrap_iters=0,
        )

    assert asyncio.run(cell())["results"]["sums"]["exact_match,number"] == 1.0


def test_answers_are_stored_as_they_arrive(server: FaultyServer, work: Path) -> None:
    """A process that is killed loses only what was in flight, or has just arrived."""
    server.delay = 0.1
    command = words(server, "--log_samples", num_concurrent=2)
    process = start(work, command)
    while server.counts.answered.total() < 20:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=60)
    server.forget()
    server.delay = 0.0
    assert main(command) == 0
    check_answers(work, COUNT)
    assert server.counts.asked.total() < COUNT - 10
