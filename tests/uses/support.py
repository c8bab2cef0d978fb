"""What the uses have in common: their table, a small dataset, and small models."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Function = Callable[[Path], Any]

DOCS = [
    {"question": "grass", "choices": ["green", "red"], "label": 0, "answer": "green"},
    {"question": "blood", "choices": ["green", "red"], "label": 1, "answer": "red"},
    {"question": "snow", "choices": ["white", "black"], "label": 0, "answer": "white"},
    {"question": "coal", "choices": ["white", "black"], "label": 1, "answer": "black"},
    {"question": "sky", "choices": ["blue", "brown"], "label": 0, "answer": "blue"},
    {"question": "soil", "choices": ["blue", "brown"], "label": 1, "answer": "brown"},
]

#: What uses of `HFLM` need.
HF = ("torch", "transformers")
#: Weights and tokenizer of the embedded model of our package, which every checkout has.
WEIGHTS = Path(__file__).parents[2] / "lm_eval" / "models" / "demo" / "weights"


@dataclass(frozen=True)
class Use:
    """One use: what it stands for, what it needs, and whether we differ on purpose."""

    function: Function
    kind: str
    needs: tuple[str, ...]
    difference: str
    differs_in: tuple[str, ...]


USES: dict[str, Use] = {}


def use(
    kind: str,
    *,
    needs: tuple[str, ...] = (),
    difference: str = "",
    differs_in: tuple[str, ...] = (),
) -> Any:
    """Decorator that adds a function to the table.

    Args:
        kind: the kind of project that the function stands for.
        needs: modules without which it cannot run.
        difference: why our outcome differs from the published one; docs/differences.md has a row.
        differs_in: the parts of an outcome in which ours differs; by default the whole outcome.
    """

    def decorate(function: Function) -> Function:
        assert function.__name__ not in USES, function.__name__
        USES[function.__name__] = Use(function, kind, needs, difference, differs_in)
        return function

    return decorate


def load_uses() -> dict[str, Use]:
    """Returns all uses by name, after importing the modules that define them."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in ("record", "support"):
            importlib.import_module(f"{__package__}.{module.name}")
    return USES


def missing(one: Use) -> list[str]:
    """Returns the modules that a use needs and that are not installed."""
    return [name for name in one.needs if importlib.util.find_spec(name) is None]


def outcome(one: Use, folder: Path) -> Any:
    """Returns what a use returned, as JSON data with rounded numbers, or what it raised.

    An exception is `{"raises": [names of its classes]}`.
    """
    try:
        return rounded(json.loads(json.dumps(one.function(folder))))
    except (Exception, SystemExit) as error:
        return raised(error)


def raised(error: BaseException) -> Any:
    """Returns an exception as part of an outcome."""
    common = ("object", "BaseException", "Exception")
    return {"raises": [c.__name__ for c in type(error).__mro__ if c.__name__ not in common]}


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


# -- tasks -----------------------------------------------------------------------------------------


def data(folder: Path) -> dict[str, Any]:
    """Returns the keys of a task that reads the documents; writes them to the folder."""
    file = folder / "documents.jsonl"
    file.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS), encoding="utf-8")
    splits = {"train": str(file), "test": str(file)}
    return {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": splits},
        "test_split": "test",
        "metadata": {"version": 1.0},
    }


def choice(folder: Path, name: str = "colours", **changes: Any) -> dict[str, Any]:
    """Returns the configuration of a multiple-choice task."""
    return {
        "task": name,
        **data(folder),
        "output_type": "multiple_choice",
        "doc_to_text": "The color of {{question}} is",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        **changes,
    }


def generation(folder: Path, name: str = "written", **changes: Any) -> dict[str, Any]:
    """Returns the configuration of a task with generated answers."""
    return {
        "task": name,
        **data(folder),
        "output_type": "generate_until",
        "doc_to_text": "The color of {{question}} is",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8, "do_sample": False},
        **changes,
    }


def write(folder: Path, *configs: dict[str, Any]) -> Path:
    """Writes one task or group file per configuration; returns the folder of the files."""
    tasks = folder / "tasks"
    tasks.mkdir(exist_ok=True)
    for config in configs:
        name = config.get("task") if isinstance(config.get("task"), str) else config["group"]
        (tasks / f"{name}.yaml").write_text(json.dumps(config), encoding="utf-8")
    return tasks


def manager(folder: Path, *configs: dict[str, Any]) -> Any:
    """Returns a task manager that finds these tasks and no others."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=str(write(folder, *configs)), include_defaults=False)


# -- models ----------------------------------------------------------------------------------------


def likelihood(context: str, continuation: str) -> float:
    """Returns a made-up log-likelihood that depends on every character."""
    return -(sum(map(ord, context + continuation)) * 31 % 97) / 10 - 0.1


def words(context: str) -> str:
    """Returns a made-up answer: a color that depends on the context."""
    return ("green", "red", "white", "blue")[sum(map(ord, context)) % 4]


@functools.lru_cache
def lm_class() -> Any:
    """Returns a model class, as a project defines it: three methods."""
    from lm_eval.api.model import LM

    class Made(LM):
        def loglikelihood(self, requests):
            return [(likelihood(*request.args[:2]), False) for request in requests]

        def loglikelihood_rolling(self, requests):
            return [likelihood("", request.args[0]) for request in requests]

        def generate_until(self, requests):
            return [words(request.args[0]) for request in requests]

    return Made


def scores(results: Any) -> Any:
    """Returns the scores and errors of each task: what `metric,filter` keys contain."""
    return {
        name: {key: value for key, value in sorted(row.items()) if "," in key}
        for name, row in results["results"].items()
    }


@functools.lru_cache
def tokenizer() -> Any:
    import transformers

    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(WEIGHTS / "tokenizer.json"),
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
    )


def shipped_tokenizer() -> Any:
    """Returns the tokenizer as it is saved beside the weights; a new object each time."""
    import transformers

    return transformers.AutoTokenizer.from_pretrained(WEIGHTS)


def answers_of(lm: Any) -> dict[str, Any]:
    """Returns by request type what a model answers to a few requests, or what it raises."""
    from lm_eval.api.instance import Instance

    pairs = [
        ("Tom has", " three"),
        ("Tom has", " four apples"),
        ("A red hat and", " a blue one"),
        ("", "Once upon a time"),
    ]
    settings = {"max_gen_toks": 6, "until": ["zz"], "do_sample": False}
    arguments: dict[str, list[Any]] = {
        "loglikelihood": pairs,
        "loglikelihood_rolling": [("Tom has three apples.",), ("A red hat and a blue one.",)],
        "generate_until": [(text, dict(settings)) for text in ("Tom has", "A red hat and")],
    }
    found: dict[str, Any] = {}
    for kind, some in arguments.items():
        requests = [Instance(kind, {}, a, n, ("a_task", n, 1)) for n, a in enumerate(some)]
        try:
            answers = getattr(lm, kind)(requests)
            found[kind] = [list(a) if isinstance(a, tuple) else a for a in answers]
        except Exception as error:
            found[kind] = raised(error)
    return found


def llama(seed: int = 0) -> Any:
    """Returns a tiny model whose weights do not depend on the versions of the libraries."""
    import numpy as np
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=1024,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                drawn = rng.normal(0, 0.3, tuple(weight.shape)).astype(np.float32)
                weight.copy_(torch.from_numpy(drawn))
    return model


def checkpoint(folder: Path) -> str:
    """Returns a folder with the tiny model and its tokenizer, as a trainer saves them."""
    path = folder / "checkpoint"
    llama().save_pretrained(path)
    tokenizer().save_pretrained(path)
    return str(path)
