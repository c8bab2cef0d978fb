"""Tests names that exist for other projects, where `tests/uses` has no use of them."""

from __future__ import annotations

import copy
import json
import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from lm_eval.api.registry import Registry
from lm_eval.api.task import ConfigurableTask
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.config.task import TaskConfig
from lm_eval.errors import ConfigError, ModelError, UnknownNameError
from lm_eval.evaluator_utils import run_task_tests
from lm_eval.models.hf_steered import SteeredModel, steer
from lm_eval.models.hf_vlms import HFMultimodalLM
from lm_eval.models.mamba_lm import MambaLMWrapper
from lm_eval.models.optimum_lm import OptimumLM
from lm_eval.models.utils import truncate_tokens
from lm_eval.models.vllm_vlms import VLLM_VLM


@pytest.mark.parametrize(
    "made", [SteeredModel, steer, HFMultimodalLM, MambaLMWrapper, OptimumLM, VLLM_VLM]
)
def test_a_model_that_is_not_available_says_what_to_use_instead(made: Any) -> None:
    with pytest.raises(ModelError, match=r"(?s)is not available here\. .*`"):
        made(pretrained="somewhere")


def test_a_class_that_is_defined_again_in_the_same_place_replaces_itself() -> None:
    registry: Registry[Any] = Registry("thing")

    def define() -> type:
        class Thing:
            pass

        return registry.register("thing")(Thing)

    define()
    second = define()
    assert registry.get("thing") is second
    with pytest.raises(ConfigError, match=r"is already registered as .*Thing"):
        registry.register("thing")(dict)


def test_items_and_attributes_of_a_configuration_are_the_same() -> None:
    config = TaskConfig(task="a", doc_to_text=len)
    config["task"], config.num_fewshot = "b", 2
    config |= {"repeats": 3}
    for copied in (
        config,
        copy.copy(config),
        copy.deepcopy(config),
        pickle.loads(pickle.dumps(config)),
    ):
        assert (copied.task, copied["num_fewshot"], dict(copied)["repeats"]) == ("b", 2, 3)
        assert copied.doc_to_text is len
        assert copied == config
    with pytest.raises(TypeError, match="Set a field to None"):
        config.pop("task")
    assert json.loads(json.dumps(config, default=str))["fewshot_config"]["sampler"] == "default"


def test_metrics_of_a_task_cannot_be_changed_through_the_published_names() -> None:
    config = {
        "task": "t",
        "custom_dataset": lambda **_: {"test": [{"q": "a", "a": "b"}]},
        "test_split": "test",
        "doc_to_text": "q",
        "doc_to_target": "a",
    }
    task: Any = ConfigurableTask(config=config)
    with pytest.raises(TypeError):
        task._metric_fn_list["mine"] = len
    with pytest.raises(AttributeError):
        task._aggregation_list = {}


def test_a_parsed_command_line_overrides_the_file_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: dummy\ntasks: [demo_choice]\nlimit: 3\nmodel_args: {a: 1}\n")
    given = Namespace(config=str(file), limit=5, num_fewshot=0, batch_size=None, command="run")
    config = EvaluatorConfig.from_cli(given)
    assert (config.model, config.limit, config.num_fewshot) == ("dummy", 5, 0)
    assert (config.metadata, list(config.seed)) == ({"a": 1}, [0, 1234, 1234, 1234])
    config.tasks = "demo_ch*,nowhere"
    with pytest.raises(UnknownNameError, match="nowhere"):
        config.process_tasks()
    with pytest.raises(ConfigError, match="output_path"):
        EvaluatorConfig.from_cli(Namespace(tasks=["demo_choice"], log_samples=True))


def test_tasks_are_checked_by_name() -> None:
    run_task_tests(task_list=["demo_pairs"])
    with pytest.raises(UnknownNameError):
        run_task_tests(task_list=["demo_pears"])


def test_no_token_is_kept_where_there_is_no_room() -> None:
    assert truncate_tokens([1, 2, 3], 0) == truncate_tokens([1, 2, 3], -1, "middle") == []
    assert truncate_tokens([1, 2], 6, "middle") == [1, 2]
