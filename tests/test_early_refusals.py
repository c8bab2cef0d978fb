"""Tests that mistakes that are cheap to detect are reported before the model loads."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, EvalError, ModelError, UnknownNameError
from lm_eval.evaluator import run_evaluation
from lm_eval.tasks import TaskManager
from tests.conftest import Folder


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the test fail if a model is created."""

    def refuse(*_: object) -> None:
        raise AssertionError("a model was made")

    monkeypatch.setattr("lm_eval.evaluator.create_model", refuse)


@pytest.fixture
def no_tasks(no_model: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the test fail if tasks are loaded."""

    def refuse(*_: object) -> None:
        raise AssertionError("tasks were loaded")

    monkeypatch.setattr("lm_eval.evaluator.load_tasks", refuse)


def missing(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Makes packages appear as not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in packages else find(name, *a)
    )


def test_a_misspelt_model_is_refused_before_tasks_are_loaded(no_tasks: None) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'dumy'. Did you mean 'dummy'"):
        run_evaluation(RunConfig(model="dumy", tasks=["demo_choice"]))


def test_a_missing_package_is_named_before_tasks_are_loaded(
    no_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch, "torch", "transformers")
    with pytest.raises(ModelError, match=r"needs the package 'torch'.*pip install -e '\.\[hf\]'"):
        run_evaluation(RunConfig(model="hf", model_args="pretrained=x", tasks=["demo_choice"]))


def test_an_argument_that_the_model_does_not_take_is_refused_first(no_model: None) -> None:
    with pytest.raises(ConfigError, match=r"takes no argument 'max_lenth'. Did you mean 'max_len"):
        run_evaluation(
            RunConfig(model="demo", model_args="max_lenth=3", tasks=["demo_choice"], limit=1)
        )


def test_an_unsafe_task_must_be_confirmed_before_the_model_loads(
    no_model: None, colours: Folder
) -> None:
    text = (colours.path / "colours.yaml").read_text()
    colours.write("colours.yaml", f"{text}unsafe_code: true\n")
    manager = TaskManager(include_path=str(colours.path))
    with pytest.raises(ConfigError, match=r"runs code that the model writes. Confirm with --conf"):
        run_evaluation(RunConfig(model="demo", tasks=["colours"]), manager)


def test_a_model_without_a_chat_template_is_refused_before_it_loads(no_model: None) -> None:
    with pytest.raises(ModelError, match=r"DemoLM has no chat template; run without --apply_chat"):
        run_evaluation(RunConfig(model="demo", tasks=["demo_choice"], apply_chat_template=True))


@pytest.mark.parametrize(
    ("change", "package", "extra"),
    [
        ({"metric_list": [{"metric": "bleu"}]}, "sacrebleu", "metrics"),
        ({"metric_list": [{"metric": "f1", "hf_evaluate": True}]}, "evaluate", "metrics"),
    ],
)
def test_the_package_of_a_metric_is_missed_before_the_model_loads(
    no_model: None, monkeypatch: pytest.MonkeyPatch, change: Any, package: str, extra: str
) -> None:
    missing(monkeypatch, package)
    with pytest.raises(EvalError, match=rf"{package}.*pip install -e '\.\[{extra}\]'"):
        run_evaluation(RunConfig(model="demo", tasks=[{"task": "demo_sums", **change}]))


def test_the_package_of_a_shipped_task_is_missed_when_its_code_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lm_eval.config.functions import resolve_functions
    from lm_eval.config.yaml_file import load_yaml_file

    manager = TaskManager()
    missing(monkeypatch, "sacrebleu")
    file = load_yaml_file(str(manager.task_index["truthfulqa_gen"].path))
    with pytest.raises(EvalError, match=r"sacrebleu.*pip install -e '\.\[metrics\]'"):
        resolve_functions(file.values)

    # Read from its file: a pack in another test may offer a module of the same name.
    path = Path(str(manager.task_index["scrolls_govreport"].path)).with_name("task.py")
    spec = importlib.util.spec_from_file_location("scrolls_task", path)
    assert spec is not None
    assert spec.loader is not None
    scrolls: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scrolls)
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(ConfigError, match=r"rouge_score.*pip install -e '\.\[rouge\]'"):
        scrolls.Summary()


def test_no_message_advises_to_install_lm_eval_from_pypi() -> None:
    """On PyPI, `lm_eval` is the published harness."""
    advice = re.compile(r"pip install [\"']?lm[_-]eval")
    for file in Path(lm_eval.__file__).parent.rglob("*.py"):
        assert not advice.search(file.read_text(encoding="utf-8")), file
