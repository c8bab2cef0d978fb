"""Tests the answer store: answers are stored, found again, and never those of another model."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.config.run import RunConfig
from lm_eval.engine.answer import answer
from lm_eval.engine.choose_executor import executor_for
from lm_eval.engine.keys import prompts_hash, request_keys, set_digests
from lm_eval.engine.store import FORMAT, MISSING, AnswerStore
from lm_eval.errors import EvalError, ModelError, OutputError, StoreError
from lm_eval.models.identity import fingerprint, model_identity
from lm_eval.models.scripted import ScriptedLM
from lm_eval.runs.folder import RunFolder
from lm_eval.runs.stored import find_runs
from lm_eval.tasks import TaskManager
from tests.conftest import Command, Folder

# -- keys -------------------------------------------------------------------------------------


def key(kind: Any, *arguments: Any, seed: object = 1, repeat: int = 0) -> bytes | None:
    request = Instance(kind, {}, arguments, 0, ("t", 0, repeat + 1))
    set_digests([request])
    return request_keys([request] * (repeat + 1), seed)[-1]


SAMPLED = {"until": ["\n"], "do_sample": True, "temperature": 0.7}
GREEDY = {"until": ["\n"], "do_sample": False, "temperature": 0.0}


def test_every_part_of_a_request_is_part_of_its_key() -> None:
    keys = [
        key("loglikelihood", "a", "b"),
        key("loglikelihood", "a ", "b"),
        key("loglikelihood", "ab", ""),
        key("loglikelihood", "", "ab"),
        key("loglikelihood", "a", "b", repeat=1),
        key("loglikelihood", "a", "b", repeat=2),
        key("loglikelihood", "a", "b", "c"),
        key("loglikelihood", "a", "bc", ""),
        key("loglikelihood", "a", "", "bc"),
        key("loglikelihood_rolling", "a"),
        key("loglikelihood_rolling", "ab"),
        key("generate_until", "a", GREEDY),
        key("generate_until", "a", {**GREEDY, "until": ["\n\n"]}),
        key("generate_until", "a", {**GREEDY, "max_gen_toks": 8}),
        key("generate_until", "a", SAMPLED),
        key("generate_until", "a", SAMPLED, seed=2),
        key("generate_until", "a", SAMPLED, repeat=1),
        key("generate_until", "a", {**SAMPLED, "temperature": 0.8}),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_what_does_not_change_an_answer_does_not_change_its_key() -> None:
    turned = dict(reversed(SAMPLED.items()))
    assert key("generate_until", "a", SAMPLED) == key("generate_until", "a", turned)
    assert key("generate_until", "a", GREEDY) == key("generate_until", "a", GREEDY, seed=2)
    assert key("loglikelihood", "a", "b") == key("loglikelihood", "a", "b", seed=2)


def test_a_key_does_not_depend_on_what_was_asked_before() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b"), ("\ud800", "x"), (3, "x"), (3, "x")]
    requests = [Instance("loglikelihood", {}, pair, 0, ("t", 0, 1)) for pair in pairs]
    set_digests(requests)
    assert request_keys(requests, 1) == [key("loglikelihood", *pair) for pair in pairs]


def test_the_hash_of_prompts_does_not_depend_on_the_seed_and_counts_every_request() -> None:
    requests = [instance("a"), instance("b"), instance("b")]
    set_digests(requests)
    whole = prompts_hash(requests)
    assert whole != prompts_hash(requests[:2]) != prompts_hash(requests[1::-1])
    assert request_keys(requests, 1) != request_keys(requests, 2)


def test_what_has_no_text_form_has_no_key() -> None:
    assert key("generate_until", "a", GREEDY, {"visual": object()}) is None


# -- the file ---------------------------------------------------------------------------------


def test_answers_come_back_exactly(tmp_path: Path) -> None:
    given: dict[str, list[Any]] = {
        "loglikelihood": [(-0.1 - 1e-17, True), (float("-inf"), False), (-3.0, True)],
        "loglikelihood_rolling": [-1234.5678901234567, 0.0, -1e-300],
        "generate_until": ["", "naïve 漢字\n\x00", "half \ud800"],
    }
    keys = {kind: [bytes([n]) * 15 + bytes([i]) for i in range(3)] for n, kind in enumerate(given)}
    with AnswerStore(tmp_path / "s", "one") as store:
        for kind, answers in given.items():
            store.add(kind, keys[kind], answers)
    with AnswerStore(tmp_path / "s", "one") as store:
        for kind, answers in given.items():
            assert store.find(keys[kind]) == answers
        assert store.find([b"x" * 16, None]) == [MISSING, MISSING]


def test_a_model_never_gets_anothers_answers(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "s", "one") as store:
        store.add("generate_until", [b"k" * 16], ["mine"])
    with AnswerStore(tmp_path / "s", "two") as store:
        assert store.find([b"k" * 16]) == [MISSING]
        store.add("generate_until", [b"k" * 16], ["yours"])
        store.forget([b"k" * 16])
        assert store.find([b"k" * 16]) == [MISSING]
    with AnswerStore(tmp_path / "s", "one") as store:
        assert store.find([b"k" * 16]) == ["mine"]


def test_two_processes_may_share_a_store(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "s", "m") as one, AnswerStore(tmp_path / "s", "m") as two:
        one.add("generate_until", [b"1" * 16], ["a"])
        two.add("generate_until", [b"2" * 16], ["b"])
        two.refresh()
        assert two.find([b"1" * 16, b"2" * 16]) == ["a", "b"]


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "s", "m") as store:
        store.add("generate_until", [b"1" * 16], ["kept"])
        store._connection.execute("PRAGMA max_page_count = 8")
        with pytest.raises(StoreError, match=r"disk is full\. All answers stored so far are safe"):
            store.add("generate_until", [b"2" * 16], ["x" * 100_000])
        store._connection.execute("PRAGMA max_page_count = 100000")
        store.add("generate_until", [b"3" * 16], ["after"])
    with AnswerStore(tmp_path / "s", "m") as store:
        assert store.find([b"1" * 16, b"2" * 16, b"3" * 16]) == ["kept", MISSING, "after"]


def newer(path: Path) -> None:
    AnswerStore(path, "m").close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (newer, "written by a newer version"),
        (foreign, "not an answer store"),
        (lambda path: path.write_text("hello " * 100), "is damaged or is not an answer store"),
        (lambda path: path.mkdir(), "cannot be stored in this file"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_and_left_alone(
    tmp_path: Path, spoil: Any, said: str
) -> None:
    path = tmp_path / "s"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError, match=said):
        AnswerStore(path, "m")
    assert before is None or path.read_bytes() == before


# -- asking -----------------------------------------------------------------------------------


def instance(context: str, repeats: int = 1, kind: Any = "generate_until") -> Instance:
    rest = (SAMPLED,) if kind == "generate_until" else (" b",)
    return Instance(kind, {}, (context, *rest), 0, ("t", 0, repeats))


class Counting(LM):
    """A model that answers with its count of answers, reports each, and can be interrupted."""

    def __init__(self, stop_after: int | None = None, report: bool = True) -> None:
        super().__init__()
        self.prompts: list[str] = []
        self.stop_after, self.report = stop_after, report

    def generate_until(self, requests: list[Instance]) -> list[str]:
        given = []
        for request in reversed(requests):
            if self.stop_after is not None and len(self.prompts) >= self.stop_after:
                raise RuntimeError("cut off")
            self.prompts.append(request.args[0])
            given.append(f"{request.args[0]} {len(self.prompts)}")
            if self.report:
                self.cache_hook.add_partial("generate_until", request.args, given[-1])
        return given[::-1]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        self.prompts += [request.args[0] for request in requests]
        return [(-1.0, True) for _ in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError


def test_what_is_stored_is_not_asked_again(tmp_path: Path) -> None:
    for lm in (Counting(), Counting(report=False)):
        path = tmp_path / f"s{lm.report}"
        requests = [instance("a"), instance("b", 3), instance("c")]
        with AnswerStore(path, "m") as store:
            answer(executor_for(RunConfig(), lm), requests, store)
        assert sorted(lm.prompts) == ["a", "b", "b", "b", "c"]
        again = [instance("a"), instance("b", 3), instance("c"), instance("d")]
        second = Counting()
        with AnswerStore(path, "m") as store:
            answer(executor_for(RunConfig(), second), again, store)
        assert second.prompts == ["d"]
        assert [sorted(r.resps) for r in again[:3]] == [sorted(r.resps) for r in requests]


def test_a_store_that_fails_stops_a_model_that_reports_one_by_one(tmp_path: Path) -> None:
    class Slow(Counting):
        def generate_until(self, requests: list[Instance]) -> list[str]:
            for request in requests:
                self.prompts.append(request.args[0])
                time.sleep(0.02)
                self.cache_hook.add_partial("generate_until", request.args, "x" * 50_000)
            return ["x" * 50_000] * len(requests)

    lm = Slow()
    with AnswerStore(tmp_path / "s", "m") as store:
        store._connection.execute("PRAGMA max_page_count = 8")
        with pytest.raises(StoreError, match="disk is full"):
            answer(executor_for(RunConfig(), lm), [instance(str(i)) for i in range(500)], store)
    assert len(lm.prompts) < 400


def test_a_model_that_is_cut_off_has_kept_what_it_reported(tmp_path: Path) -> None:
    requests = [instance(c) for c in "abcde"]
    with AnswerStore(tmp_path / "s", "m") as store:
        with pytest.raises(ModelError, match="cut off"):
            answer(executor_for(RunConfig(), Counting(stop_after=3)), requests, store)
        lm = Counting()
        answer(executor_for(RunConfig(), lm), requests, store)
    assert sorted(lm.prompts) == ["a", "b"]


def test_the_same_request_twice_is_asked_once(tmp_path: Path) -> None:
    lm = Counting()
    requests = [instance(c, kind="loglikelihood") for c in "aab"]
    with AnswerStore(tmp_path / "s", "m") as store:
        answer(executor_for(RunConfig(), lm), requests, store)
    assert lm.prompts == ["a", "b"]
    assert [request.resps for request in requests] == [[(-1.0, True)]] * 3


def test_requests_without_a_key_are_asked_every_time(tmp_path: Path) -> None:
    picture = Instance("loglikelihood", {}, ("a", "b", {"visual": object()}), 0, ("t", 0, 1))
    set_digests([picture])
    assert request_keys([picture], None) == [None]
    lm = Counting()
    with AnswerStore(tmp_path / "s", "m") as store:
        answer(executor_for(RunConfig(), lm), [picture], store)
        answer(executor_for(RunConfig(), lm), [picture], store)
    assert lm.prompts == ["a", "a"]


# -- whose answers ----------------------------------------------------------------------------


def test_each_part_of_a_models_identity_counts(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    file = weights / "model.safetensors"
    file.write_bytes(b"1")

    def identity(model: str = "a", lm: LM | None = None, **arguments: Any) -> str:
        return model_identity(RunConfig(model=model, model_args=arguments), lm or Counting())

    class Informed(Counting):
        def __init__(self, info: Any = None, own: Any = None) -> None:
            super().__init__()
            self._info, self._own = info, own

        def get_model_info(self) -> Any:
            return self._info

        def identity(self) -> Any:
            return self._own

    base = identity(pretrained=str(weights), dtype="float32")
    others = [
        identity("b", pretrained=str(weights), dtype="float32"),
        identity(lm=ScriptedLM(), pretrained=str(weights), dtype="float32"),
        identity(pretrained=str(weights), dtype="bfloat16"),
        identity(pretrained=str(weights), dtype="float32", revision="x"),
        identity(pretrained=str(weights), dtype="float32", tokenizer="x"),
        identity(pretrained=str(weights), dtype="float32", peft="x"),
        identity(pretrained=str(weights), dtype="float32", base_url="http://elsewhere"),
        identity(pretrained="other", dtype="float32"),
        identity(lm=Informed({"model_sha": "1"})),
        identity(lm=Informed({"model_sha": "2"})),
        identity(lm=Informed(own={"system_prompt": "x"})),
        identity(lm=Informed(own={"system_prompt": "y"})),
    ]
    assert len({base, *others}) == len(others) + 1
    same = identity(pretrained=str(weights), dtype="float32", batch_size=8, device="cuda:1")
    assert same == base
    assert "secret" not in identity(pretrained=str(weights), api_key="secret")
    os.utime(file, ns=(1, 1))
    assert identity(pretrained=str(weights), dtype="float32") == base
    file.write_bytes(b"2")
    os.utime(file, ns=(1, 1))
    assert identity(pretrained=str(weights), dtype="float32") != base


def test_large_weights_are_told_apart_by_their_contents_too(tmp_path: Path) -> None:
    """Archives and mounts can give files of different models the same size and date."""
    file = tmp_path / "model.safetensors"
    rng = np.random.default_rng(0)
    seen = []
    for contents in (rng.bytes(3 << 20), rng.bytes(3 << 20)):
        file.write_bytes(contents)
        os.utime(file, ns=(1, 1))
        seen.append(fingerprint(file))
    os.utime(file, ns=(2, 2))
    seen.append(fingerprint(file))
    assert len({str(state) for state in seen}) == 3


def test_a_model_object_that_nothing_tells_apart_is_warned_of(
    colours: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As published, it shares a store with others of its class, but with a warning."""
    lm_eval.simple_evaluate(
        ScriptedLM(loglikelihood=lambda *_: (-1.0, True)),
        tasks=["colours"],
        task_manager=TaskManager(include_path=colours.path),
        use_cache=str(tmp_path / "s"),
    )
    assert "shared by all ScriptedLM objects" in caplog.text
    assert "method `identity`" in caplog.text


def test_simple_evaluate_uses_a_cache_by_name(colours: Folder, tmp_path: Path) -> None:
    asked: list[int] = []

    @register_model("counting_for_cache")
    class Named(Counting):
        def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
            asked.append(len(requests))
            return super().loglikelihood(requests)

    manager = TaskManager(include_path=colours.path)
    for arguments in ({}, {}, {"report": False}):
        results = lm_eval.simple_evaluate(
            "counting_for_cache",
            model_args=arguments,
            tasks=["colours"],
            task_manager=manager,
            use_cache=str(tmp_path / "s"),
        )
        assert results is not None
    assert asked == [12, 12]


OPENED = """
import sys, time
from lm_eval.engine.store import AnswerStore
folder, moment, rounds = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
for i in range(rounds):
    time.sleep(max(0.0, moment + 0.05 * i - time.time()))
    with AnswerStore(f"{folder}/{i}.sqlite", "a model") as store:
        store.add("generate_until", [sys.argv[4].encode() * 16], ["an answer"])
"""


def test_processes_may_make_a_store_at_the_same_moment(tmp_path: Path) -> None:
    moment = str(time.time() + 1.5)
    command = [sys.executable, "-c", OPENED, str(tmp_path), moment, "20"]
    started = [
        subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in "abc"
    ]
    for process in started:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    for file in tmp_path.glob("*.sqlite"):
        with AnswerStore(file, "a model") as store:
            assert len(store) == 3


# -- runs -------------------------------------------------------------------------------------

#: The demo model, noting how many answers it is asked for, and each report of some; unhurried.
NOTED = """
import os, sys, time
from lm_eval.api.registry import register_model
from lm_eval.models.demo.model import DemoLM

log = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@register_model("noted")
class Noted(DemoLM):
    def _note(self, requests):
        os.write(log, f"asked {sum(1 for _ in requests)}\\n".encode())
        hook, report = self.cache_hook, self.cache_hook.add_batch
        def noted(*batch):
            report(*batch)
            os.write(log, b"reported\\n")
            time.sleep(0.02)
        hook.add_batch = noted
    def loglikelihood(self, requests, **kw):
        self._note(requests); return super().loglikelihood(requests, **kw)
    def loglikelihood_rolling(self, requests, **kw):
        self._note(requests); return super().loglikelihood_rolling(requests, **kw)
    def generate_until(self, requests, **kw):
        self._note(requests); return super().generate_until(requests, **kw)

from lm_eval.cli import main
sys.exit(main(sys.argv[1:]))
"""
TASKS = ("--tasks", "demo_choice,demo_sums,demo_stories", "--limit", "8", "--batch_size", "4")


def start(tmp_path: Path, *words: str | Path, notes: str = "notes") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", NOTED, *map(str, words)],
        env={**os.environ, "NOTES": str(tmp_path / notes)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(folder: Path) -> Any:
    file = max(folder.rglob("results_2*.json"))
    return json.loads(file.read_text())["results"]


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_as_if_undisturbed(tmp_path: Path) -> None:
    run = ("run", "--model", "noted", *TASKS, "--output_path")
    assert start(tmp_path, *run, tmp_path / "calm").wait(300) == 0
    lines = (tmp_path / "notes").read_text().splitlines()
    undisturbed = sum(int(line.split()[1]) for line in lines if line.startswith("asked"))
    reports = lines.count("reported")
    draw, folder, notes = random.Random(5), tmp_path / "killed", tmp_path / "killed_notes"
    notes.touch()
    for ending in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        process = start(tmp_path, *run, folder, notes=notes.name)
        enough = notes.read_text().count("reported") + draw.randint(1, reports // 6)
        while notes.read_text().count("reported") < enough:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(ending)
        assert process.wait() == -ending
    last = start(tmp_path, "resume", folder, notes=notes.name)
    assert last.wait(300) == 0, last.stderr and last.stderr.read()
    # What was left over was run in other batches than it would have been, and the model's own
    # arithmetic is exact to a few units in the last place of 32-bit numbers.
    for task, row in rows(tmp_path / "calm").items():
        assert rows(folder)[task] == {
            k: pytest.approx(v, rel=1e-6) if isinstance(v, float) else v for k, v in row.items()
        }
    with AnswerStore(folder / "noted" / "answers.sqlite", "nobody") as store:
        stored = store._connection.execute("SELECT sum(length(keys)) / 16 FROM answers").fetchone()
    # Each answer was written once: what was asked for and lost was asked for again, no more.
    assert stored[0] == undisturbed
    (stored,) = find_runs(folder)
    assert (stored.record.finished, stored.record.results) == (
        True,
        max(folder.rglob("results_2*")).name,
    )


def test_a_second_run_on_a_folder_is_refused(lm_eval_command: Command, tmp_path: Path) -> None:
    folder = RunFolder.of(tmp_path / "out", "dummy")
    words = ("run", "--model", "dummy", "--tasks", "demo_choice", "--limit", "2")
    with folder.locked():
        done = lm_eval_command(*words, "--output_path", tmp_path / "out")
        assert done.returncode == 2
        assert f"another run (process {os.getpid()}) is using this folder" in done.stderr
    assert lm_eval_command(*words, "--output_path", tmp_path / "out").returncode == 0


def test_what_a_killed_run_had_begun_to_write_is_swept_away(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "out")
    folder.path.mkdir()
    stale = (
        ".run.json.x7",
        ".answer_index_1.npz.ab",
        ".results_partial.json.1",
        ".results_2026.json.q",
    )
    stale = (*stale, ".samples_t_2026-01-01T.jsonl.a_b")
    for name in (*stale, ".mine", "kept.json", "samples_t_2026-01-01T.jsonl"):
        (folder.path / name).write_text("half")
    with folder.locked():
        pass
    left = [".mine", "kept.json", "run.lock", "samples_t_2026-01-01T.jsonl"]
    assert sorted(p.name for p in folder.path.iterdir()) == left


def test_repeats_reported_in_another_order_are_kept_as_they_are_returned(tmp_path: Path) -> None:
    class Shuffling(Counting):
        def generate_until(self, requests: list[Instance]) -> list[str]:
            given = [f"answer {i}" for i in range(len(requests))]
            for i in reversed(range(len(requests))):
                self.cache_hook.add_partial("generate_until", requests[i].args, given[i])
            return given

    fresh, again = [instance("a", 3), instance("b")], [instance("a", 3), instance("b")]
    with AnswerStore(tmp_path / "s", "m") as store:
        answer(executor_for(RunConfig(), Shuffling()), fresh, store)
    with AnswerStore(tmp_path / "s", "m") as store:
        answer(executor_for(RunConfig(), Counting(stop_after=0)), again, store)
    assert [r.resps for r in again] == [r.resps for r in fresh]
    assert again[0].resps == ["answer 0", "answer 1", "answer 2"]


def test_a_change_since_the_last_run_is_said(
    lm_eval_command: Command, colours: Folder, tmp_path: Path
) -> None:
    file = colours.path / "colours.yaml"
    words = ("run", "--model", "dummy", "--tasks", file, "--output_path", tmp_path / "out")
    assert "changed" not in lm_eval_command(*words).stderr
    assert "changed" not in lm_eval_command(*words).stderr
    file.write_text(file.read_text().replace("Of what", "Of which"))
    said = lm_eval_command(*words).stderr
    assert "colours has changed since the earlier run: its configuration or code, its pr" in said
    data = colours.path / "colours.jsonl"
    data.write_text(data.read_text().replace("grass", "a leaf"))
    assert "changed since the earlier run: its data, its prompts" in lm_eval_command(*words).stderr
    said = lm_eval_command(*words, "--fresh").stderr
    assert "already" not in said
    said = lm_eval_command(*words, "--model_args", "x=1").stderr
    assert "the model differs from that of the earlier run (arguments), whose answers" in said


def test_results_name_hashes_timings_and_answers(lm_eval_command: Command, tmp_path: Path) -> None:
    words = ("--model", "dummy", "--tasks", "demo_choice", "--limit", "3")
    lm_eval_command("run", *words, "--output_path", tmp_path / "out")
    (file,) = (tmp_path / "out" / "dummy").glob("results_*.json")
    results = json.loads(file.read_text())
    assert set(results["hashes"]["demo_choice"]) == {"config", "data", "prompts", "documents"}
    assert set(results["timings"]) == {
        "load_tasks",
        "load_model",
        "build_requests",
        "answer",
        "score",
    }
    assert results["answers"] == {"asked": 12, "requests": 12}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "there is no such folder"),
        (lambda folder: folder.mkdir(), "contains no run"),
        (
            lambda folder: (folder.mkdir(), (folder / "run.json").write_text("{")),
            "cannot be read as the record of a run",
        ),
        (
            lambda folder: (folder.mkdir(), (folder / "run.json").write_text('{"format": 99}')),
            "by a newer version",
        ),
    ],
)
def test_a_folder_that_cannot_be_resumed_is_explained(
    lm_eval_command: Command, tmp_path: Path, make: Any, said: str
) -> None:
    make(tmp_path / "out")
    done = lm_eval_command("resume", tmp_path / "out")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_errors_are_of_one_family() -> None:
    assert issubclass(StoreError, OutputError)
    assert issubclass(OutputError, EvalError)


def test_a_damaged_name_in_the_schema_is_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with AnswerStore(path, "model") as store:
        store.add("generate_until", [b"k" * 16], ["answer"])
    content = path.read_bytes()
    assert b"tableanswersanswers" in content  # type, name and table of the schema's row
    path.write_bytes(content.replace(b"tableanswersanswers", b"tablea\xeeswersanswers", 1))
    with pytest.raises(StoreError, match="damaged"):
        AnswerStore(path, "model")
