"""Tests evaluations during training: scores of the live model, and training as without them."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm_eval
from lm_eval.callback import TrainerCallback, TrainingCurve
from lm_eval.errors import ConfigError, ModelError, OutputError, UnknownNameError
from lm_eval.live import LiveTasks, evaluate_live, flat_scores
from lm_eval.sweeps.record import read_sweep
from tests.huggingface.conftest import torch, transformers
from tests.huggingface.test_run import free_port
from tests.huggingface.training_run import EVERY, LIMIT, STEPS, TASKS, Texts, train

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
STORIES = REPOSITORY.parent / "shared" / "models" / "stories260K"


@pytest.fixture(scope="module", params=["tiny", "stories260K"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tokenizer: Any
) -> str:
    """Returns the folder of a model: one that the test makes, and one that was trained."""
    if request.param == "stories260K":
        if not STORIES.is_dir():
            pytest.skip("needs ../shared")
        return str(STORIES)
    return tiny_model(tmp_path_factory.mktemp("tiny"), tokenizer)


def tiny_model(folder: Path, tokenizer: Any) -> str:
    """Writes a small random model to a folder, and returns it."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def checkpoint_scores(checkpoint: Path) -> Any:
    results = lm_eval.simple_evaluate(
        "hf", {"pretrained": str(checkpoint)}, TASKS, limit=LIMIT, log_samples=False
    )
    assert results is not None
    return results["results"]


def test_training_is_evaluated_as_its_checkpoints_and_goes_on_as_without(
    folder: str, tmp_path: Path
) -> None:
    plain, _ = train(folder, tmp_path / "plain", evaluated=False)
    kept, callback = train(folder, tmp_path / "evaluated", evaluated=True)
    assert kept.pop("logged") == [0, 2, 4]
    assert plain.pop("logged") == []
    assert kept == plain
    assert len(plain["losses"]) == STEPS
    history = {step: results["results"] for step, results in callback.history}
    assert list(history) == [0, 2, 4]
    assert history[0] == checkpoint_scores(Path(folder))
    for step in range(EVERY, STEPS + 1, EVERY):
        assert history[step] == checkpoint_scores(tmp_path / f"evaluated/checkpoint-{step}")
    assert history[2] != history[4]
    curve = read_sweep(tmp_path / "evaluated" / "curve")
    assert [run.step for run in curve.runs] == [0, 2, 4]
    assert [results["results"] for _, results in curve.results()] == list(history.values())


def test_ranks_share_the_requests_of_an_evaluation(tmp_path: Path, tokenizer: Any) -> None:
    model = tiny_model(tmp_path / "tiny", tokenizer)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    program = ["--master_port", str(free_port()), "-m", "tests.huggingface.training_run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        [*launcher, *program, model, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{n}.json").read_text()) for n in (0, 1))
    for rank in (first, second):
        assert rank["evaluated"].pop("logged") == ([0, 2, 4] if rank is first else [])
        assert rank["plain"].pop("logged") == []
        assert rank["evaluated"] == rank["plain"]
    assert second["history"] == []
    assert [step for step, _ in first["history"]] == [0, 2, 4]
    for step, found in first["history"][1:]:
        check_equal(found, checkpoint_scores(tmp_path / f"evaluated/checkpoint-{step}"))
    check_equal(first["sharded"], checkpoint_scores(Path(model)))  # each rank has half the weights
    assert second["sharded"] is None
    for one in (first, second):  # no process waits for one that failed
        for rank, message in enumerate(one["failures"][:2]):
            assert "out of memory" in message
            assert message.startswith(f"process {rank}: ") == (one is not (first, second)[rank])
    assert [one["failures"][2].startswith("process 0: ") for one in (first, second)] == [0, 1]
    assert all("out of memory" in one["failures"][2] for one in (first, second))


def check_equal(found: Any, expected: Any) -> None:
    """Asserts that scores are equal up to rounding: ranks compute in other batches."""
    for task, row in expected.items():
        numbers = {key: value for key, value in row.items() if isinstance(value, float)}
        assert {key: found[task][key] for key in numbers} == pytest.approx(numbers, rel=1e-5)


def test_requests_are_built_once(llama: Any, tokenizer: Any, monkeypatch: Any) -> None:
    tasks = LiveTasks("demo_choice,demo_stories", limit=3)
    first = evaluate_live(llama, tokenizer, tasks)
    assert first is not None
    for task in tasks._tasks.values():
        monkeypatch.setattr(task, "build_all_requests", None)
    monkeypatch.setattr("lm_eval.models.huggingface.encoding.fast_encoder", None)
    second = evaluate_live(llama, tokenizer, tasks)
    assert second is not None
    assert second["results"] == first["results"]
    scores = flat_scores(first)
    assert scores["eval/demo_choice/acc"] == first["results"]["demo_choice"]["acc,none"]
    assert all(isinstance(value, float) for value in scores.values())


def test_another_model_or_tokenizer_gets_requests_of_its_own(llama: Any, tokenizer: Any) -> None:
    """The prompts of a chat contain the template of the tokenizer."""
    chatty = copy.deepcopy(tokenizer)
    chatty.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    other = copy.deepcopy(chatty)
    other.chat_template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    tasks = LiveTasks("demo_choice", limit=1, apply_chat_template=True, log_samples=True)
    prompts = []
    for one in (chatty, other):
        results = evaluate_live(llama, one, tasks)
        assert results is not None
        prompts.append(results["samples"]["demo_choice"][0]["arguments"][0][0])
    assert prompts[0].startswith("<")
    assert prompts[1].startswith("[")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limitt": 3}, "'limitt' is not a setting of a live evaluation. Did you mean 'limit'"),
        ({"output_path": "x"}, "'output_path' is not a setting"),
        ({"limit": -1}, "limit must be positive"),
    ],
)
def test_mistakes_are_found_before_training(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LiveTasks("demo_choice", **settings)


def test_a_task_that_does_not_exist_is_found_before_training() -> None:
    with pytest.raises(UnknownNameError, match="demo_chioce"):
        LiveTasks("demo_chioce")


def trained(model: Any, tokenizer: Any, out: Path, *callbacks: Any, **settings: Any) -> Any:
    """Returns a trainer of two steps; each callback is a function that gets the trainer."""
    args = {"max_steps": 2, "use_cpu": True, "report_to": [], "save_strategy": "no", **settings}
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(str(out), disable_tqdm=True, **args),
        train_dataset=Texts(),
        data_collator=transformers.default_data_collator,
        processing_class=tokenizer,
    )
    for callback in callbacks:
        trainer.add_callback(callback(trainer))
    trainer.train()
    return trainer


def test_scores_have_their_names_in_the_loggers_of_the_trainer(
    llama: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """Loggers get names by `rewrite_logs`, which puts `train/` before most."""
    integrations = transformers.integrations.integration_utils
    seen: list[str] = []

    class Logger(transformers.TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.extend(integrations.rewrite_logs(dict(kwargs["logs"])))

    trained(
        *(copy.deepcopy(llama), tokenizer, tmp_path),
        lambda trainer: Logger(),
        lambda trainer: TrainerCallback("demo_choice", 2, trainer=trainer, limit=1),
    )
    assert "eval/demo_choice/acc" in seen
    assert not [name for name in seen if name.startswith("train/eval")]


def test_a_full_disk_does_not_end_training(
    llama: Any, tokenizer: Any, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    def full(*args: Any) -> None:
        raise OutputError("the disk is full")

    monkeypatch.setattr("lm_eval.callback.save", full)
    callback = TrainerCallback("demo_choice", 1, limit=1, output_path=tmp_path / "curve")
    trainer = trained(copy.deepcopy(llama), tokenizer, tmp_path, lambda trainer: callback)
    assert trainer.state.global_step == 2
    assert [step for step, _ in callback.history] == [1, 2]
    assert "step 1: the results were not saved: the disk is full" in caplog.text
    logged = [one["step"] for one in trainer.state.log_history if "eval_demo_choice/acc" in one]
    assert logged == [1, 2]


def test_a_second_training_is_evaluated_at_the_same_step(
    llama: Any, tokenizer: Any, tmp_path: Path
) -> None:
    callback = TrainerCallback("demo_choice", 2, limit=1)
    for _ in range(2):
        trained(copy.deepcopy(llama), tokenizer, tmp_path, lambda trainer: callback)
    assert [step for step, _ in callback.history] == [2, 2]


def test_a_curve_does_not_mix_two_trainings(
    llama: Any, tokenizer: Any, tmp_path: Path, caplog: Any
) -> None:
    for steps in ((1, 2, 5, 6), (2, 3)):
        curve = TrainingCurve("demo_choice", 1, tmp_path, limit=1)
        for step in steps:
            curve.evaluate(step, llama, tokenizer)
    assert [run.step for run in read_sweep(tmp_path).runs] == [1, 2, 3]
    assert "step5, step6 of an earlier training run are removed from the curve" in caplog.text
    (tmp_path / "sweep.json").write_text("[")
    with pytest.raises(OutputError, match="cannot be read as the record of a sweep"):
        TrainingCurve("demo_choice", 1, tmp_path)


def in_parallel(model: Any) -> Any:
    return torch.nn.DataParallel(model)


def compiled(model: Any) -> Any:
    return torch.compile(model)


def compiled_in_parallel(model: Any) -> Any:
    return torch.compile(torch.nn.DataParallel(model))


@pytest.mark.parametrize("wrap", [in_parallel, compiled, compiled_in_parallel])
def test_a_wrapped_model_is_evaluated_as_the_model_inside(
    wrap: Any, llama: Any, tokenizer: Any
) -> None:
    expected = evaluate_live(llama, tokenizer, TASKS, limit=LIMIT)
    found = evaluate_live(wrap(copy.deepcopy(llama)), tokenizer, TASKS, limit=LIMIT)
    assert expected is not None
    assert found is not None
    assert found["results"] == expected["results"]


def test_what_is_no_language_model_is_refused(llama: Any, tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="a Linear cannot be evaluated: it is no transformers"):
        evaluate_live(torch.nn.Linear(2, 2), tokenizer, "demo_choice", limit=1)
    with pytest.raises(ConfigError, match="pretrained cannot be set"):
        LiveTasks("demo_choice", model_args={"pretrained": "x"})


def state_of(model: Any) -> Any:
    """Returns what an evaluation must leave as it was."""
    generators = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())
    flags = [(part.training, vars(part).get("gradient_checkpointing")) for part in model.modules()]
    config, generation = model.config.to_dict(), model.generation_config.to_dict()
    return copy.deepcopy(
        (generators[:2], generators[2].tolist(), flags, config, generation, torch.is_grad_enabled())
    )


def test_an_evaluation_that_fails_leaves_everything_as_it_was(llama: Any, tokenizer: Any) -> None:
    model = copy.deepcopy(llama).train()
    model.model.norm.eval()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    tasks = LiveTasks(TASKS, limit=LIMIT)
    before = state_of(model)
    expected = evaluate_live(model, tokenizer, tasks)
    assert expected is not None
    assert state_of(model) == before
    calls = []

    def fail(*args: Any) -> None:
        random.random(), np.random.rand(), torch.rand(1)
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("out of memory")

    hook = model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(ModelError, match="out of memory"):
        evaluate_live(model, tokenizer, tasks)
    assert state_of(model) == before
    hook.remove()
    again = evaluate_live(model, tokenizer, tasks)
    assert again is not None
    assert again["results"] == expected["results"]


def test_callbacks_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ConfigError, match="every must be a number of steps"):
        TrainerCallback("demo_choice", every=0)
    with pytest.raises(ConfigError, match="pass settings to LiveTasks"):
        TrainerCallback(LiveTasks("demo_choice"), every=1, limit=3)
    with pytest.raises(ConfigError, match="has no tokenizer"):
        TrainerCallback("demo_choice", every=1).on_train_begin(None, None, None, model=None)
    with pytest.raises(ConfigError, match="limit: pass settings to LiveTasks"):
        evaluate_live(None, None, LiveTasks("demo_choice"), limit=3)


def test_lightning_trains_and_evaluates(llama: Any, tokenizer: Any, monkeypatch: Any) -> None:
    """A module that stands in for Lightning calls the hooks as its trainer does."""
    fake = types.ModuleType("lightning.pytorch")
    fake.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", fake)
    from lm_eval.callback import lightning_callback

    logged: list[tuple[int, dict[str, float]]] = []
    logger = types.SimpleNamespace(log_metrics=lambda scores, step: logged.append((step, scores)))
    module = types.SimpleNamespace(model=llama, tokenizer=tokenizer)
    callback = lightning_callback("demo_choice", every=2, limit=1)
    assert isinstance(callback, fake.Callback)
    for batch in range(8):  # two batches per step
        trainer = types.SimpleNamespace(global_step=(batch + 1) // 2, loggers=[logger])
        callback.on_train_batch_end(trainer, module, None, None, batch)
    assert [step for step, _ in logged] == [2, 4]
    callback.on_fit_start(trainer, module)
    bare = types.SimpleNamespace(model=llama)
    with pytest.raises(ConfigError, match=r"no attribute 'tokenizer'\. Pass model="):
        callback.on_fit_start(trainer, bare)
    assert "eval/demo_choice/acc" in logged[0][1]


def test_a_live_model_stays_in_training_mode(llama: Any, tokenizer: Any) -> None:
    model = copy.deepcopy(llama).train()
    model.model.norm.eval()
    before = [part.training for part in model.modules()]
    evaluate_live(model, tokenizer, "demo_choice", limit=1)
    assert [part.training for part in model.modules()] == before
