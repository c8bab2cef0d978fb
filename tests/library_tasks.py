"""The tasks of the library, and the documents with which the tests build them."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.config.yaml_file import load_yaml
from lm_eval.data import mirror_at
from lm_eval.tasks import TaskManager
from lm_eval.tasks.index import Kind
from tests.library_rows import maker, write_jsonl, write_mirror

LIBRARY = Path(__file__).parents[1] / "lm_eval" / "tasks"
MIRROR = Path(__file__).parents[2] / "shared" / "data"
_SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
#: Tasks written as classes say in code what they read.
CLASSES = {
    "squadv2": ("lighteval/squad_v2", "default"),
    "scrolls_contractnli": ("tau/scrolls", "contract_nli"),
    "scrolls_govreport": ("tau/scrolls", "gov_report"),
    "scrolls_narrativeqa": ("tau/scrolls", "narrative_qa"),
    "scrolls_qasper": ("tau/scrolls", "qasper"),
    "scrolls_qmsum": ("tau/scrolls", "qmsum"),
    "scrolls_quality": ("tau/scrolls", "quality"),
    "scrolls_summscreenfd": ("tau/scrolls", "summ_screen_fd"),
}


@dataclass(frozen=True)
class Source:
    """A dataset, its configuration and splits, as set in a task file."""

    path: str
    config: str
    splits: tuple[str, ...]

    @property
    def is_in_mirror(self) -> bool:
        home = MIRROR / self.path / self.config
        return all((home / f"{split}.parquet").exists() for split in self.splits)

    @property
    def is_generated(self) -> bool:
        return maker(self.path, self.config) is not None


@functools.cache
def manager() -> TaskManager:
    return TaskManager()


@functools.cache
def task_files() -> dict[str, Path]:
    """Returns the file of every task in the library, by name."""
    kinds = (Kind.TASK, Kind.PY_TASK)
    index = manager().task_index
    return {name: Path(e.path) for name, e in sorted(index.items()) if e.kind in kinds and e.path}


def source_of(name: str) -> Source | None:
    """Returns the dataset of a task; None if its documents are files in its folder."""
    if name in CLASSES:
        return Source(*CLASSES[name], splits=("train", "validation"))
    values = load_yaml(task_files()[name], resolve_func=False)
    splits = sorted({values[key] for key in _SPLITS if values.get(key)})
    path = values["dataset_path"]
    if path == "json":
        return None
    return Source(path, str(values.get("dataset_name") or "default"), tuple(splits))


@functools.cache
def generated_mirror() -> Path:
    """Returns the folder of a mirror with generated rows for all datasets without a copy."""
    folder = Path(tempfile.mkdtemp(prefix="generated-rows-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sources = [source for name in task_files() if (source := source_of(name)) is not None]
    write_mirror(
        folder,
        [(s.path, s.config, split) for s in sources if s.is_generated for split in s.splits],
    )
    write_jsonl(folder / "arithmetic.jsonl", "EleutherAI/arithmetic")
    write_jsonl(folder / "c4.jsonl", "allenai/c4")
    return folder


def data_for(name: str) -> AbstractContextManager[Any]:
    """Returns a context that selects a task's data: generated rows, or else the mirror."""
    source = source_of(name)
    generated = source is None or source.is_generated
    return mirror_at(generated_mirror() if generated else MIRROR)


def overrides_for(name: str) -> dict[str, Any]:
    """Returns settings that replace the data files that a task names by generated ones."""
    if name.startswith("arithmetic_"):
        file = str(generated_mirror() / "arithmetic.jsonl")
        return {"dataset_kwargs": {"data_files": {"validation": file}}}
    if name == "c4":
        file = str(generated_mirror() / "c4.jsonl")
        files = {"train": file, "validation": file}
        return {
            "dataset_path": "json",
            "dataset_name": None,
            "dataset_kwargs": {"data_files": files},
        }
    return {}


def build(name: str) -> Any:
    with data_for(name):
        (task,) = manager().load([{"task": name, **overrides_for(name)}])["tasks"].values()
        return task
