"""Tests real engines in the process of an evaluation: their answers equal those of `hf`.

vLLM runs the embedded model, llama.cpp the embedded model with a BOS (gguf_model.py). Each runs in
processes of its own environment (engine_worker.py); `hf` runs in the process of the test.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import string
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.engine.keys import KEY_SIZE
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tests.engines.interface import INTERFACES
from tests.servers.environments import ROOT, python_of
from tests.servers.start import CONTEXT
from tests.servers.test_served_models import (
    BEGUN,
    CHATS,
    CLOSE,
    CONTINUATIONS,
    LONG,
    LONGEST,
    PROMPTS,
    QUESTIONS,
    WITHOUT_CONTEXT,
)

WORKER = Path(__file__).with_name("engine_worker.py")
SECONDS = 900
"""How long a process of an engine may take; much more than it takes on an idle machine."""
GREEDY = {"do_sample": False, "temperature": 0}
SAMPLED = {"do_sample": True, "temperature": 1.0, "until": ["\n"], "max_gen_toks": 24}
REPEATS = 4
BLOCK = 128
"""The tokens of a block of vLLM's prefix cache on a CPU."""

Pairs = list[tuple[str, str]]
Answers = dict[str, Any]


# What is asked


@dataclass(frozen=True)
class Asked:
    """Requests of the three types, by their arguments."""

    pairs: Pairs
    texts: list[tuple[str]]
    prompts: list[tuple[str, dict[str, Any]]]

    def some(self, step: int) -> Asked:
        """Returns every `step`-th request."""
        return Asked(self.pairs[::step], self.texts[::step], self.prompts[::step])


@pytest.fixture(scope="session")
def demo_group() -> Asked:
    """Returns every request of the demo group, and a few that are special; decoding is greedy."""
    found: dict[str, list[Any]] = {
        "loglikelihood": [
            *(("Answer (", letter) for letter in string.ascii_letters),  # vLLM's default: 20
            *CONTINUATIONS,
            *WITHOUT_CONTEXT,
            (LONG, " The end."),
            (LONG, " ."),
        ],
        "loglikelihood_rolling": [(LONG,), ("Hi",)],
        "generate_until": [
            *PROMPTS,
            ("", {"until": ["\n"], "max_gen_toks": 8}),
            (LONG, {"until": ["", "\n\n"], "max_gen_toks": 8}),
        ],
    }
    tasks: Any = TaskManager().load(["demo"])["tasks"]
    for task in tasks.values():
        task.set_config("num_fewshot", task.get_config("num_fewshot") or 0)
        task.set_fewshot_seed(1234)
        task.build_all_requests()
        for request in task.instances:
            arguments = request.args
            if request.request_type == "generate_until":
                arguments = (arguments[0], {**arguments[1], **GREEDY})
            found[request.request_type].append(arguments)
    return Asked(*found.values())


def fewshot(count: int) -> Pairs:
    """Returns the letters of questions that follow the same examples, which fill a block."""
    examples = "".join(f"{text}\nAnswer: {answer[0]}\n\n" for text, answer in QUESTIONS[:2])
    questions = [f"{examples}Question: How much is {n} + 1?\nAnswer:" for n in range(count)]
    return [(question, f" {letter}") for question in questions for letter in "ABCD"]


def steps(asked: Asked) -> list[dict[str, Any]]:
    """Returns the steps of a job (engine_worker.py)."""
    chats = [[chat, True] for chat in CHATS]
    prompts = [(question, SAMPLED) for question, _ in QUESTIONS[:3]]
    other_seed = [(question, {**SAMPLED, "seed": 5}) for question, _ in QUESTIONS[:3]]
    sampled = {"method": "generate_until", "repeats": REPEATS}
    return [
        {"name": "fewshot", "method": "loglikelihood", "requests": fewshot(8)},
        {"name": "scores", "method": "loglikelihood", "requests": asked.pairs},
        {"name": "rolling", "method": "loglikelihood_rolling", "requests": asked.texts},
        {"name": "greedy", "method": "generate_until", "requests": asked.prompts},
        {"name": "chats", "method": "apply_chat_template", "calls": [*chats, [BEGUN, False]]},
        {"name": "sampled", "requests": prompts, **sampled},
        {"name": "sampled again", "requests": prompts, **sampled},
        {"name": "another seed", "requests": other_seed, **sampled},
    ]


# The engines


ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""Makes vLLM start no processes of its own, which take most of the time of these tests."""


def variables(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment variables of a process that runs an engine."""
    (home / "hub").mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LMEVAL_CACHE_DIR": str(home / "cache"),
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # Dynamo takes 20 seconds
        **(more or {}),
    }


def answers(
    environment: str, job: dict[str, Any], work: Path, more: Mapping[str, str] | None = None
) -> Answers:
    """Returns what an engine answers to a job, in a process of its own."""
    files = work / "job.json", work / "answers.json"
    files[0].write_text(json.dumps(job), encoding="utf-8")
    done = subprocess.run(
        [python_of(environment), WORKER, *files],
        cwd=work,
        env=variables(work / "home", more),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    found: Answers = json.loads(files[1].read_text(encoding="utf-8"))
    return found


def of_vllm(folder: Path) -> dict[str, Any]:
    """Returns the arguments of `--model vllm`."""
    return {
        "pretrained": str(folder),
        "dtype": "float32",
        "max_model_len": CONTEXT,
        "enforce_eager": True,
    }


def of_llama_cpp(folder: Path) -> dict[str, Any]:
    """Returns the arguments of `--model llama-cpp`; the key-value cache has 32 bits.

    One thread: where other processes use the cores, several wait for each other most of the time.
    """
    return {
        "pretrained": str(folder / "model.gguf"),
        "n_ctx": CONTEXT,
        **{"type_k": 0, "type_v": 0, "n_gpu_layers": 0, "n_threads": 1, "n_threads_batch": 1},
    }


@dataclass(frozen=True)
class Shape:
    """How an engine is run.

    Attributes:
        engine: the name of its environment.
        arguments: further arguments of the model.
        constants: of the module of its class.
        variables: further environment variables.
        step: only every `step`-th request of the demo group is asked.
        samples: whether answers are sampled.
        chats: whether chat templates are applied.
    """

    engine: str
    arguments: dict[str, Any]
    constants: dict[str, int]
    variables: Mapping[str, str] = field(default_factory=dict)
    step: int = 1
    samples: bool = True
    chats: bool = True


# On a CPU, vLLM 0.32 dies if a prompt that has a seed is computed in parts ("CPU Generator does not
# use offset"), so shapes that compute prompts in parts do not sample.
SHAPES = {
    "vllm": Shape("vllm", {}, {}),
    "vllm-small-batches-without-prefix-cache": Shape(
        "vllm",
        {"enable_prefix_caching": False, "max_num_seqs": 3, "max_num_batched_tokens": 64},
        {"MAX_HELD": 5},
        ONE_PROCESS,
        step=8,
        samples=False,
    ),
    "vllm-two-engines-with-small-blocks": Shape(
        "vllm",
        {
            **{"data_parallel_size": 2, "max_batch_size": 16},
            **{"block_size": 32, "long_prefill_token_threshold": 40},
        },
        {},
        ONE_PROCESS,
        step=4,
        samples=False,
    ),
    "llama-cpp": Shape("llama-cpp", {}, {}),
    "llama-cpp-small-batches": Shape("llama-cpp", {"n_batch": 32}, {"_ROWS": 7}, step=8),
    # The library tokenizers has no chat templates.
    "llama-cpp-tokenizers": Shape("llama-cpp", {"tokenizer": "FOLDER"}, {}, step=8, chats=False),
}
CLASSES = {
    "vllm": "lm_eval.models.vllm_causallms:VLLM",
    "llama-cpp": "lm_eval.models.llama_cpp_engine:LlamaCpp",
}


@dataclass(frozen=True)
class Run:
    """What one shape of an engine was asked and answered, and the same model through `hf`."""

    asked: Asked
    found: Answers
    hf: HFLM

    def pairs(self, step: str, expected: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        return zip(self.found[step]["answers"], expected, strict=True)


Through = Callable[[str], Run]


@pytest.fixture(scope="session")
def run_of(
    demo_folder: Path,
    bos_folder: Path,
    demo_group: Asked,
    tmp_path_factory: pytest.TempPathFactory,
) -> Through:
    """Returns a function that runs a shape, once."""
    models: dict[Path, HFLM] = {}
    runs: dict[str, Run] = {}
    failed: set[str] = set()

    def run(name: str) -> Run:
        if name in runs:
            return runs[name]
        assert name not in failed, "it has failed in an earlier test"
        failed.add(name)
        shape = SHAPES[name]
        is_vllm = shape.engine == "vllm"
        folder = demo_folder if is_vllm else bos_folder
        given = {k: str(folder) if v == "FOLDER" else v for k, v in shape.arguments.items()}
        asked = demo_group.some(shape.step)
        job = {
            "model": CLASSES[shape.engine],
            "arguments": {**(of_vllm if is_vllm else of_llama_cpp)(folder), **given},
            "constants": shape.constants,
            "package": shape.engine.replace("-", "_"),
            "steps": [
                step
                for step in steps(asked)
                if (shape.samples or "repeats" not in step)
                and (shape.chats or step["name"] != "chats")
            ],
        }
        found = answers(shape.engine, job, tmp_path_factory.mktemp(name), shape.variables)
        if folder not in models:
            settings: Any = {"dtype": "float32", "device": "cpu", "max_length": LONGEST}
            models[folder] = HFLM(str(folder), **settings)
        runs[name] = Run(asked, found, models[folder])
        failed.remove(name)
        return runs[name]

    return run


def requests(kind: Any, arguments: Sequence[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(kind, {}, some, i, ("trial", i, 1)) for i, some in enumerate(arguments)]


# Answers


@pytest.mark.parametrize("shape", SHAPES)
def test_log_likelihoods_equal_those_of_hf(shape: str, run_of: Through) -> None:
    run = run_of(shape)
    for step, pairs in (("scores", run.asked.pairs), ("fewshot", fewshot(8))):
        expected = run.hf.loglikelihood(requests("loglikelihood", pairs))
        for pair, (one, other) in zip(pairs, run.pairs(step, expected), strict=True):
            tokens = len(run.hf.tok_encode(pair[1], add_special_tokens=False))
            assert one[0] == pytest.approx(other[0], abs=CLOSE * tokens), pair
            assert one[1] == other[1], pair
        assert step == "fewshot" or len({greedy for _, greedy in expected}) == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_rolling_log_likelihoods_equal_those_of_hf(shape: str, run_of: Through) -> None:
    run = run_of(shape)
    expected = run.hf.loglikelihood_rolling(requests("loglikelihood_rolling", run.asked.texts))
    for (text,), (one, other) in zip(run.asked.texts, run.pairs("rolling", expected), strict=True):
        assert one == pytest.approx(other, abs=CLOSE * len(run.hf.tok_encode(text))), text


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_answers_equal_those_of_hf(shape: str, run_of: Through) -> None:
    run = run_of(shape)
    expected = run.hf.generate_until(requests("generate_until", run.asked.prompts))
    for prompt, (one, other) in zip(run.asked.prompts, run.pairs("greedy", expected), strict=True):
        assert one == other, prompt
        assert not any(stop in one for stop in prompt[1]["until"] if stop), prompt
    assert len(set(expected)) > len(expected) // 4


@pytest.mark.parametrize("shape", ["vllm", "llama-cpp"])
def test_chat_templates_are_applied_as_hf_applies_them(shape: str, run_of: Through) -> None:
    run = run_of(shape)
    expected = [run.hf.apply_chat_template(chat) for chat in CHATS]
    expected.append(run.hf.apply_chat_template(BEGUN, add_generation_prompt=False))
    assert run.found["chats"]["answers"] == expected
    assert expected[-1].endswith(BEGUN[-1]["content"])


@pytest.mark.parametrize("shape", [name for name, shape in SHAPES.items() if shape.samples])
def test_sampled_repeats_differ_and_depend_on_the_seed_alone(shape: str, run_of: Through) -> None:
    found = run_of(shape).found
    first, again, other = (
        found[step]["answers"] for step in ("sampled", "sampled again", "another seed")
    )
    assert len(first) == 3 * REPEATS
    for number in range(3):
        assert len(set(first[number * REPEATS : (number + 1) * REPEATS])) > 1
    assert first == again
    assert first != other


# The counters of vLLM


def counted(run: Run, name: str, step: str, before: str | None = None) -> float:
    """Returns how much a counter of the engine grew during a step."""
    at_end = float(run.found[step]["counters"][name])
    return at_end - (float(run.found[before]["counters"][name]) if before else 0.0)


def test_letters_after_the_same_examples_are_found_in_the_prefix_cache(run_of: Through) -> None:
    """Of 8 prompts with 4 letters each, all but the first find the block of examples."""
    run = run_of("vllm")
    queried = counted(run, "vllm:prefix_cache_queries", "fewshot")
    assert queried == sum(len(run.hf.tok_encode(context)) for context, _ in fewshot(8)[::4])
    assert counted(run, "vllm:prefix_cache_hits", "fewshot") == 7 * BLOCK
    assert counted(run, "vllm:request_success", "fewshot") == 8


def test_without_a_prefix_cache_nothing_is_found(run_of: Through) -> None:
    run = run_of("vllm-small-batches-without-prefix-cache")
    assert counted(run, "vllm:prefix_cache_hits", "chats") == 0


def test_counters_of_two_engines_are_added_up(run_of: Through) -> None:
    run = run_of("vllm-two-engines-with-small-blocks")
    assert counted(run, "vllm:request_success", "fewshot") == 8
    assert counted(run, "vllm:prefix_cache_hits", "fewshot") > 0
    assert counted(run, "vllm:cache_config_info", "fewshot") == 2  # one per engine


# Interfaces


@pytest.mark.parametrize("package", ["vllm", "llama-cpp"])
def test_the_fake_packages_of_other_tests_have_the_interface_of_the_real_ones(
    package: str, run_of: Through
) -> None:
    assert run_of(package).found["interface"] == INTERFACES[package.replace("-", "_")]


# Models whose state cannot be cut


@pytest.mark.parametrize(
    ("architecture", "arguments"),
    [("mamba", {}), ("gemma2", {"swa_full": False, "n_batch": 32, "n_ubatch": 32})],
)
def test_models_whose_state_cannot_be_cut_are_computed_from_the_beginning(
    architecture: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """The prompts differ after 30 tokens, and are longer than the cache of a sliding window."""
    file, context = tmp_path / "model.gguf", 512
    script = Path(__file__).with_name("random_gguf.py")
    subprocess.run([python_of("llama-cpp"), script, file, architecture], check=True)
    text = QUESTIONS[0][0]
    prompts = [f"{text} {name} is here. {text * 6}" for name in ("Ann", "Tom", "Vera")]
    pairs = [(prompt, f" {word}") for prompt in prompts for word in ("A", "B", "in the box")]
    greedy = [(prompt, {"until": [], "max_gen_toks": 6}) for prompt in (text, *prompts)]
    kinds = {"loglikelihood": pairs, "generate_until": greedy}
    job = {
        "model": CLASSES["llama-cpp"],
        "arguments": {**of_llama_cpp(tmp_path), "n_ctx": context, **arguments},
        "steps": [
            {"name": f"{method} {alone}", "method": method, "requests": asked, "alone": alone}
            for method, asked in kinds.items()
            for alone in (False, True)
        ],
    }
    found = answers("llama-cpp", job, tmp_path)
    for method in kinds:
        together, alone = (found[f"{method} {name}"]["answers"] for name in (False, True))
        assert together == alone
    scores = [score for score, _ in found["loglikelihood True"]["answers"]]
    assert len(set(scores)) == len(scores)


# Runs of the command line

LIMIT = 40
"""How many documents of each task are evaluated."""
KILLED_AFTER = 100
"""After how many stored answers a process is killed."""
ALL = 700
"""More answers than a run has."""


@dataclass(frozen=True)
class CommandLine:
    """`lm-eval run` of the demo group with an engine, in a folder of its own."""

    engine: str
    arguments: dict[str, Any]
    work: Path

    def start(self, more: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        given = ",".join(f"{name}={value}" for name, value in self.arguments.items())
        return subprocess.Popen(
            [
                *(str(python_of(self.engine)), "-m", "lm_eval", "run", "--model", self.engine),
                *("--model_args", given, "--tasks", "demo", "--output_path", "out"),
                *("--gen_kwargs", "do_sample=False,temperature=0", "--bootstrap_iters", "0"),
                *("--limit", str(LIMIT)),
            ],
            cwd=self.work,
            env=variables(self.work / "home", more),
            stdout=subprocess.PIPE,
            stderr=(self.work / "stderr.log").open("w"),
            text=True,
            start_new_session=True,
        )

    def errors(self) -> str:
        """Returns what the last process has written to stderr."""
        return (self.work / "stderr.log").read_text(encoding="utf-8", errors="replace")

    def stored(self) -> int:
        """Returns how many answers are stored."""
        files = list((self.work / "out").rglob("*.sqlite"))
        if not files:
            return 0
        connection = sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True)
        try:
            (size,) = connection.execute("SELECT sum(length(keys)) FROM answers").fetchone()
        except sqlite3.OperationalError:  # the table is not there yet
            size = 0
        finally:
            connection.close()
        return int(size or 0) // KEY_SIZE

    def wait_for(self, process: subprocess.Popen[str], count: int) -> None:
        """Returns once `count` answers are stored and the process still runs."""
        until = time.monotonic() + SECONDS
        while self.stored() < count:
            assert process.poll() is None, self.errors()[-4000:]
            assert time.monotonic() < until
            time.sleep(0.02)
        assert process.poll() is None

    def finish(self, process: subprocess.Popen[str]) -> int:
        """Waits until the process ends; returns its exit code."""
        process.communicate(timeout=SECONDS)
        return int(process.returncode)

    def results(self) -> Any:
        """Returns the latest results file."""
        files = (self.work / "out").rglob("results_2*.json")
        return json.loads(max(files).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def expected_results(demo_folder: Path, bos_folder: Path) -> Callable[[str], Any]:
    """Returns a function that evaluates the model of an engine with `hf`, once."""

    @cache
    def evaluate(engine: str) -> Any:
        folder = demo_folder if engine == "vllm" else bos_folder
        settings = f"pretrained={folder},dtype=float32,device=cpu,max_length={LONGEST}"
        found: Any = lm_eval.simple_evaluate(
            "hf",
            model_args=settings,
            tasks=["demo"],
            gen_kwargs={"do_sample": False, "temperature": 0},
            bootstrap_iters=0,
            limit=LIMIT,
        )
        return found["results"]

    return evaluate


def assert_same_results(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for task, scores in expected.items():
        for name, value in scores.items():
            same = pytest.approx(value, rel=1e-5) if isinstance(value, float) else value
            assert found[task][name] == same, (task, name)


def found_in_store(errors: str) -> int:
    """Returns how many stored answers a run used, as its log says."""
    lines = [line for line in errors.splitlines() if "answers were found in the store" in line]
    return sum(int(line.split(" of ")[0].split()[-1]) for line in lines)


def test_a_killed_run_is_continued_with_the_missing_requests_only(
    bos_folder: Path, tmp_path: Path, expected_results: Callable[[str], Any]
) -> None:
    command = CommandLine("llama-cpp", of_llama_cpp(bos_folder), tmp_path)
    process = command.start()
    command.wait_for(process, KILLED_AFTER)
    os.killpg(process.pid, signal.SIGKILL)
    command.finish(process)
    stored = command.stored()
    assert KILLED_AFTER <= stored < ALL // 2

    assert command.finish(command.start()) == 0, command.errors()[-4000:]
    assert found_in_store(command.errors()) == stored
    results = command.results()
    assert_same_results(results["results"], expected_results(command.engine))
    total = command.stored()
    assert ALL // 2 < total < ALL

    # Nothing is left to be asked: the engine computes no token.
    assert command.finish(command.start()) == 0
    assert found_in_store(command.errors()) == total
    assert not command.results().get("usage", {}).get("tokens_in")


def engine_core(process: subprocess.Popen[str]) -> int:
    """Returns the id of the process of vLLM that a command has started."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == process.pid:
            continue
        try:
            name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            group = os.getpgid(int(folder.name))
        except (OSError, UnicodeDecodeError):
            continue
        if group == process.pid and "EngineCore" in name:
            return int(folder.name)
    raise AssertionError("vLLM has no process of its own")


def test_an_engine_that_dies_is_reported_in_one_line_and_the_run_continues(
    demo_folder: Path, tmp_path: Path, expected_results: Callable[[str], Any]
) -> None:
    """First vLLM's own process is killed; then the run, with an engine in its process."""
    command = CommandLine("vllm", {**of_vllm(demo_folder), "max_batch_size": 8}, tmp_path)
    process = command.start()
    command.wait_for(process, KILLED_AFTER)
    os.kill(engine_core(process), signal.SIGKILL)
    assert command.finish(process) == 2
    (line,) = [line for line in command.errors().splitlines() if "vLLM failed" in line]
    assert "EngineDeadError: EngineCore encountered an issue" in line
    assert line.endswith("Run the same command again to continue.")
    stored = command.stored()
    assert KILLED_AFTER <= stored < ALL // 2

    process = command.start(ONE_PROCESS)
    command.wait_for(process, stored + KILLED_AFTER)
    os.killpg(process.pid, signal.SIGKILL)
    command.finish(process)
    assert found_in_store(command.errors()) == stored
    stored = command.stored()

    assert command.finish(command.start(ONE_PROCESS)) == 0, command.errors()[-4000:]
    assert found_in_store(command.errors()) == stored
    assert_same_results(command.results()["results"], expected_results("vllm"))
