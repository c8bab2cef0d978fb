"""Tests that benchmarks outside our library run from a pack of the published task files.

Their requests and scores must equal those of the published harness on the same rows
(`tests/pack_rows.py`). Needs the task folder of its wheel (`LMEVAL_PUBLISHED_TASKS`), which
`make test` downloads, and for the scores `../shared`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.data import mirror_at
from lm_eval.models.dummy import DummyLM
from lm_eval.tasks import TaskManager, packs
from lm_eval.tasks.index import build_index
from lm_eval.tasks.manager import LIBRARY
from tests.pack_rows import FAMILIES, write_rows
from tests.test_parity import assert_equal
from tools.parity_record import KEPT

PUBLISHED = os.environ.get("LMEVAL_PUBLISHED_TASKS", "")
SHARED = Path(__file__).parents[2] / "shared" / "parity"
RECORD = json.loads(
    (Path(__file__).parent / "parity" / "pack_published.json").read_text(encoding="utf-8")
)

pytestmark = pytest.mark.skipif(
    not PUBLISHED or not Path(PUBLISHED).is_dir(), reason="needs LMEVAL_PUBLISHED_TASKS"
)


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskManager]:
    """Yields a task manager with the published files as a pack, and generated rows as data."""
    home = tmp_path_factory.mktemp("families")
    write_rows(home / "rows")
    with pytest.MonkeyPatch.context() as patch, mirror_at(home / "rows"):
        patch.setenv("LMEVAL_PACKS_DIR", str(home / "packs"))
        patch.setenv("LMEVAL_CACHE_DIR", str(home / "cache"))
        packs.add(PUBLISHED, "published")
        yield TaskManager()


def _answering() -> type[LM]:
    """Returns the model that was used for the record; without `../shared`, the dummy model."""
    if not SHARED.is_dir():
        return DummyLM
    spec = importlib.util.spec_from_file_location("hash_lm", SHARED / "hash_lm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[LM] = module.HashLM
    return found


def _digest(kind: str, arguments: Iterable[Any]) -> str:
    """Returns the digest of a request as in the record."""
    plain = [
        part if isinstance(part, (str, int, float)) else json.dumps(part, sort_keys=True)
        for part in arguments
    ]
    return hashlib.sha256(json.dumps([kind, plain], ensure_ascii=False).encode()).hexdigest()[:16]


class Asked:
    """Wraps a model and records its requests by task."""

    def __init__(self) -> None:
        self.requests: dict[str, list[tuple[int, int, str]]] = {}
        model = _answering()()
        for kind in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
            setattr(model, kind, functools.partial(self._ask, kind, getattr(model, kind)))
        self.model = model

    def _ask(self, kind: str, answer: Any, requests: Sequence[Any], **options: Any) -> Any:
        for request in requests:
            noted = (request.doc_id, request.idx, _digest(kind, request.args))
            self.requests.setdefault(request.task_name, []).append(noted)
        return answer(requests, **options)

    def by_task(self) -> dict[str, dict[str, Any]]:
        """Returns, for each task, the number of requests and a hash of them."""
        return {
            task: {
                "n": len(asked),
                "hash": hashlib.sha256(
                    "\n".join(
                        f"{doc}:{number}:{digest}" for doc, number, digest in sorted(asked)
                    ).encode()
                ).hexdigest()[:16],
            }
            for task, asked in self.requests.items()
        }


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_asks_and_scores_as_published(name: str, manager: TaskManager) -> None:
    family, asked = FAMILIES[name], Asked()
    found = simple_evaluate(
        model=asked.model, task_manager=manager, bootstrap_iters=0, log_samples=False, **family.case
    )
    assert found is not None
    requests = asked.by_task()
    for task in requests:
        scores = [v for k, v in found["results"][task].items() if "," in k and "_stderr" not in k]
        assert scores
    if name not in RECORD:
        return
    theirs = RECORD[name]
    assert requests == theirs["requests"]
    if SHARED.is_dir():
        ours = {"requests": requests, **{key: found[key] for key in KEPT}}
        assert_equal({name: ours}, {name: theirs}, [name])


def test_the_families_are_none_of_the_librarys() -> None:
    ours = build_index([LIBRARY])
    for name, family in FAMILIES.items():
        assert not (LIBRARY / name).exists()
        assert not ours.keys() & set(family.names)
