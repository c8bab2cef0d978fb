"""Tests tasks that run programs: consent, pass@k, stored verdicts, limits, canonical solutions."""

from __future__ import annotations

import importlib
import itertools
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lm_eval
from lm_eval import sandbox
from lm_eval.api.instance import Instance
from lm_eval.cli import main
from lm_eval.code_eval import CodeEval, estimate_pass_at_k, pass_at_k
from lm_eval.code_eval.evaluate_module import runs_in_sandbox
from lm_eval.code_eval.task_programs import MAX_SECONDS, TaskPrograms
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, DataError, EvalError, StoreError
from lm_eval.evaluator import run_evaluation
from lm_eval.models.scripted import ScriptedLM
from lm_eval.results.sample_log import read_samples_file
from lm_eval.sandbox import Isolation, Limits, Verdict
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.library_rows import write_mirror
from tests.terminal import on_terminal

#: The code of a task folder as the published harness has it.
UTILS = """\
import evaluate as hf_evaluate

compute_ = hf_evaluate.load("code_eval")
compute_.compute(references=["assert add(2, 3)==5"], predictions=[["def add(a, b): 1/0"]], k=[1])

def pass_at_k(references, predictions, k=None):
    return compute_.compute(references=references, predictions=predictions, k=k)[0]

def build_predictions(resps, docs):
    return [[doc["prompt"] + r for r in resp] for resp, doc in zip(resps, docs)]
"""
TASK = """\
task: tiny
dataset_path: json
dataset_kwargs: {data_files: {test: tiny.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{test}}"
unsafe_code: true
repeats: 3
generation_kwargs: {do_sample: true, temperature: 0.5}
filter_list:
  - name: create_test
    filter:
      - function: custom
        filter_fn: !function utils.build_predictions
metric_list:
  - metric: !function utils.pass_at_k
    aggregation: mean
    higher_is_better: true
    k: [1, 2, 3]
metadata: {version: 1.0}
"""
ROWS = [
    {
        "prompt": f"def {name}(a, b):\n",
        "canonical_solution": f"    return {body}\n",
        "test": f"assert {name}(7, 2) == {value}",
    }
    for name, body, value in (("plus", "a + b", 9), ("minus", "a - b", 5), ("times", "a * b", 14))
]
RIGHT = {row["prompt"]: row["canonical_solution"] for row in ROWS}


class FakeSandbox:
    """Judges programs in this process and records every call; for programs of these tests alone."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.limits: list[Limits] = []
        self.given: list[str] = []
        self.stop_after: int | None = None

    def run(
        self,
        programs: Sequence[str],
        tests: Sequence[str],
        limits: Limits,
        *,
        require: str | None = None,
        report: Callable[[int, Verdict], None],
        given: Sequence[str],
    ) -> None:
        self.calls.append(list(programs))
        self.limits.append(limits)
        self.given += given
        for index, (program, test) in enumerate(zip(programs, tests, strict=True)):
            if index == self.stop_after:
                signal.raise_signal(signal.SIGINT)
            try:
                exec(f"{program}\n{test}", {})
                verdict = Verdict(True, "passed", "", 0.25)
            except Exception as error:
                verdict = Verdict(False, "failed", repr(error), 0.25)
            report(index, verdict)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSandbox:
    made = FakeSandbox()
    monkeypatch.setattr(sandbox, "run", made.run)
    monkeypatch.setattr(sandbox, "isolation", lambda: Isolation("tried", (), {}))
    return made


@pytest.fixture
def tiny(folder: Folder) -> Folder:
    folder.rows("tiny/tiny.jsonl", ROWS)
    folder.write("tiny/utils.py", UTILS)
    folder.write("tiny/tiny.yaml", TASK)
    return folder


def writer(answers: dict[str, Any] | None = None) -> ScriptedLM:
    """Returns a model that answers with the canonical solutions, or with `answers` in turn."""
    given = {
        p: itertools.cycle([a] if isinstance(a, str) else a) for p, a in (answers or RIGHT).items()
    }
    return ScriptedLM(generate=lambda context, _: next(given[context]))


def evaluated(folder: Folder, lm: Any, **settings: Any) -> dict[str, Any]:
    settings = {"confirm_run_unsafe_code": True, "tasks": ["tiny"], **settings}
    manager = TaskManager(include_path=str(folder.path / "tiny"))
    results: Any = lm_eval.simple_evaluate(lm, task_manager=manager, **settings)
    return dict(results)


MIXED = {
    ROWS[0]["prompt"]: ["    return a + b\n", "    return a\n", "    return b + a\n"],
    ROWS[1]["prompt"]: ["    return 0\n", "    return a - b\n", "    return 1\n"],
    ROWS[2]["prompt"]: ["    retur a\n", "    return {}\n", "    return a\n"],
}


def test_published_task_code_is_scored_in_the_sandbox(tiny: Folder) -> None:
    results = evaluated(tiny, writer(MIXED))
    row = results["results"]["tiny"]
    # 2, 1 and 0 of 3 samples are right.
    assert row["pass@1,create_test"] == pytest.approx((2 / 3 + 1 / 3 + 0) / 3)
    assert row["pass@2,create_test"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert row["pass@3,create_test"] == pytest.approx((1 + 1 + 0) / 3)
    assert results["isolation"] == sandbox.isolation().name
    programs = results["programs"]["tiny"]
    assert (programs["programs"], programs["run"]) == (9, 9)
    assert programs["outcomes"] == {"failed": 6, "passed": 3}
    assert (programs["canonical_solutions"], programs["canonical_failed"]) == (3, [])


def test_all_programs_of_a_task_run_at_once(tiny: Folder, fake: FakeSandbox) -> None:
    evaluated(tiny, writer(MIXED))
    canonical, answers = fake.calls
    assert canonical == [row["prompt"] + row["canonical_solution"] for row in ROWS]
    assert answers == [row["prompt"] + one for row in ROWS for one in MIXED[row["prompt"]]]


def test_a_terminal_shows_how_many_programs_have_run(tiny: Folder, tmp_path: Path) -> None:
    seen = on_terminal(
        f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tests.test_code_tasks import Folder, Path, evaluated, writer
evaluated(Folder(Path({str(tiny.path)!r})), writer())
""",
        tmp_path,
    )
    assert seen.code == 0, seen.output
    assert any(line.startswith("Running canonical solutions: 100%") for line in seen.screen)
    (line,) = [line for line in seen.screen if line.startswith("Running programs: 100%")]
    assert "| 3/3 [" in line


def test_no_program_runs_before_it_is_confirmed(tiny: Folder, fake: FakeSandbox) -> None:
    """Published task code runs a small program when it is imported."""
    lm = writer()
    with pytest.raises(ConfigError, match="Confirm with --confirm_run_unsafe_code"):
        evaluated(tiny, lm, confirm_run_unsafe_code=False)
    assert (fake.calls, lm.requests) == ([], [])


def test_consent_is_asked_for_before_data_that_is_not_there(
    tiny: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    (tiny.path / "tiny" / "tiny.jsonl").unlink()
    words = ["run", "--model", "dummy", "--tasks", "tiny"]
    words += ["--include_path", str(tiny.path / "tiny")]
    assert main(words) == 2
    assert "Confirm with --confirm_run_unsafe_code" in capsys.readouterr().err
    assert main([*words, "--confirm_run_unsafe_code"]) == 2
    assert "tiny.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("installed", [True, False])
def test_other_metrics_of_the_evaluate_library_come_from_the_library(
    tiny: Folder, fake: FakeSandbox, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    library = ModuleType("evaluate")
    vars(library).update(load=lambda name: f"the library's {name}", __version__="9")
    monkeypatch.setitem(sys.modules, "evaluate", library if installed else None)
    more = 'accuracy = hf_evaluate.load("accuracy")\nmore = hf_evaluate.__name__\n'
    tiny.write("tiny/utils.py", UTILS + more)
    if not installed:
        with pytest.raises(ConfigError, match=r"utils.py needs a module that cannot be imported"):
            evaluated(tiny, writer())
        return
    assert evaluated(tiny, writer())["results"]["tiny"]["pass@1,create_test"] == 1.0
    assert sys.modules["evaluate"] is library
    assert library.load("code_eval") == "the library's code_eval"


def test_files_that_task_code_imports_get_the_stand_in_too(
    tiny: Folder, fake: FakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "evaluate", None)  # it is not installed
    tiny.write("tiny/programs.py", UTILS)
    tiny.write("tiny/utils.py", "from .programs import build_predictions, pass_at_k\n")
    results = evaluated(tiny, writer(), require_isolation="limits")
    assert results["results"]["tiny"]["pass@1,create_test"] == 1.0
    assert results["isolation"] == "tried"


def test_the_metric_code_eval_can_be_named(tiny: Folder, fake: FakeSandbox) -> None:
    text = TASK.replace("metric: !function utils.pass_at_k", "metric: code_eval")
    tiny.write("tiny/tiny.yaml", text.replace("k: [1, 2, 3]", "k: [1]").replace("repeats: 3\n", ""))
    row = evaluated(tiny, writer())["results"]["tiny"]
    assert row["pass@1,create_test"] == 1.0


class Solver(ScriptedLM):
    """A model that knows the canonical solutions: answers with a column of the document."""

    def __init__(self, column: str, form: str) -> None:
        super().__init__()
        self.column, self.form = column, form

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [self.form.format(request.doc[self.column]) for request in requests]


@pytest.mark.parametrize(
    ("task", "column", "form"),
    [
        ("humaneval", "canonical_solution", "{}"),
        ("humaneval_instruct", "canonical_solution", "{}\n```\nThis is the function."),
        ("humaneval_plus", "canonical_solution", "{}"),
        ("mbpp", "code", "{}"),
        ("mbpp_instruct", "code", "\n{}\n```"),
        ("mbpp_plus", "code", "{}"),
        ("mbpp_plus_instruct", "code", "\n{}\n```\n"),
    ],
)
def test_tasks_of_the_library_are_scored(
    fake: FakeSandbox, tmp_path: Path, task: str, column: str, form: str
) -> None:
    """With generated rows in a mirror, which few-shot examples come from, too."""
    pytest.importorskip("pyarrow")
    splits = [(f"evalplus/{name}", "default", "test") for name in ("humanevalplus", "mbppplus")]
    splits += [("google-research-datasets/mbpp", "full", split) for split in ("test", "prompt")]
    write_mirror(tmp_path, splits)
    data = {"dataset_path": "evalplus/humanevalplus"} if "humaneval" in task else {}
    results: Any = lm_eval.simple_evaluate(
        Solver(column, form),
        tasks=[{"task": task, **data}],
        data_dir=str(tmp_path),
        confirm_run_unsafe_code=True,
    )
    docs = [sample["doc"] for sample in results["samples"][task]]
    right = [doc for doc in docs if "mbpp" in task or "candidate([]) == 0" in doc["test"]]
    row = results["results"][task]
    (score,) = [row[key] for key in row if key.startswith("pass") and "_stderr" not in key]
    assert score == len(right) / len(docs)
    programs = results["programs"][task]
    assert len(programs["canonical_failed"]) == len(docs) - len(right)


# -- stored verdicts ------------------------------------------------------------------------------


def test_scoring_again_runs_only_changed_programs(
    tiny: Folder, fake: FakeSandbox, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    before = evaluated(tiny, writer(MIXED), output_path=out)
    assert (tmp_path / "out" / "ScriptedLM" / "verdicts.sqlite").is_file()
    fake.calls.clear()
    include = {"include_path": str(tiny.path / "tiny")}
    again = lm_eval.score(out, **include)
    assert fake.calls == []
    assert again["results"] == before["results"]
    assert again["programs"]["tiny"]["run"] == 0
    assert again["isolation"] == "tried"
    changed = UTILS.replace('doc["prompt"] + r', 'doc["prompt"] + r.replace("b + a", "0")')
    tiny.write("tiny/utils.py", changed)
    lm_eval.score(out, **include)
    assert fake.calls == [["def plus(a, b):\n    return 0\n"]]


def test_verdicts_survive_an_interruption(tiny: Folder, fake: FakeSandbox, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    fake.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        evaluated(tiny, writer(), output_path=out)
    fake.stop_after = None
    evaluated(tiny, writer(), output_path=out)
    interrupted, rest = fake.calls[:2]
    assert rest == interrupted[2:]


def test_a_fresh_run_runs_all_programs_again(
    tiny: Folder, fake: FakeSandbox, tmp_path: Path
) -> None:
    for fresh in (False, True):
        evaluated(tiny, writer(), output_path=str(tmp_path / "out"), fresh=fresh)
    assert fake.calls[:2] == fake.calls[2:]


def test_a_damaged_store_of_verdicts_is_named(
    tiny: Folder, fake: FakeSandbox, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    evaluated(tiny, writer(), output_path=str(out))
    (file,) = out.rglob("verdicts.sqlite")
    file.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"verdicts.sqlite: this is not a store of verdicts"):
        lm_eval.score(out, include_path=str(tiny.path / "tiny"))


def test_verdicts_that_cannot_be_stored_are_used_all_the_same(
    tiny: Folder, fake: FakeSandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    before = evaluated(tiny, writer(), output_path=str(out))
    (file,) = out.rglob("verdicts.sqlite")
    with sqlite3.connect(file) as store:
        store.execute("DELETE FROM verdicts")
        store.execute("CREATE TRIGGER full BEFORE INSERT ON verdicts BEGIN SELECT 1/0, x; END")
    store.close()
    again = lm_eval.score(out, include_path=str(tiny.path / "tiny"))
    assert again["results"] == before["results"]
    assert "the verdicts of programs cannot be stored there" in caplog.text


# -- isolation --------------------------------------------------------------------------------


def test_less_isolation_than_required_is_refused_before_the_model_is_loaded(
    tiny: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(level: str) -> None:
        raise sandbox.IsolationError(f"This machine does not have {level}.")

    monkeypatch.setattr("lm_eval.sandbox.require_isolation", refuse)
    monkeypatch.setattr("lm_eval.evaluator.create_model", lambda run: pytest.fail("loaded"))
    manager = TaskManager(include_path=str(tiny.path / "tiny"))
    run = RunConfig(
        model="demo",
        tasks=["tiny"],
        confirm_run_unsafe_code=True,
        require_isolation="landlock+seccomp",
    )
    with pytest.raises(EvalError, match=r"does not have landlock\+seccomp"):
        run_evaluation(run, manager)
    with pytest.raises(ConfigError, match=r"require_isolation: .*bubblewrap"):
        RunConfig(require_isolation="bubblewrap")


OWN = """\
def pass_at_k(references, predictions, k=None):
    exec(predictions[0][0] + references[0], {})
    return {"pass@1": 1.0}

def build_predictions(resps, docs):
    return [[doc["prompt"] + r for r in resp] for resp, doc in zip(resps, docs)]
"""


def test_a_task_that_runs_programs_itself_is_no_isolation(
    tiny: Folder, fake: FakeSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    tiny.write("tiny/utils.py", OWN)
    results = evaluated(tiny, writer())
    assert results["isolation"] == "none"
    assert "runs programs with functions of its own, not in the sandbox" in caplog.text
    lm = writer()
    with pytest.raises(ConfigError, match="require_isolation 'limits' cannot be satisfied"):
        evaluated(tiny, lm, require_isolation="limits")
    assert not lm.requests


def test_which_functions_run_programs_in_the_sandbox(
    tiny: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "evaluate", ModuleType("evaluate"))
    monkeypatch.syspath_prepend(tiny.path)
    library = "import evaluate\ndef f(): evaluate.load('code_eval').compute()\n"
    ours = "from lm_eval.tasks.mbpp.utils import pass_at_1\ndef f(): return pass_at_1()\n"
    inside = "def f():\n    from lm_eval.code_eval import pass_at_k\n"
    for name, text, expected in (
        ("installed_library", library, False),  # the file of a package gets the library's metric
        ("installed_ours", ours, True),
        ("installed_inside", inside, True),
    ):
        tiny.write(f"{name}.py", text)
        assert runs_in_sandbox([importlib.import_module(name).f]) is expected
    (task,) = TaskManager(include_path=str(tiny.path / "tiny")).load("tiny")["tasks"].values()
    assert runs_in_sandbox(task.scoring_functions())
    for function in (pass_at_k, partial(pass_at_k, k=1), CodeEval().compute):
        assert runs_in_sandbox([function])


# -- canonical solutions ----------------------------------------------------------------------


def broken(tiny: Folder) -> None:
    rows = [*ROWS[:2], {**ROWS[2], "test": "assert times(7, 2) == 15"}]
    tiny.rows("tiny/tiny.jsonl", rows)


def test_validate_names_tests_that_fail_on_their_canonical_solution(
    tiny: Folder, fake: FakeSandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(tiny)
    words = ["validate", "tiny", "--include_path", str(tiny.path / "tiny")]
    assert main([*words, "--confirm_run_unsafe_code"]) == 1
    printed = capsys.readouterr().out
    assert "task 'tiny', document 2: its canonical solution fails its own tests" in printed
    assert "1 problem found" in printed
    tiny.rows("tiny/tiny.jsonl", ROWS)
    assert main([*words, "--confirm_run_unsafe_code"]) == 0


def test_validate_runs_no_program_without_consent(
    tiny: Folder, fake: FakeSandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(tiny)
    assert main(["validate", "tiny", "--include_path", str(tiny.path / "tiny")]) == 0
    assert not fake.calls
    assert "its canonical solutions are not checked" in capsys.readouterr().err


def test_the_integrity_check_of_a_run_includes_canonical_solutions(
    tiny: Folder, fake: FakeSandbox
) -> None:
    broken(tiny)
    lm = writer()
    with pytest.raises(ConfigError, match="document 2: its canonical solution fails"):
        evaluated(tiny, lm, check_integrity=True)
    assert not lm.requests


def test_a_failing_canonical_solution_is_reported_with_the_scores(
    tiny: Folder, fake: FakeSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    broken(tiny)
    results = evaluated(tiny, writer())
    assert results["programs"]["tiny"]["canonical_failed"] == [2]
    assert "1 of 3 canonical solutions fail their own tests (document 2)" in caplog.text


def test_limits_follow_the_canonical_solution_with_the_same_tests() -> None:
    programs = TaskPrograms()
    programs.calibrate({"quick": 0.01, "slow": 1.0, "slower": 1.3, "endless": 29.0}, [])
    assert programs.limit("quick") == programs.limit("unknown") == 3.0
    assert programs.limit("slow") == 6.0
    assert programs.limit("slower") == 12.0
    assert programs.limit("slower", 5.0) == 10.0
    assert programs.limit("endless") == MAX_SECONDS
    assert programs.limit("endless", 100.0) == 100.0


def test_programs_get_the_calibrated_limit(
    tiny: Folder, fake: FakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lm_eval.code_eval.task_programs.FACTOR", 20.0)  # of 0.25 seconds
    results = evaluated(tiny, writer())
    assert [limits.wall_seconds for limits in fake.limits] == [30.0, 6.0]
    assert results["programs"]["tiny"]["wall_seconds"] == [6.0, 6.0]
    assert results["programs"]["tiny"]["slowest_canonical_seconds"] == 0.25


# -- pass@k -----------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(samples: int) -> None:
    for correct, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        subsets = list(itertools.combinations(range(samples), k))
        share = sum(any(i < correct for i in subset) for subset in subsets) / len(subsets)
        assert estimate_pass_at_k(samples, correct, k) == pytest.approx(share, abs=1e-12)


def test_computed_outside_a_run_with_consent(
    fake: FakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ALLOW_CODE_EVAL", "1")
    tests = ["assert f() == 1", "assert f() == 2"]
    programs = [["def f(): return 1", "def f(): return 2"], ["def f(): 1/0", "def f(): return 2"]]
    scores, results = CodeEval().compute(references=tests, predictions=programs, k=[1, 2, 10])
    assert scores == {"pass@1": 0.5, "pass@2": 1.0}  # there are not 10 samples
    assert [[one["passed"] for _, one in judged] for judged in results.values()] == [
        [True, False],
        [False, True],
    ]
    assert results[0][0] == (
        0,
        {"task_id": 0, "passed": True, "result": "passed", "completion_id": 0},
    )
    assert results[1][0][1]["result"] == "failed: ZeroDivisionError('division by zero')"


def test_the_functions_of_the_published_modules_work(
    fake: FakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.tasks.humaneval import utils as humaneval
    from lm_eval.tasks.mbpp import utils as mbpp

    monkeypatch.setenv("HF_ALLOW_CODE_EVAL", "1")
    test, right, wrong = "assert f() == 1", "def f(): return 1", "def f(): return 2"
    assert humaneval.pass_at_k([test], [[right, wrong]], k=1) == {"pass@1": 0.5}
    assert mbpp.pass_at_1(test, [right]) == 1.0
    assert mbpp.pass_at_1([test, test], [[right], [wrong]]) == 0.5
    for metric in (humaneval.compute_, mbpp.pass_at_k):
        scores, _ = metric.compute(references=[test], predictions=[[wrong, right]], k=[2])
        assert scores == {"pass@2": 1.0}


def test_arguments_of_another_form_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ALLOW_CODE_EVAL", "1")
    with pytest.raises(DataError, match="1 lists of programs, but 2 tests"):
        CodeEval().compute(references=["", ""], predictions=[[""]])
    with pytest.raises(DataError, match="a list of lists of programs"):
        CodeEval().compute(references=[""], predictions=["x"])
    with pytest.raises(DataError, match="needs k"):
        pass_at_k([""], [[""]])


HELPED = {
    "task_id": "helped",
    "prompt": "def twice(x):\n    return x + x\n\n\ndef half(x):\n",
    "canonical_solution": "    return x // 2\n",
    "test": "assert half(twice(4)) == 4",
}


def test_functions_of_the_prompt_are_given_to_the_programs_that_begin_with_it(
    tiny: Folder, fake: FakeSandbox
) -> None:
    tiny.rows("tiny/tiny.jsonl", [HELPED, *ROWS[:1]])
    evaluated(tiny, writer(RIGHT | {HELPED["prompt"]: HELPED["canonical_solution"]}))
    assert set(fake.given) == {HELPED["prompt"], ROWS[0]["prompt"]}
    programs = [program for call in fake.calls for program in call]
    pairs = zip(programs, fake.given, strict=True)
    assert all(program.startswith(given) for program, given in pairs)


def test_a_program_cannot_redefine_the_functions_of_its_prompt(tiny: Folder) -> None:
    tiny.rows("tiny/tiny.jsonl", [HELPED])
    right = evaluated(tiny, ScriptedLM(generate=lambda *_: "    return x // 2\n"))
    forged = "    return x\n\ntwice = half\n"
    wrong = evaluated(tiny, ScriptedLM(generate=lambda *_: forged))
    scores = [results["results"]["tiny"]["pass@1,create_test"] for results in (right, wrong)]
    assert scores == [1.0, 0.0]


@pytest.mark.parametrize("form", ["jsonl", "zst", "parquet"])
def test_samples_say_what_became_of_each_program(
    tiny: Folder, fake: FakeSandbox, tmp_path: Path, form: str
) -> None:
    run = RunConfig(
        model="dummy",
        tasks=["tiny"],
        log_samples=True,
        samples_format=form,
        output_path=str(tmp_path / "out"),
        confirm_run_unsafe_code=True,
    )
    manager = TaskManager(include_path=str(tiny.path / "tiny"))
    results: Any = run_evaluation(run, manager, lm=writer(MIXED))
    (file,) = (tmp_path / "out").rglob("samples_*")
    for samples in (results["samples"]["tiny"], read_samples_file(file)):
        found = [sample["program_results"] for sample in samples]
        assert found[0] == ["passed", "failed: AssertionError()", "passed"]
        assert found[1] == ["failed: AssertionError()", "passed", "failed: AssertionError()"]
        assert found[2][0].startswith("failed: SyntaxError")
        assert all("program_results" not in sample["metrics"] for sample in samples)


def test_an_answer_without_a_program_is_scored_by_the_task(tiny: Folder, fake: FakeSandbox) -> None:
    """A filter may return None where it finds no program, which the task counts as wrong."""
    functions = (
        "\ndef build_predictions(resps, docs):\n"
        "    return [None if 'retur a' in resp[0] else [doc['prompt'] + r for r in resp]\n"
        "            for resp, doc in zip(resps, docs)]\n"
        "def process(doc, results):\n"
        "    found = results[0] and pass_at_k([doc['test']], [results[0]], [1])\n"
        "    return {'solved': found['pass@1'] if found else 0.0}\n"
    )
    tiny.write("tiny/utils.py", UTILS + functions)
    task, _, rest = TASK.partition("metric_list:")
    metadata = rest[rest.index("metadata:") :]
    metric = "process_results: !function utils.process\nmetric_list: [{metric: solved}]\n"
    tiny.write("tiny/tiny.yaml", f"{task}{metric}{metadata}")
    results = evaluated(tiny, writer(MIXED), log_samples=True)
    samples = results["samples"]["tiny"]
    assert [sample["solved"] for sample in samples] == pytest.approx([2 / 3, 1 / 3, 0])
    assert [len(sample["program_results"]) for sample in samples] == [3, 3, 0]


def test_samples_of_other_tasks_say_nothing_about_programs() -> None:
    results: Any = lm_eval.simple_evaluate("dummy", tasks=["demo_sums"], limit=1)
    assert "program_results" not in results["samples"]["demo_sums"][0]
