"""Tests that nothing fails late or silently: early errors, exits of task code, checked answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks.manager import TaskManager
from tests.conftest import Folder

Captured = pytest.CaptureFixture[str]

TEXTS = """\
task: texts
dataset_path: json
dataset_kwargs:
  data_files:
    test: colours.jsonl
test_split: test
output_type: generate_until
doc_to_text: "Of what colour is {{thing}}?"
doc_to_target: "{{colours[answer]}}"
generation_kwargs:
  until: ["."]
metric_list:
  - metric: exact_match
metadata:
  version: 1.0
"""


def never(*_: Any) -> Any:
    raise AssertionError("the model was asked")


ASKS_NOTHING = ScriptedLM(loglikelihood=never, rolling=never, generate=never)


def evaluate(folder: Folder, lm: Any, task: str = "colours", **settings: Any) -> Any:
    manager = TaskManager(include_path=folder.path)
    return lm_eval.simple_evaluate(lm, tasks=[task], task_manager=manager, **settings)


def error_of(words: list[str], captured: Captured) -> str:
    """Returns the message of a command that must end with code 2 and one line."""
    captured.readouterr()
    assert main(words) == 2
    shown = captured.readouterr()
    assert "Traceback" not in shown.err
    lines = [line for line in shown.err.splitlines() if line.startswith("lm-eval: error:")]
    assert len(lines) == 1, shown.err
    return lines[0]


# -- exits of task and model code -------------------------------------------------------------

EXITS = {
    "SystemExit": "import sys\n    sys.exit(0)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "Strange": "raise Strange('x')",
}
FUNCTIONS = {
    "doc_to_text": "doc_to_text: !function code.act\n",
    "process_docs": "process_docs: !function code.act\n",
    "process_results": "process_results: !function code.act\n",
    "metric": "metric_list:\n  - metric: !function code.act\n    aggregation: mean\n",
    "aggregation": "metric_list:\n  - metric: acc\n    aggregation: !function code.act\n",
}


@pytest.mark.parametrize("how", EXITS)
@pytest.mark.parametrize("where", FUNCTIONS)
def test_an_exit_in_a_tasks_code_is_an_error_with_its_place(
    colours: Folder, capsys: Captured, where: str, how: str
) -> None:
    text = (colours.path / "colours.yaml").read_text()
    if where == "doc_to_text":
        text = text.replace('doc_to_text: "Of what colour is {{thing}}?"\n', "")
    if where in ("metric", "aggregation"):
        text = text.replace("metric_list:\n  - metric: acc\n", "")
    colours.write("colours.yaml", text + FUNCTIONS[where])
    body = EXITS[how]
    colours.write(
        "code.py",
        f"class Strange(BaseException):\n    pass\n\ndef act(*args, **kwargs):\n    {body}\n",
    )
    words = ["run", "--model", "dummy", "--tasks", "colours", "--include_path", str(colours.path)]
    message = error_of(words, capsys)
    line = 6 if how == "SystemExit" else 5
    assert how in message
    assert f"(code.py:{line})" in message
    assert "colours" in message


@pytest.mark.parametrize("how", EXITS)
def test_an_exit_in_a_models_code_is_an_error_with_its_place(colours: Folder, how: str) -> None:
    colours.write(
        "own.py",
        "from lm_eval.api.model import LM\n\nclass Strange(BaseException):\n    pass\n\n"
        "class Own(LM):\n    def loglikelihood(self, requests):\n        "
        + EXITS[how].replace("\n    ", "\n        ")
        + "\n    generate_until = loglikelihood_rolling = loglikelihood\n",
    )
    with pytest.raises(ModelError, match=rf"Own\.loglikelihood ended the program.*{how}.*own\.py"):
        evaluate(colours, f"{colours.path / 'own.py'}:Own")


def test_a_real_interrupt_passes_through_task_code(colours: Folder) -> None:
    """It is raised between two instructions, not by a `raise` statement of the task."""
    import signal

    def answer(*_: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return -1.0, True

    with pytest.raises(KeyboardInterrupt):
        evaluate(colours, ScriptedLM(loglikelihood=answer))


# -- answers ----------------------------------------------------------------------------------

PAIRS: list[tuple[Any, bool]] = [
    ((-1.5, True), True),
    ([-1.5, False], True),
    ((np.float32(-1.5), np.bool_(True)), True),
    ((np.array(-1.5), np.array(False)), True),
    (np.array([-1.5, 1.0]), True),
    ((-2, 1), True),
    ((float("-inf"), False), True),
    ((1e-7, True), True),
    (("-1.5", True), False),
    ((-1.5, "False"), False),
    ((-1.5, None), False),
    ((float("nan"), True), False),
    ((float("inf"), True), False),
    ((12.5, True), False),
    ((10**400, True), False),
    ((-1.5,), False),
    (-1.5, False),
    (None, False),
    ("(-1.5, True)", False),
]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("given", "valid"), PAIRS)
def test_only_numbers_and_booleans_are_answers(
    colours: Folder, tmp_path: Path, given: Any, valid: bool, stored: bool
) -> None:
    lm = ScriptedLM(loglikelihood=lambda *_: given)
    settings = {"use_cache": str(tmp_path / "store")} if stored else {}
    if valid:
        assert evaluate(colours, lm, **settings)["results"]["colours"]["acc,none"] == 0.5
        return
    with pytest.raises(ModelError, match=r"request of task 'colours', document 0 \(request 0"):
        evaluate(colours, lm, **settings)


def test_torch_numbers_are_answers(colours: Folder) -> None:
    torch = pytest.importorskip("torch")
    for pair in [
        (torch.tensor(-1.5), torch.tensor(True)),
        (torch.tensor([-1.5], dtype=torch.bfloat16), torch.tensor([1])),
        torch.tensor([-1.5, 0.0]),
    ]:
        found = evaluate(colours, ScriptedLM(loglikelihood=lambda *_, p=pair: p))
        assert found["results"]["colours"]["acc,none"] == 0.5
        assert found["samples"]["colours"][0]["resps"][0] == [(-1.5, bool(pair[1]))]


# -- errors that come before the model is asked ------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bootstrap_iters": -1}, "bootstrap_iters must be a whole number"),
        ({"bootstrap_iters": 2.5}, "bootstrap_iters must be a whole number"),
        ({"bootstrap_iters": "many"}, "bootstrap_iters must be a whole number"),
        ({"confidence": 95}, "confidence must be between 0 and 1"),
        ({"confidence": float("nan")}, "confidence must be"),
        ({"cluster": "no_such_column"}, "no task has documents with a column"),
        ({"gen_kwargs": "temperature=-1"}, "temperature is -1"),
        ({"gen_kwargs": {"temperature": float("nan")}}, "temperature is nan"),
        ({"gen_kwargs": {"temperature": float("inf")}}, "temperature is inf"),
        ({"gen_kwargs": "temperature=hot"}, "temperature is 'hot'"),
        ({"gen_kwargs": "top_k=-7"}, "top_k is -7"),
        ({"gen_kwargs": "top_k=1.5"}, "top_k is 1.5"),
        ({"gen_kwargs": "top_p=0"}, "top_p is 0"),
        ({"gen_kwargs": "top_p=1.5"}, "top_p is 1.5"),
        ({"gen_kwargs": "min_p=2"}, "min_p is 2"),
        ({"gen_kwargs": "repetition_penalty=0"}, "repetition_penalty is 0"),
        ({"gen_kwargs": "max_gen_toks=-5"}, "max_gen_toks is -5"),
        ({"gen_kwargs": "num_beams=0"}, "num_beams is 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused_at_once(
    colours: Folder, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        evaluate(colours, ASKS_NOTHING, **settings)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("temperature: -1", "temperature is -1"),
        ("temperature: .nan", "temperature is nan"),
        ("top_k: -7", "top_k is -7"),
        ("max_gen_toks: none of it", "max_gen_toks is 'none of it'"),
    ],
)
def test_sampling_settings_of_a_task_that_mean_nothing_are_refused(
    colours: Folder, lines: str, said: str
) -> None:
    colours.write("texts.yaml", TEXTS.replace('  until: ["."]', f'  until: ["."]\n  {lines}'))
    with pytest.raises(ConfigError, match=f"task 'texts': generation_kwargs: {said}"):
        evaluate(colours, ASKS_NOTHING, "texts")


def test_pass_at_k_with_too_few_repeats_is_refused_at_once(colours: Folder) -> None:
    colours.write(
        "texts.yaml",
        TEXTS.replace("exact_match\n", "exact_match\n    reduction: pass@8\n") + "repeats: 4\n",
    )
    with pytest.raises(ConfigError, match=r"k=8.*`repeats` is 4"):
        evaluate(colours, ASKS_NOTHING, "texts")


CODE = """\
def helper(x):
    from no_such_package.metrics import value
    return value(x)

def lazy(references, predictions, **kwargs):
    return helper(predictions)

def guarded(references, predictions, **kwargs):
    try:
        import no_such_package
    except ImportError:
        pass
    return 1.0

def aggregate(items):
    import sklearn_that_is_missing
    return 0.0

class Lower:
    pass
"""


@pytest.mark.parametrize(
    ("metric", "aggregation", "missing"),
    [
        ("!function code.lazy", "mean", "no_such_package"),
        ("!function code.guarded", "!function code.aggregate", "sklearn_that_is_missing"),
        ("!function code.guarded", "mean", None),
    ],
)
def test_a_package_that_scoring_needs_is_missed_before_the_model_is_asked(
    colours: Folder, metric: str, aggregation: str, missing: str | None
) -> None:
    colours.write("code.py", CODE)
    entry = f"{metric}\n    aggregation: {aggregation}\n    higher_is_better: true\n"
    colours.write("texts.yaml", TEXTS.replace("exact_match\n", entry))
    if missing is None:
        evaluate(colours, ScriptedLM(generate=lambda *_: "red"), "texts")
        return
    with pytest.raises(ConfigError, match=rf"code\.py:\d+\) imports '{missing}.*not installed"):
        evaluate(colours, ASKS_NOTHING, "texts")


def test_a_filter_that_needs_a_missing_package_is_found_too(colours: Folder) -> None:
    colours.write(
        "code.py",
        "from lm_eval.api.filter import Filter\n\nclass Needy(Filter):\n"
        "    def apply(self, resps, docs):\n        import no_such_package\n        return resps\n",
    )
    steps = "filter_list:\n  - name: x\n    filter:\n      - function: !function code.Needy\n"
    colours.write("texts.yaml", TEXTS + steps)
    with pytest.raises(ConfigError, match="imports 'no_such_package'"):
        evaluate(colours, ASKS_NOTHING, "texts")


def test_a_groups_aggregation_that_fails_is_found_before_the_model_is_asked(
    colours: Folder,
) -> None:
    colours.write("code.py", "def best(scores):\n    return max(scores)\n")
    colours.write(
        "group.yaml",
        "group: all_colours\ntask: [colours]\naggregate_metric_list:\n  - metric: acc\n"
        "    aggregation: !function code.best\n",
    )
    with pytest.raises(ConfigError, match=r"group 'all_colours'.*function\(scores, sizes\)"):
        evaluate(colours, ASKS_NOTHING, "all_colours")


@pytest.mark.parametrize(
    ("parameters", "fits"),
    [
        *(("()", False), ("(values, sizes)", False), ("(*, values)", False)),
        *(("(values, *rest)", True), ("(*values)", True), ("(values, weight=1)", True)),
    ],
)
def test_an_aggregation_with_other_parameters_is_found_before_the_model_is_asked(
    colours: Folder, parameters: str, fits: bool
) -> None:
    colours.write("code.py", f"def act{parameters}:\n    return 0.5\n")
    text = (colours.path / "colours.yaml").read_text()
    entry = "- metric: acc\n    aggregation: !function code.act\n    higher_is_better: true\n"
    colours.write("colours.yaml", text.replace("- metric: acc\n", entry))
    if fits:
        found = evaluate(colours, "dummy")
        assert found["results"]["colours"]["acc,none"] == 0.5
        return
    with pytest.raises(ConfigError, match=r"aggregation of 'acc' is called as function\(values\)"):
        evaluate(colours, ASKS_NOTHING)


def test_a_process_results_with_other_parameters_is_found_before_the_model_is_asked(
    colours: Folder,
) -> None:
    colours.write("code.py", "def act(doc):\n    return {'acc': 1.0}\n")
    text = (colours.path / "colours.yaml").read_text()
    colours.write("colours.yaml", f"{text}process_results: !function code.act\n")
    with pytest.raises(ConfigError, match=r"process_results is called as function\(doc, results\)"):
        evaluate(colours, ASKS_NOTHING)


# -- nothing is lost after the model was asked --------------------------------------------------


def test_answers_of_a_run_without_output_path_can_be_scored_after_a_failure(
    colours: Folder, capsys: Captured
) -> None:
    colours.write("code.py", "def act(items):\n    raise RuntimeError('broken')\n")
    text = (colours.path / "colours.yaml").read_text()
    broken = text.replace("- metric: acc\n", "- metric: acc\n    aggregation: !function code.act\n")
    colours.write("colours.yaml", broken)
    words = ["run", "--model", "dummy", "--tasks", "colours", "--include_path", str(colours.path)]
    message = error_of(words, capsys)
    assert "RuntimeError: broken (code.py:2)" in message
    command = message.partition("then run `")[2].partition("`")[0].split()
    assert command[:2] == ["lm-eval", "score"]
    colours.write("colours.yaml", text)
    assert main(command[1:]) == 0
    assert "|colours|" in capsys.readouterr().out


def test_results_are_written_before_they_are_printed(
    colours: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.cli.results_printer import ResultsPrinter

    there: list[int] = []

    def printed(*_: Any) -> None:
        there.append(len(list((tmp_path / "out").rglob("results_2*.json"))))

    monkeypatch.setattr(ResultsPrinter, "scored", printed)
    words = ["run", "--model", "dummy", "--tasks", "colours", "--include_path", str(colours.path)]
    assert main([*words, "--output_path", str(tmp_path / "out")]) == 0
    assert there == [1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("redirection", "code"), [("> /dev/full", 2), ("2> /dev/full", 0), (">&- 2>&-", 0)]
)
def test_a_full_or_closed_output_loses_nothing(
    colours: Folder, tmp_path: Path, redirection: str, code: int
) -> None:
    command = (
        f"{sys.executable} -m lm_eval run --model dummy --tasks colours --include_path "
        f"{colours.path} --output_path {tmp_path / 'out'} {redirection}"
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "Exception ignored" not in done.stderr
    (file,) = (tmp_path / "out").rglob("results_2*.json")
    assert "colours" in json.loads(file.read_text())["results"]


def test_a_deleted_metric_is_a_difference_of_a_reproduction(
    colours: Folder, tmp_path: Path, capsys: Captured
) -> None:
    words = ["run", "--model", "demo", "--tasks", "demo_choice", "--limit", "4"]
    assert main([*words, "--output_path", str(tmp_path / "out")]) == 0
    (file,) = (tmp_path / "out").rglob("results_2*.json")
    content = json.loads(file.read_text())
    row = content["results"]["demo_choice"]
    del row["acc_norm,none"], row["acc_norm_stderr,none"]
    file.write_text(json.dumps(content))
    capsys.readouterr()
    assert main(["reproduce", str(file)]) == 1
    shown = capsys.readouterr()
    assert "demo_choice: acc_norm,none is not in the file, is now" in shown.out
    assert "was changed after it was written" in shown.err


def test_the_last_results_are_those_with_the_latest_date(tmp_path: Path) -> None:
    from lm_eval.results.reader import latest_results

    names = {"results_2026-01-02T00-00-00.json": 100.0, "results_2026-01-01T00-00-00.json": 200.0}
    for name, date in names.items():
        (tmp_path / name).write_text(json.dumps({"results": {}, "date": date}))
    assert latest_results(tmp_path).name == "results_2026-01-01T00-00-00.json"
    (tmp_path / "results_2026-01-03T00-00-00.json").write_text(json.dumps({"results": {}}))
    assert latest_results(tmp_path).name == "results_2026-01-03T00-00-00.json"


# -- plain errors -------------------------------------------------------------------------------

Prepare = Callable[[Path], list[str]]
RUN = ["run", "--model", "dummy", "--tasks"]


def binary(path: Path) -> str:
    file = path / "binary"
    file.write_bytes(bytes(range(256)))
    return str(file)


def python(path: Path, text: str) -> str:
    file = path / "own.py"
    file.write_text(text)
    return str(file)


def config(text: str) -> Prepare:
    def prepare(path: Path) -> list[str]:
        file = path / "run.yaml"
        file.write_text(text)
        return ["run", "--config", str(file)]

    return prepare


BAD: dict[str, Prepare] = {
    "a task name of 5,000 letters": lambda path: [*RUN, "x" * 5000],
    "a task file name of 5,000 letters": lambda path: [*RUN, "x" * 5000 + ".yaml"],
    "an output path of 5,000 letters": lambda path: [*RUN, "demo_choice", "-o", "x" * 5000],
    "a store of 5,000 letters": lambda path: [*RUN, "demo_choice", "--use_cache", "x" * 5000],
    "a model of 5,000 letters": lambda path: ["run", "--model", "x" * 5000, "--tasks", "demo"],
    "a model file of 5,000 letters": lambda path: [
        *("run", "--model", "x" * 5000 + ".py:X", "--tasks", "demo")
    ],
    "a folder of tasks of 5,000 letters": lambda path: [*RUN, "demo", "--include_path", "x" * 5000],
    "a data folder of 5,000 letters": lambda path: [*RUN, "demo_choice", "--data_dir", "x" * 5000],
    "a config file of 5,000 letters": lambda path: ["run", "--config", "x" * 5000],
    "samples of 5,000 letters": lambda path: [*RUN, "demo_choice", "--samples", "x" * 5000],
    "NUL in a task": lambda path: [*RUN, "demo\0choice"],
    "NUL in a task file": lambda path: [*RUN, "demo\0choice.yaml"],
    "NUL in the output path": lambda path: [*RUN, "demo_choice", "-o", f"{path}/a\0b"],
    "NUL in the store": lambda path: [*RUN, "demo_choice", "--use_cache", f"{path}/a\0b"],
    "NUL in the model": lambda path: ["run", "--model", "a\0b", "--tasks", "demo_choice"],
    "NUL in the model file": lambda path: ["run", "--model", "a\0b.py:X", "--tasks", "demo_choice"],
    "NUL in a folder of tasks": lambda path: [*RUN, "demo", "--include_path", "a\0b"],
    "NUL in the samples": lambda path: [*RUN, "demo_choice", "--samples", "a\0b"],
    "NUL in the data folder": lambda path: [*RUN, "demo_choice", "--data_dir", "a\0b"],
    "NUL in the folder to score": lambda path: ["score", "a\0b"],
    "NUL in the folder to resume": lambda path: ["resume", "a\0b"],
    "NUL in the file to reproduce": lambda path: ["reproduce", "a\0b"],
    "NUL in findings": lambda path: [*RUN, "demo_choice", "--decontaminate", "a\0b"],
    "a folder to score of 5,000 letters": lambda path: ["score", "x" * 5000],
    "a folder to resume of 5,000 letters": lambda path: ["resume", "x" * 5000],
    "a file to reproduce of 5,000 letters": lambda path: ["reproduce", "x" * 5000],
    "samples of a binary": lambda path: [*RUN, "demo_choice", "--samples", binary(path)],
    "samples that are a folder": lambda path: [*RUN, "demo_choice", "--samples", str(path)],
    "samples nested 100,000 deep": lambda path: [
        *RUN,
        "demo_choice",
        "--samples",
        '{"a":' + "[" * 100_000,
    ],
    "model_args nested 100,000 deep": lambda path: [
        *RUN,
        "demo_choice",
        "--model_args",
        '{"a":' + "[" * 100_000,
    ],
    "gen_kwargs nested 1,200 deep": lambda path: [
        *RUN,
        "demo_sums",
        "--gen_kwargs",
        '{"a":' + "[" * 1200 + "]" * 1200 + "}",
    ],
    "model_args with a number of 5,000 digits": lambda path: [
        *RUN,
        "demo_choice",
        "--model_args",
        "size=" + "9" * 5000,
    ],
    "model_args in JSON with a number of 5,000 digits": lambda path: [
        *RUN,
        "demo_choice",
        "--model_args",
        '{"size": ' + "9" * 5000 + "}",
    ],
    "gen_kwargs with a number of 5,000 digits": lambda path: [
        *RUN,
        "demo_sums",
        "--gen_kwargs",
        "top_k=" + "9" * 5000,
    ],
    "a model file nested too deeply": lambda path: [
        "run",
        "--model",
        f"{python(path, 'x = ' + '-' * 200_000 + '1')}:X",
        "--tasks",
        "demo_choice",
    ],
    "a binary to reproduce": lambda path: ["reproduce", binary(path)],
    "a binary to score": lambda path: ["score", binary(path)],
    "a binary as config": lambda path: ["run", "--config", binary(path)],
    "a binary as findings": lambda path: [*RUN, "demo_choice", "--decontaminate", binary(path)],
    "a config that is a list": config("- a\n- b\n"),
    "a number for the model": config("model: 3\ntasks: [demo_choice]\n"),
    "a list for the model": config("model: [dummy]\ntasks: [demo_choice]\n"),
    "a number for the tasks": config("model: dummy\ntasks: 3\n"),
    "text for a flag": config("model: dummy\ntasks: [demo_choice]\nlog_samples: perhaps\n"),
    "a mapping for the limit": config("model: dummy\ntasks: [demo_choice]\nlimit: {a: 1}\n"),
    "a number for the output path": config("model: dummy\ntasks: [demo_choice]\noutput_path: 3\n"),
    "a list for the store": config("model: dummy\ntasks: [demo_choice]\nuse_cache: [a]\n"),
    "a number for the folders": config("model: dummy\ntasks: [demo_choice]\ninclude_path: 3\n"),
    "a list for the system": config(
        "model: dummy\ntasks: [demo_choice]\nsystem_instruction: [a]\n"
    ),
    "a mapping for the device": config("model: dummy\ntasks: [demo_choice]\ndevice: {a: 1}\n"),
    "a number for the template": config(
        "model: dummy\ntasks: [demo_choice]\napply_chat_template: 3\n"
    ),
    "a list for the level": config("model: dummy\ntasks: [demo_choice]\nverbosity: [a]\n"),
    "a mapping for the cluster": config("model: dummy\ntasks: [demo_choice]\ncluster: {a: 1}\n"),
    "a list for the data folder": config("model: dummy\ntasks: [demo_choice]\ndata_dir: [a]\n"),
    "a mapping for the seed": config("model: dummy\ntasks: [demo_choice]\nseed: {a: 1}\n"),
    "a mapping for the format": config(
        "model: dummy\ntasks: [demo_choice]\nsamples_format: {a: 1}\n"
    ),
    "text for the environment": config("model: dummy\ntasks: [demo_choice]\nenvironment: abc\n"),
    "a list for max_batch_size": config(
        "model: dummy\ntasks: [demo_choice]\nmax_batch_size: [1]\n"
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_input_is_one_plain_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, what: str
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    message = error_of(BAD[what](tmp_path), capsys)
    assert "--debug" not in message, message  # it is no error of Python
    assert len(message) < 7000
    assert "\0" not in message
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK"])
def test_a_wrong_number_of_processes_is_a_plain_error(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, name: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(name, "abc")
    message = error_of([*RUN, "demo_choice", "--limit", "2"], capsys)
    assert f"{name} is 'abc'" in message
    assert "--debug" not in message


def test_an_empty_rolling_text_is_a_plain_error(folder: Folder, capsys: Captured) -> None:
    folder.rows("d.jsonl", [{"text": ""}, {"text": ""}])
    folder.write(
        "rolling.yaml",
        "task: rolling\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: d.jsonl\n"
        "test_split: test\noutput_type: loglikelihood_rolling\ndoc_to_text: ''\n"
        "doc_to_target: '{{text}}'\nmetric_list:\n  - metric: word_perplexity\n"
        "  - metric: byte_perplexity\n",
    )
    words = ["run", "--model", "demo", "--tasks", "rolling", "--include_path", str(folder.path)]
    message = error_of(words, capsys)
    assert "task 'rolling': the texts of all its documents are empty (document 0" in message
    assert "All answers" not in message  # the model was not asked
    assert "--debug" not in message


def test_a_single_cluster_gives_no_standard_error_but_a_warning(
    colours: Folder, capsys: Captured
) -> None:
    rows = [json.loads(line) for line in (colours.path / "colours.jsonl").read_text().splitlines()]
    colours.rows("colours.jsonl", [{**row, "page": 1} for row in rows])
    words = ["run", "--model", "dummy", "--tasks", "colours", "--include_path", str(colours.path)]
    assert main([*words, "--cluster", "page", "--confidence", "0.9"]) == 0
    shown = capsys.readouterr()
    assert "one cluster" in shown.err
    assert "N/A" in shown.out
