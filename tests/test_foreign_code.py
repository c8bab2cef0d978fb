"""Tests that code written for the published harness works with our tasks, documents and errors."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.data.fingerprint import fingerprint
from lm_eval.data.rows import Rows
from lm_eval.errors import EvalError, ModelError, UnknownNameError, as_original_type
from lm_eval.evaluator import run_evaluation
from lm_eval.models.conventions import sampling_seed
from lm_eval.models.create import create_model
from lm_eval.models.demo.model import DemoLM
from lm_eval.models.identity import model_identity
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.test_evaluate import evaluated, painter

# -- documents --------------------------------------------------------------------------------


def a_task(folder: Folder, name: str = "colours") -> Any:
    return TaskManager(include_path=folder.path).load(name)["tasks"][name]


def test_documents_can_what_a_dataset_can(colours: Folder) -> None:
    docs = a_task(colours).dataset["test"]
    assert docs["thing"][:2] == ["grass", "blood"]
    assert docs.select([1])[0]["thing"] == "blood"
    assert docs.filter(lambda doc: doc["answer"] == 1).num_rows == 3
    assert len(docs.train_test_split(test_size=2)["test"]) == 2
    assert not hasattr(docs, "no_such_thing")
    untyped = Rows([{"a": 1}, {"a": "x"}])  # no table can hold these
    assert not hasattr(untyped, "no_such_thing")
    assert untyped["a"] == [1, "x"]


def test_a_split_can_be_exchanged(colours: Folder) -> None:
    task = a_task(colours)
    assert len(task.eval_docs) == 6
    task.dataset["test"] = task.dataset["test"].select(range(2))
    assert [doc["thing"] for doc in task.eval_docs] == ["grass", "blood"]
    assert [doc["thing"] for doc in task.test_docs()] == ["grass", "blood"]
    task.build_all_requests()
    assert len(task.instances) == 4
    assert len(pickle.loads(pickle.dumps(task.dataset))["test"]) == 2


def test_rows_are_the_same_data_however_they_are_held() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert fingerprint(Rows(rows)) == fingerprint(rows)


# -- answers ----------------------------------------------------------------------------------


class Scalar:
    """Imitates a tensor with one number."""

    ndim = 0

    def __init__(self, number: float) -> None:
        self.number = number

    def item(self) -> float:
        return self.number


@pytest.mark.parametrize(
    "wrap",
    [
        tuple,
        iter,
        lambda answers: (answer for answer in answers),
        lambda answers: [list(answer) for answer in answers],
        lambda answers: [(Scalar(value), Scalar(greedy)) for value, greedy in answers],
        lambda answers: [[Scalar(value), greedy] for value, greedy in answers],
        np.array,
        lambda answers: [(np.float32(value), np.bool_(greedy)) for value, greedy in answers],
    ],
)
def test_answers_may_come_in_any_sequence_and_as_tensors(colours: Folder, wrap: Any) -> None:
    class Wrapped(ScriptedLM):
        def loglikelihood(self, requests: list[Instance]) -> Any:
            return wrap(super().loglikelihood(requests))

    lm = Wrapped(loglikelihood=painter()._functions["loglikelihood"])
    assert evaluated(colours, lm, ["colours"])["results"]["colours"]["acc,none"] == 5 / 6


def text_task(folder: Folder) -> Folder:
    text = (folder.path / "colours.yaml").read_text()
    folder.write(
        "words.yaml",
        text.replace("task: colours", "task: words")
        .replace("multiple_choice", "generate_until")
        .replace("doc_to_choice: colours\n", "")
        .replace("doc_to_target: answer", "doc_to_target: '{{colours[answer]}}'")
        .replace("metric: acc", "metric: exact_match"),
    )
    return folder


def test_no_text_counts_as_an_empty_one(colours: Folder, caplog: pytest.LogCaptureFixture) -> None:
    lm = ScriptedLM(generate=lambda context, _: None if "pig" in context else "green")  # type: ignore[arg-type,return-value]
    results = evaluated(text_task(colours), lm, ["words"])
    assert results["results"]["words"]["exact_match,none"] == 1 / 6
    assert "returned None for 1 requests; their answers are scored as empty strings" in caplog.text


def test_a_request_may_have_nothing_but_arguments() -> None:
    """Scripts call a model directly in this way."""
    lm = DemoLM()
    pair = ("Tom has", " a cat")
    bare: Any = [SimpleNamespace(args=pair)]
    whole = [Instance("loglikelihood", {}, pair, 0, ("t", 0, 1))]
    assert lm.loglikelihood(bare) == lm.loglikelihood(whole)
    written: Any = [SimpleNamespace(args=("Tom has", {"until": ["."], "max_gen_toks": 4}))]
    assert isinstance(lm.generate_until(written)[0], str)


# -- errors -----------------------------------------------------------------------------------


def test_an_error_in_a_model_is_caught_by_its_own_name(colours: Folder) -> None:
    class RefusedError(RuntimeError):
        pass

    def refuse(*_: Any) -> tuple[float, bool]:
        raise RefusedError("not today")

    with pytest.raises(
        RefusedError, match=r"ScriptedLM.loglikelihood failed: RefusedError: not today"
    ) as e:
        evaluated(colours, ScriptedLM(loglikelihood=refuse), ["colours"])
    assert isinstance(e.value, ModelError)


def test_an_answer_that_fails_while_it_is_fetched_is_the_models_error(colours: Folder) -> None:
    class Lazy(ScriptedLM):
        def loglikelihood(self, requests: list[Instance]) -> Any:
            return ((1 / 0, True) for _ in requests)

    with pytest.raises(ZeroDivisionError, match="loglikelihood failed") as told:
        evaluated(colours, Lazy(), ["colours"])
    assert isinstance(told.value, ModelError)


def test_an_error_in_a_task_is_caught_by_its_own_name(colours: Folder) -> None:
    colours.write("own.py", "def process(doc, results):\n    return {'acc': 1 / 0}\n")
    file = colours.path / "colours.yaml"
    file.write_text(file.read_text() + "process_results: !function own.process\n")
    with pytest.raises(ZeroDivisionError, match="task 'colours', document 0") as error:
        evaluated(colours, painter(), ["colours"])
    assert isinstance(error.value, EvalError)


class ParticularError(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)


class FinalError(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("it is final")


@pytest.mark.parametrize(
    "error",
    [
        ParticularError(3, "x"),
        UnicodeDecodeError("a", b"", 0, 1, "x"),
        OSError(2, "gone"),
        KeyError("k"),
        FinalError(),
        SyntaxError("x"),
    ],
)
@pytest.mark.parametrize("ours", [EvalError, ModelError])
def test_any_error_is_told_by_our_words(ours: type[EvalError], error: Exception) -> None:
    told = as_original_type(ours("it failed"), error)
    assert isinstance(told, ours)
    assert (str(told), told.args) == ("it failed", ("it failed",))
    told.answers = {}
    again = pickle.loads(pickle.dumps(told))
    assert (type(again), str(again)) == (ours, "it failed")


def test_a_joined_error_has_what_theirs_has() -> None:
    theirs = ParticularError(3, "x")
    theirs.response = "busy"  # type: ignore[attr-defined]
    told = as_original_type(EvalError("it failed"), theirs)
    assert isinstance(told, ParticularError)
    assert told.response == "busy"  # type: ignore[attr-defined]


def test_an_unknown_task_is_an_unknown_key(colours: Folder) -> None:
    for kind in (KeyError, ValueError):
        with pytest.raises(kind, match="there is no task, group or tag 'colors'") as error:
            TaskManager(include_path=colours.path).load("colors")
        assert str(error.value).startswith("there is no task")  # not in quotes, as a KeyError's is
    assert isinstance(error.value, UnknownNameError)


# -- classes ----------------------------------------------------------------------------------


def test_a_class_may_take_itself_out_of_its_configuration(colours: Folder) -> None:
    """Published classes do this before they pass the configuration on."""
    colours.write(
        "own.py",
        "from lm_eval.api.task import ConfigurableTask\n"
        "class Own(ConfigurableTask):\n"
        "    def __init__(self, config=None):\n"
        "        config.pop('class')\n"
        "        super().__init__(config=config)\n"
        "class Careless(ConfigurableTask):\n"
        "    def __init__(self, config=None):\n"
        "        super().__init__(config=config)\n",
    )
    text = (colours.path / "colours.yaml").read_text()
    for name in ("Own", "Careless"):
        colours.write(
            f"{name}.yaml",
            text.replace("task: colours", f"task: {name}\nclass: !function own.{name}"),
        )
        results = evaluated(colours, painter(), [name])
        assert results["results"][name]["acc,none"] == 5 / 6


def test_what_a_class_scores_itself_can_be_left_unscored(colours: Folder) -> None:
    colours.write(
        "own.py",
        "from lm_eval.api.task import ConfigurableTask\n"
        "class Own(ConfigurableTask):\n"
        "    def process_results(self, doc, results):\n"
        "        raise RuntimeError('scored')\n",
    )
    file = colours.path / "colours.yaml"
    file.write_text(
        file.read_text().replace("task: colours", "task: own\nclass: !function own.Own")
    )
    results = evaluated(colours, painter(), ["own"], predict_only=True)
    assert results["results"]["own"]["bypass,none"] == 999
    assert len(results["samples"]["own"]) == 6


def test_a_class_under_a_taken_name_is_used() -> None:
    """A class registered before the built-in one must not be replaced by it later."""
    script = """
from lm_eval.api.registry import register_filter, register_metric
from lm_eval.api.registry import filter_registry, metric_registry
from lm_eval.api.filter import Filter

@register_filter("regex")
class Mine(Filter):
    def apply(self, resps, docs):
        return resps

@register_metric(metric="exact_match", aggregation="mean")
def mine(items):
    return 1.0

assert filter_registry.get("regex") is Mine
metric_registry.get("acc")
assert metric_registry.get("exact_match") is mine
"""
    script += """
from lm_eval.api.registry import metric_agg_registry, model_registry, register_model
from lm_eval.models.scripted import ScriptedLM

@register_model("demo")
class Own(ScriptedLM):
    pass

import lm_eval.models.demo.model
assert model_registry.get("demo") is Own
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- what a run is given and tells ------------------------------------------------------------


def test_results_tell_arguments_as_they_were_given(colours: Folder) -> None:
    def config(**given: Any) -> Any:
        settings = {"tasks": ["colours"], "task_manager": TaskManager(include_path=colours.path)}
        results: Any = lm_eval.simple_evaluate("dummy", **settings, **given)
        return results["config"]

    found = config(model_args="pretrained=a,x=1", gen_kwargs="temperature=0", limit=2)
    assert found["model_args"] == "pretrained=a,x=1"
    assert found["gen_kwargs"] == {"temperature": 0}
    assert (found["limit"], type(found["limit"])) == (2, int)
    found = config(model_args={"pretrained": "a"})
    assert (found["model_args"], found["gen_kwargs"]) == ({"pretrained": "a"}, None)


def test_arguments_as_given_hold_no_secret() -> None:
    run = RunConfig(model="dummy", model_args="api_key=hush,x=1", tasks=["t"])
    assert run.as_given("model_args") == {"x": 1}


def test_a_model_object_is_named_by_where_it_came_from(colours: Folder) -> None:
    lm: Any = painter()
    lm.config = SimpleNamespace(_name_or_path="org/name")
    results = evaluated(colours, lm, ["colours"])
    assert results["config"]["model"] == "org/name"
    assert evaluated(colours, painter(), ["colours"])["config"]["model"] == "ScriptedLM"


def test_the_seed_of_a_run_reaches_models_that_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    class Derived(DemoLM):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)

        def generate_until(self, requests: list[Instance]) -> list[str]:
            seeds.append(sampling_seed(self))
            return super().generate_until(requests)

    monkeypatch.setitem(model_registry._entries, "derived", Derived)
    told, untold = Derived(seed=9), Derived()
    for model, arguments in (("derived", ""), ("derived", "seed=9"), (told, ""), (untold, "")):
        run = RunConfig(model=model, model_args=arguments, tasks=["demo_sums"], limit=1, seed=5)
        run_evaluation(run)
    assert seeds == [5, 9, 9, 5]
    assert untold.run_seed is None  # the run is over


def test_greedy_answers_belong_to_the_model_whatever_the_seed() -> None:
    def identity(model: Any, **given: Any) -> str:
        run = RunConfig(model=model, tasks=["t"], **given)
        return model_identity(run, create_model(run))

    assert identity("demo", seed=5) == identity("demo", seed=6)
    assert identity("demo", model_args="seed=9") != identity("demo", model_args="seed=8")
    assert identity(DemoLM(seed=9)) != identity(DemoLM(seed=8))


def test_a_seed_of_another_meaning_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Seedy(ScriptedLM):
        def __init__(self, seed: str = "of doubt") -> None:
            super().__init__()
            self.seed = seed

        def identity(self) -> dict[str, Any]:
            return {"seed": self.seed}

    monkeypatch.setitem(model_registry._entries, "seedy", Seedy)
    found = []
    for words in ("", "seed=of_joy"):
        run = RunConfig(model="seedy", model_args=words, tasks=["t"], seed=3)
        lm: Any = create_model(run)
        found.append((lm.seed, json.loads(model_identity(run, lm))["own"]))
    assert found == [("of doubt", {"seed": "of doubt"}), ("of_joy", {"seed": "of_joy"})]


def test_verbosity_is_heard_wherever_it_is_said(colours: Folder, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        f"model: dummy\ntasks: [colours]\ninclude_path: {colours.path}\nverbosity: ERROR\n"
    )
    assert main(["run", "--config", str(config)]) == 0
    assert logging.getLogger("lm_eval").level == logging.ERROR
    evaluated(colours, painter(), ["colours"], verbosity="DEBUG")
    assert logging.getLogger("lm_eval").level == logging.DEBUG


def test_a_class_of_its_own_need_not_call_ours(colours: Folder) -> None:
    class Bare(LM):
        def __init__(self) -> None:
            pass

        def loglikelihood(self, requests: Any) -> Any:
            return painter().loglikelihood(requests)

        loglikelihood_rolling = generate_until = loglikelihood

    assert evaluated(colours, Bare(), ["colours"])["results"]["colours"]["acc,none"] == 5 / 6
