"""Tests the progress display on a terminal, and that a pipe does not get it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("needs pseudo-terminals", allow_module_level=True)

from tests.terminal import on_terminal

pytestmark = pytest.mark.slow

#: A third-party model that is slow to load and to answer, and shows no progress.
SLOW_MODEL = """\
import logging, sys, threading, time
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.cli import main
from lm_eval.engine.progress import progress, stage

@register_model("slow")
class Slow(LM):
    def __init__(self, load=0.0, answer=0.0):
        super().__init__()
        time.sleep(load)
        self.answer = answer

    def loglikelihood(self, requests):
        time.sleep(self.answer)
        return [(0.0, True) for _ in requests]

    loglikelihood_rolling = generate_until = loglikelihood
"""
RUN = "['run', '--model', 'slow', '--tasks', 'demo_pairs', '--limit', '2', '--model_args', '{}']"


def test_the_elapsed_time_moves_while_the_first_batch_runs(tmp_path: Path) -> None:
    seen = on_terminal(
        SLOW_MODEL
        + """
with progress(4, "Scoring continuations") as bar:
    time.sleep(2.9)
    bar.update(2)
    time.sleep(1)
    bar.update(2)
""",
        tmp_path,
    )
    waiting = [line for line in seen.drawings if "0/4" in line]
    times = [re.search(r"\[(\d\d:\d\d)\]$", line) for line in waiting]
    assert all(times), waiting  # elapsed alone: there is nothing to estimate from
    assert [found[1] for found in times if found] == sorted(found[1] for found in times if found)
    assert {"00:00", "00:01", "00:02"} <= {found[1] for found in times if found}
    (half, *_) = [line for line in seen.drawings if "2/4" in line]
    assert re.search(r"\[00:0\d<00:0\d, 0\.\d\d requests/s\]$", half)
    (left,) = seen.screen
    assert left.startswith("Scoring continuations: 100%|")


def test_stages_of_more_than_a_second_are_named_and_then_gone(tmp_path: Path) -> None:
    arguments = RUN.format("load=2.9,answer=1.9")
    seen = on_terminal(f"{SLOW_MODEL}\nsys.exit(main({arguments}))", tmp_path)
    assert seen.code == 0, seen.output
    for expected in ("Loading the model: 00:01", "Loading the model: 00:02"):
        assert expected in seen.drawings
    assert "Running the model: 00:01" in seen.drawings
    assert not any(line.startswith("Scoring answers") for line in seen.drawings)
    assert seen.screen[0].startswith("slow ("), "the table's heading is the first that stays"


def test_a_pipe_sees_no_stage_and_no_bar(tmp_path: Path) -> None:
    code = f"""{SLOW_MODEL}
with stage("Waiting"), progress(4, "Scoring") as bar:
    bar.update(1)
    time.sleep(1.6)
sys.exit(main({RUN.format("load=1.6")}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stderr == ""


def test_only_the_first_of_several_processes_draws(tmp_path: Path) -> None:
    code = f"{SLOW_MODEL}\nwith stage('Waiting'), progress(4, 'Scoring'):\n    time.sleep(1.6)\n"
    assert on_terminal(code, tmp_path, WORLD_SIZE="2", RANK="1").drawings == []
    assert on_terminal(code, tmp_path, WORLD_SIZE="2", RANK="0").drawings != []


def test_a_user_turns_progress_off_by_the_variable_of_tqdm(tmp_path: Path) -> None:
    code = f"{SLOW_MODEL}\nwith stage('Waiting'):\n    time.sleep(1.8)\n"
    code += "    with progress(4, 'Scoring') as bar:\n        bar.update(4)\n"
    assert on_terminal(code, tmp_path, TQDM_DISABLE="1").drawings == []


def test_log_messages_get_lines_of_their_own(tmp_path: Path) -> None:
    """Also messages of libraries that create handlers while the progress line is shown."""
    seen = on_terminal(
        SLOW_MODEL
        + """
from lm_eval.logs import setup_logging
setup_logging()
with stage("Waiting"):
    theirs = logging.getLogger("a_library")
    theirs.addHandler(logging.StreamHandler())
    time.sleep(2)
    logging.getLogger("lm_eval.x").warning("ours")
    time.sleep(1)
    theirs.warning("theirs")
    time.sleep(0.9)
    with progress(4, "Scoring") as bar:
        time.sleep(0.6)
        logging.getLogger("nobody").warning("without a handler")
        time.sleep(0.6)
""",
        tmp_path,
    )
    assert "Waiting: 00:01" in seen.drawings
    assert "Waiting: 00:02" in seen.drawings
    assert seen.screen[:3] == ["lm-eval: ours", "theirs", "without a handler"]
    assert seen.screen[3].startswith("Scoring:   0%|")
    for line in seen.drawings:
        assert line.startswith(("lm-eval: ours", "theirs", "without", "Waiting: ", "Scoring: "))
        assert line.count("Waiting") + line.count("Scoring") <= 1


def test_nothing_is_left_behind_when_the_last_line_ends(tmp_path: Path) -> None:
    seen = on_terminal(
        SLOW_MODEL
        + """
with stage("Waiting"), progress(4, "Scoring") as bar:
    time.sleep(0.7)
    assert threading.active_count() > 1
print("threads:", threading.active_count(), "filters:", logging.lastResort.filters)
""",
        tmp_path,
    )
    assert seen.screen[-1] == "threads: 1 filters: []"


def test_the_innermost_line_is_shown_and_short_stages_do_not_disturb_a_bar(tmp_path: Path) -> None:
    seen = on_terminal(
        SLOW_MODEL
        + """
with stage("Outer"):
    time.sleep(1.9)
    with progress(100000, "Scoring") as bar:
        until = time.monotonic() + 1.6
        while time.monotonic() < until:
            with stage("Short"):
                bar.update(1)
        with stage("Long"):
            time.sleep(1.9)
    time.sleep(0.9)
""",
        tmp_path,
    )
    names = [line.split(":")[0] for line in seen.drawings]
    order = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    assert order == ["Outer", "Scoring", "Long", "Scoring", "Outer"]
    assert len(names) < 20, "drawings are few, however many updates there are"
    (left,) = seen.screen
    assert left.startswith("Scoring")


def test_bars_of_other_code_and_stages_do_not_disturb_each_other(tmp_path: Path) -> None:
    seen = on_terminal(
        SLOW_MODEL
        + """
from tqdm import tqdm
with stage("Asking"):
    time.sleep(1.6)
    for _ in tqdm(range(4), desc="First"):
        time.sleep(0.4)
with stage("Waiting"):
    for _ in tqdm(range(4), desc="Second"):
        time.sleep(0.5)
    time.sleep(0.9)
""",
        tmp_path,
    )
    assert "Asking: 00:01" in seen.drawings
    assert "Asking: 00:02" in seen.drawings
    assert not any(line.startswith("Waiting: 00:01") for line in seen.drawings)
    assert "Waiting: 00:02" in seen.drawings
    first, second = seen.screen
    assert re.match(r"First: 100%\|█+\| 4/4 ", first)
    assert re.match(r"Second: 100%\|█+\| 4/4 ", second)


def test_ctrl_c_ends_a_run_under_a_stage_in_one_line(tmp_path: Path) -> None:
    code = f"{SLOW_MODEL}\nsys.exit(main({RUN.format('answer=60')}))"
    seen = on_terminal(code, tmp_path, interrupt_at="Running the model: 00:01")
    assert seen.code == 130
    assert [line for line in seen.screen if "Asking" in line] == []
    assert seen.screen[-1] == "lm-eval: interrupted."


def test_a_bar_tells_how_many_tokens_the_demo_model_generates_in_a_second(tmp_path: Path) -> None:
    code = "from lm_eval.cli import main\nmain(['run', '--model', 'demo', '--tasks', 'demo_sums'])"
    seen = on_terminal(code, tmp_path)
    (left,) = [line for line in seen.screen if line.startswith("Generating answers: 100%")]
    assert re.search(r", [1-9][\d,]* tokens/s\]$", left)


def test_the_time_left_follows_from_the_lengths_seen_so_far() -> None:
    from lm_eval.engine.display import TokenRate, seconds_left

    # 2 of 10 answers are finished after 600 tokens: 8 more of 300 tokens, at 100 per second.
    assert seconds_left(done=2, total=10, generated=600, rate=100.0) == 24.0
    assert seconds_left(done=10, total=10, generated=3000, rate=100.0) == 0.0
    assert seconds_left(done=2, total=10, generated=600, rate=0.0) == float("inf")
    rate = TokenRate()
    assert rate.add(10.0, 1000) == 100.0
    assert rate.add(30.0, 3000) == 100.0
    assert rate.add(70.0, 3400) == 10.0  # since second 30: the last 30 seconds, and a bit more


def test_unfinished_answers_count_as_generated_tokens() -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.demo.model import DemoLM

    lm = DemoLM()
    requests = [
        Instance("generate_until", {}, (text, {"until": [], "max_gen_toks": 5}), i)
        for i, text in enumerate(["One", "Two and three"])
    ]
    lm.generate_until(requests)
    assert 0 < lm.run_context.usage.tokens_generated <= 10
    assert "tokens_generated" not in lm.usage(), "results hold what was written"


def test_hf_names_its_start_up_check_and_tells_tokens_while_answers_grow(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5.0")
    code = """
import time
from lm_eval.cli import main
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.huggingface import model

def slowly(function, seconds):
    def wrapper(*arguments, **options):
        time.sleep(seconds)
        return function(*arguments, **options)
    return wrapper

model.check_execution_modes = slowly(model.check_execution_modes, 1.9)
model.HFLM.tok_decode = slowly(model.HFLM.tok_decode, 0.01)
options = ["--model", "hf", "--model_args", f"pretrained={WEIGHTS}", "--batch_size", "40"]
main(["run", *options, "--tasks", "demo_sums", "--limit", "8"])
"""
    cache = str(tmp_path / "cache")  # the outcome of the check is remembered there
    seen = on_terminal(code, tmp_path, OMP_NUM_THREADS="1", LMEVAL_CACHE_DIR=cache)
    assert "Checking which fast modes are exact on this model: 00:01" in seen.drawings
    growing = r"Generating answers: .* 0/40 \[00:0\d, \d+ tokens/s\]"
    assert any(re.match(growing, line) for line in seen.drawings), seen.output
    (left,) = [line for line in seen.screen if line.startswith("Generating answers: 100%")]
    assert left.endswith(" tokens/s]")
