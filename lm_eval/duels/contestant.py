"""One of the two models of a duel: its tasks, its run folder, and the scores of its answers."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lm_eval.api.group import Group
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.data import mirror_at
from lm_eval.engine.answer import answer
from lm_eval.engine.choose_executor import executor_for
from lm_eval.engine.keys import set_digests
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.evaluator import evaluate_tasks
from lm_eval.models.create import (
    check_before_loading,
    check_model,
    close_model,
    create_model,
    never_measured,
)
from lm_eval.models.identity import model_identity
from lm_eval.models.seeding import seed_generators
from lm_eval.preparation import (
    build_requests,
    check_fit,
    check_run,
    check_types,
    count_tokens,
    document_limit,
    load_tasks,
    make_context,
)
from lm_eval.results.files import check_writable
from lm_eval.results.provenance import model_name
from lm_eval.runs.folder import RunFolder
from lm_eval.runs.hashes import task_hashes
from lm_eval.runs.run import Run
from lm_eval.scoring import TaskScores, score
from lm_eval.tasks.manager import TaskManager

Documents = Mapping[str, Sequence[int]]
"""The numbers of documents, by task name."""


class Contestant:
    """A model of a duel.

    Its prompts are those of a run on all documents, because few-shot examples are drawn for one
    document after the other. So is its record in the run folder: `lm-eval run` with the same
    settings, and `lm-eval resume`, ask only for the answers that the duel did not need.

    Args:
        run: the settings of the run on all documents.
        label: the name of the model in reports.
    """

    def __init__(self, run: RunConfig, label: str) -> None:
        self.run, self.label = run, label
        self.tasks: Mapping[str, Task] = {}
        self.hashes: Mapping[str, Mapping[str, str]] = {}
        self._groups: Mapping[str, Group] = {}
        self._requests: dict[str, dict[int, list[Instance]]] = {}
        self._lm: LM | None = None
        self._run = Run(run)
        self._started = time.time()

    def load_tasks(self) -> None:
        """Loads the tasks and checks the settings; raises what `lm-eval run` raises for them."""
        check_model(self.run)
        manager = TaskManager(include_path=self.run.include_path, metadata=self.run.task_metadata)
        with mirror_at(self.run.data_dir):
            check_types(self.run, manager, never_measured(self.run))
            loaded = load_tasks(self.run, manager)
            self.tasks, self._groups = loaded["tasks"], loaded["groups"]
            check_run(self.run, self.tasks)
        check_before_loading(self.run)

    def populations(self) -> dict[str, int]:
        """Returns the number of documents of each task, of which `limit` allows the first."""
        counts = {}
        for name, task in self.tasks.items():
            allowed = document_limit(task, self.run.limit)
            count = len(task.eval_docs)
            counts[name] = count if allowed is None else min(count, allowed)
        return counts

    @contextmanager
    def in_folder(self) -> Iterator[None]:
        """Holds the lock of the run folder inside the `with` block, if there is an output path.

        Raises `OutputError` as `runs.run.open_run` does.
        """
        if self.run.output_path is None:
            yield
            return
        check_writable(self.run.output_path)
        folder = RunFolder.of(self.run.output_path, model_name(self.run))
        with folder.locked():
            folder.records()  # raises now if run.json is damaged, before the model is loaded
            self._run = Run(self.run, folder)
            yield

    def load(self) -> None:
        """Loads the model and, for the first time, builds the requests of all documents."""
        if self._lm is not None:
            return
        seed_generators(self.run.seed)
        self._lm = create_model(self.run)
        seed_generators(self.run.seed)
        if not self._requests:
            self._build(self._lm)

    def unload(self) -> None:
        """Drops the model, so that its memory is free for the other one."""
        if self._lm is not None:
            close_model(self._lm)
        self._lm = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _build(self, lm: LM) -> None:
        """Builds the requests of all documents and records the run."""
        check_fit(self.run, lm, self.tasks)
        context, executor = (
            make_context(self.run, lm, self.run.seed.torch),
            executor_for(self.run, lm),
        )
        hashes = {}
        with executor.running(context):
            for name, task in self.tasks.items():
                build_requests(self.run, lm, name, task, None)
                set_digests(task.instances)
                count_tokens(lm, task)
                hashes[name] = task_hashes(task, task.describe_data())
                by_document = self._requests.setdefault(name, {})
                for request in task.instances:
                    by_document.setdefault(request.doc_id or 0, []).append(request)
        self.hashes = hashes
        if self._run.folder is not None:
            self._run.begin(model_identity(self.run, lm), context, self.tasks, hashes)

    @numpy_on_one_thread()
    def ask(self, documents: Documents) -> dict[str, TaskScores]:
        """Returns the scores of documents, after obtaining the answers that are not stored.

        Each document may be asked once. Raises `ModelError` if a request fails: a document that is
        left out would bias the comparison.
        """
        self.load()
        lm = self._lm
        assert lm is not None
        chosen = {
            name: [request for number in numbers for request in self._requests[name][number]]
            for name, numbers in documents.items()
            if numbers
        }
        context, executor = (
            make_context(self.run, lm, self.run.seed.torch),
            executor_for(self.run, lm),
        )
        stored = self._run.store is not None
        identity = model_identity(self.run, lm) if stored else ""
        with executor.running(context), self._run.open_store(identity) as store:
            requests = [request for of_task in chosen.values() for request in of_task]
            answer(executor, requests, store, self.run.seed.model_seeds, max_failed=0)
        return {
            name: score(self.tasks[name].with_requests(of_task), None, context.think_end_token)
            for name, of_task in chosen.items()
        }

    def save_results(self) -> None:
        """Writes the results of the whole run; all documents must have been asked.

        Does nothing without an output path.
        """
        if self._run.folder is None:
            return
        self.load()
        lm = self._lm
        assert lm is not None
        for task in self.tasks.values():
            task.set_fewshot_seed(self.run.seed.fewshot)  # the same examples again
        results = evaluate_tasks(
            self.run,
            lm,
            self.tasks,
            self._groups,
            self._run,
            None,
            self.run.seed.torch,
            self._started,
        )
        if results is not None:
            self._run.save(results)
