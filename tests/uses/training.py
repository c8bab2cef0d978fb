"""Frameworks that evaluate a model while they train it, or after."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .support import (
    HF,
    checkpoint,
    choice,
    generation,
    llama,
    lm_class,
    manager,
    scores,
    tokenizer,
    use,
    write,
)


@use("a trainer that evaluates its live model between steps", needs=HF)
def trainer_evaluates_its_live_model(folder: Path) -> Any:
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    model, found = llama(), []
    for step in range(2):
        lm = HFLM(pretrained=model, tokenizer=tokenizer(), batch_size=2, device="cpu")
        results = lm_eval.simple_evaluate(
            model=lm,
            tasks=["colours"],
            task_manager=manager(folder, choice(folder)),
            log_samples=False,
            bootstrap_iters=0,
        )
        found.append(results["results"]["colours"]["acc,none"])
        model.load_state_dict(llama(seed=step + 1).state_dict())
    return found


@use("a trainer that writes scores to its own log", needs=())
def trainer_logs_every_number(folder: Path) -> Any:
    import lm_eval

    results = lm_eval.simple_evaluate(
        model=lm_class()(), tasks=["colours"], task_manager=manager(folder, choice(folder))
    )
    logged = {}
    for task, row in results["results"].items():
        for key, value in row.items():
            if isinstance(value, float):
                logged[f"eval/{task}/{key.replace(',none', '')}"] = value
    return logged


@dataclass
class HarnessArguments:
    """The settings of an evaluation in a training framework's own configuration."""

    tasks: list[Any] = field(default_factory=list)
    num_fewshot: int | None = None
    limit: int | None = None
    bootstrap_iters: int = 100000
    log_samples: bool = False
    verbosity: str = "ERROR"
    predict_only: bool = False
    random_seed: int = 0


@use(
    "a pre-training library that passes a dataclass of settings, with tasks as dictionaries",
    difference="published: a dictionary does not change a task with that name; here it does",
)
def pretraining_library_passes_its_settings(folder: Path) -> Any:
    from lm_eval import simple_evaluate

    tasks = manager(folder, choice(folder, fewshot_split="train"))
    settings = HarnessArguments(tasks=[{"task": "colours", "num_fewshot": 2}], limit=4)
    results = simple_evaluate(lm_class()(), task_manager=tasks, **asdict(settings))
    return [scores(results), results["n-shot"], results["n-samples"]]


@use(
    "a pre-training library whose wrapper has rank, world size and device of its own",
    difference="published: `device` cannot be set; here it can",
)
def wrapper_with_its_own_rank(folder: Path) -> Any:
    from lm_eval import simple_evaluate

    class Wrapper(lm_class()):
        def __init__(self, generator: Any) -> None:
            super().__init__()
            self.generator, self._rank, self._world_size = generator, 0, 1
            self.device = "cpu"

    tasks = manager(folder, generation(folder))
    return scores(simple_evaluate(Wrapper("generator"), tasks=["written"], task_manager=tasks))


@use("a fine-tuning library that evaluates a converted checkpoint by its path", needs=HF)
def finetuning_library_evaluates_a_checkpoint(folder: Path) -> Any:
    from lm_eval import evaluator
    from lm_eval.models.huggingface import HFLM
    from lm_eval.utils import make_table

    model = HFLM(
        pretrained=checkpoint(folder), device="cpu", batch_size=1, dtype="float32", backend="causal"
    )
    results = evaluator.simple_evaluate(
        model=model,
        tasks=["colours"],
        num_fewshot=None,
        batch_size=1,
        device="cpu",
        limit=4,
        random_seed=1,
        numpy_random_seed=1,
        torch_random_seed=1,
        task_manager=manager(folder, choice(folder)),
    )
    table = make_table(results)
    saved = json.loads(json.dumps({"results": results["results"], "config": "kept"}, default=str))
    return [scores(saved), "colours" in table, "acc_norm" in table]


@use("a fine-tuning library whose recipe runs evaluate() on a task dictionary", needs=HF)
def recipe_runs_evaluate_on_a_task_dictionary(folder: Path) -> Any:
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import get_task_dict

    task_dict = get_task_dict(
        ["colours", "written"], manager(folder, choice(folder), generation(folder))
    )
    lm = HFLM(pretrained=llama(), tokenizer=tokenizer(), max_length=256, batch_size=2, device="cpu")
    output = evaluate(lm, task_dict, limit=3, bootstrap_iters=0)
    return [sorted(task_dict), scores(output)]


@use("a merging tool that patches how tasks download their data")
def merging_tool_patches_download(folder: Path) -> Any:
    import lm_eval
    import lm_eval.api.task

    seen: list[str] = []
    original = lm_eval.api.task.ConfigurableTask.download

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(self.config.task)
        return original(self, *args, **kwargs)

    lm_eval.api.task.ConfigurableTask.download = patched
    try:
        results = lm_eval.simple_evaluate(
            model=lm_class()(), tasks=["colours"], task_manager=manager(folder, choice(folder))
        )
    finally:
        lm_eval.api.task.ConfigurableTask.download = original
    return [seen, scores(results)]


@use("a merging tool that asks for one number of each merged model")
def merging_tool_reads_one_metric(folder: Path) -> Any:
    import lm_eval

    tasks = manager(folder, choice(folder))
    found = []
    for limit in (2, 6):
        results = lm_eval.simple_evaluate(
            model=lm_class()(),
            tasks=["colours"],
            log_samples=False,
            verbosity="WARNING",
            task_manager=tasks,
            limit=limit,
        )
        found.append(results["results"]["colours"]["acc_norm,none"])
    return found


@use("a trainer that starts the command line in a subprocess and reads the files")
def trainer_starts_the_command_line(folder: Path) -> Any:
    tasks = write(folder, choice(folder))
    out = folder / "out"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "--model", "dummy", "--tasks", "colours"),
            *("--include_path", str(tasks), "--output_path", str(out), "--log_samples"),
            *("--limit", "3", "--batch_size", "8"),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    results = sorted(out.rglob("results_*.json"))
    samples = sorted(out.rglob("samples_*.jsonl"))
    content = json.loads(results[-1].read_text())
    lines = samples[-1].read_text().splitlines()
    return [
        done.returncode,
        "acc" in done.stdout,
        len(results),
        len(lines),
        sorted(key for key in content["results"]["colours"] if "," in key),
        json.loads(lines[0])["doc_id"],
    ]


@use("a training framework that renames tasks and changes their few-shot examples")
def framework_changes_tasks_before_it_evaluates(folder: Path) -> Any:
    import lm_eval
    from lm_eval.tasks import get_task_dict

    tasks = get_task_dict(["colours"], manager(folder, choice(folder, fewshot_split="train")))
    task = copy.copy(tasks["colours"])
    task.set_config("num_fewshot", 1)
    task.config.task = "colours_1shot"
    task.set_fewshot_seed(seed=1234)
    results = lm_eval.evaluate(lm_class()(), {"colours_1shot": task}, bootstrap_iters=0)
    return [scores(results), results["n-shot"], results["samples"]["colours_1shot"][0]["arguments"]]


@use("a pre-training library that passes a dataclass of settings")
def pretraining_library_passes_names(folder: Path) -> Any:
    from lm_eval import simple_evaluate

    tasks = manager(folder, choice(folder, fewshot_split="train"))
    settings = HarnessArguments(tasks=["colours"], num_fewshot=2, limit=4)
    results = simple_evaluate(lm_class()(), task_manager=tasks, **asdict(settings))
    return [scores(results), results["n-shot"], results["n-samples"]]
