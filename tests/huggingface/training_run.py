"""Trains a model for a few steps with and without evaluations; also a program for several ranks.

`torchrun … -m tests.huggingface.training_run MODEL OUT` writes `OUT/rank<N>.json`.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.fsdp
import transformers

import lm_eval.evaluator
from lm_eval.callback import TrainerCallback
from lm_eval.errors import EvalError
from lm_eval.live import evaluate_live

TASKS = ["demo_choice", "demo_stories", "demo_sums"]
LIMIT = 3
STEPS = 4
EVERY = 2


class Texts(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Random tokens to train on."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, number: int) -> dict[str, Any]:
        tokens = torch.randint(3, 500, (24,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": tokens, "labels": tokens}


def train(folder: str, out: Path, evaluated: bool) -> tuple[dict[str, Any], Any]:
    """Trains the model in a folder; returns what must not depend on evaluations, and the callback.

    The model has dropout, so that every step draws random numbers. The callback is None if the
    model was not evaluated.
    """
    transformers.set_seed(3)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attention_dropout=0.2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            str(out),
            max_steps=STEPS,
            per_device_train_batch_size=2,
            learning_rate=1e-3,
            logging_steps=1,
            save_steps=EVERY,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Texts(),
        data_collator=transformers.default_data_collator,
        processing_class=tokenizer,
    )
    callback = None
    if evaluated:
        callback = TrainerCallback(
            TASKS, EVERY, trainer=trainer, at_start=True, limit=LIMIT, output_path=out / "curve"
        )
        trainer.add_callback(callback)
    trainer.train()
    kept = {
        "losses": [
            (one["step"], one["loss"]) for one in trainer.state.log_history if "loss" in one
        ],
        "logged": [
            one["step"] for one in trainer.state.log_history if "eval_demo_choice/acc" in one
        ],
        "random": [random.random(), float(np.random.rand()), float(torch.rand(()))],
        "weights": [float(weight.detach().double().sum()) for weight in model.parameters()],
        "training": [part.training for part in model.modules()],
        "padding": tokenizer.pad_token,
    }
    return kept, callback


def sharded(folder: str) -> Any:
    """Returns the scores of a model whose weights are divided over the ranks, and trains on."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    mesh = torch.distributed.device_mesh.init_device_mesh(
        "cpu", (torch.distributed.get_world_size(),)
    )
    for part in (*model.model.layers, model):
        torch.distributed.fsdp.fully_shard(part, mesh=mesh)
    results = evaluate_live(model, tokenizer, TASKS, limit=LIMIT)
    batch = Texts()[0]["input_ids"][None]
    model(input_ids=batch, labels=batch).loss.backward()
    return None if results is None else results["results"]


def failing(folder: str, rank: int) -> list[str]:
    """Returns the errors that this process gets if one process fails in an evaluation.

    First each process fails once while it answers, then the first one when it scores. After each
    error, the processes talk to each other, as in the next training step.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = []

    def fail(*args: Any) -> None:
        raise RuntimeError("out of memory")

    for place in (0, 1, "scoring"):
        hook = model.register_forward_pre_hook(fail) if place == rank else None
        score = lm_eval.evaluator.score
        if place == "scoring" and rank == 0:
            lm_eval.evaluator.score = fail  # type: ignore[assignment]
        try:
            evaluate_live(model, tokenizer, TASKS, limit=LIMIT)
            found.append("")
        except EvalError as error:
            found.append(str(error))
        finally:
            lm_eval.evaluator.score = score
            if hook is not None:
                hook.remove()
        torch.distributed.all_reduce(torch.ones(()))
    return found


def main() -> None:
    """Trains without and with evaluations, and writes what this process knows of them."""
    folder, out = sys.argv[1], Path(sys.argv[2])
    plain, _ = train(folder, out / "plain", evaluated=False)
    kept, callback = train(folder, out / "evaluated", evaluated=True)
    history = [(step, results["results"]) for step, results in callback.history]
    rank = torch.distributed.get_rank()
    found = {"plain": plain, "evaluated": kept, "history": history, "sharded": sharded(folder)}
    found["failures"] = failing(folder, rank)
    (out / f"rank{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
