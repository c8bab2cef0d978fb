"""Projects with evaluation loops, prompts or caches of their own."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

from .support import DOCS, choice, generation, lm_class, manager, scores, use


@use("a project with its own evaluation loop")
def own_evaluation_loop(folder: Path) -> Any:
    from lm_eval.tasks import get_task_dict

    lm, found = lm_class()(), {}
    tasks = get_task_dict(
        ["colours", "written"], manager(folder, choice(folder), generation(folder))
    )
    for name, task in tasks.items():
        task.set_fewshot_seed(seed=1234)
        task.build_all_requests(limit=4, rank=0, world_size=1)
        by_type = defaultdict(list)
        for instance in task.instances:
            by_type[instance.request_type].append(instance)
        for kind, requests in by_type.items():
            for request, response in zip(requests, getattr(lm, kind)(requests), strict=True):
                request.resps.append(response)
        task.apply_filters()
        by_doc = defaultdict(list)
        for instance in task.instances:
            by_doc[instance.doc_id].append(instance)
        values = defaultdict(list)
        for filter_key in task.instances[0].filtered_resps:
            for requests in by_doc.values():
                requests.sort(key=lambda request: request.idx)
                answers = [request.filtered_resps[filter_key] for request in requests]
                for metric, value in task.process_results(requests[0].doc, answers).items():
                    values[metric].append(value)
        found[name] = {
            metric: task.aggregation()[metric](items) for metric, items in values.items()
        }
    return found


@use("a script that writes prompts to a file")
def script_writes_prompts(folder: Path) -> Any:
    from lm_eval.utils import join_iters

    tasks = manager(folder, choice(folder, fewshot_split="train"))
    task = tasks.load(["colours"])["tasks"]["colours"]
    task.set_fewshot_seed(seed=42)
    iters = [
        getattr(task, f"{name}_docs")() for name in ("test",) if getattr(task, f"has_{name}_docs")()
    ]
    docs = itertools.islice(join_iters(iters), 2)
    return [task.fewshot_context(doc=doc, num_fewshot=2) for doc in docs]


@use("a tool that makes datasets from the documents of tasks")
def tool_reads_documents(folder: Path) -> Any:
    tasks = manager(folder, choice(folder))
    task = tasks.load_task_or_group(["colours"])["colours"]
    docs = task.test_docs() if task.has_test_docs() else task.validation_docs()
    return [
        [task.doc_to_text(doc), task.doc_to_choice(doc), task.doc_to_target(doc)]
        for doc in itertools.islice(docs, 2)
    ] + [len(docs), sorted(docs.features), task.config.task, task.OUTPUT_TYPE]


@use("a platform that evaluates chosen documents")
def platform_evaluates_chosen_documents(folder: Path) -> Any:
    import lm_eval

    results = lm_eval.simple_evaluate(
        lm_class()(),
        tasks=["colours"],
        samples={"colours": [1, 4]},
        task_manager=manager(folder, choice(folder)),
    )
    questions = [sample["doc"]["question"] for sample in results["samples"]["colours"]]
    return [scores(results), questions, results["n-samples"]]


@use("a project that shards documents over its own workers")
def project_shards_documents(folder: Path) -> Any:
    task = manager(folder, choice(folder)).load(["colours"])["tasks"]["colours"]
    shards = []
    for rank in range(2):
        docs = task.doc_iterator(rank=rank, limit=5, world_size=2)
        shards.append([[number, doc["question"]] for number, doc in docs])
    task.build_all_requests(limit=None, rank=1, world_size=2)
    return [shards, sorted({instance.doc["question"] for instance in task.instances})]


@use("a study of few-shot examples with samplers of the package")
def study_of_fewshot_examples(folder: Path) -> Any:
    from lm_eval.api.samplers import ContextSampler, get_sampler

    first, drawn = get_sampler("first_n")(DOCS), ContextSampler(DOCS, rnd=1234)
    return [
        [doc["question"] for doc in first.sample(2)],
        [doc["question"] for doc in drawn.sample(2)],
        [doc["question"] for doc in drawn.sample(3, eval_doc=DOCS[0])],
    ]


@use("a study that asks for an unknown sampler")
def unknown_sampler(folder: Path) -> Any:
    from lm_eval.api.samplers import get_sampler

    return get_sampler("bad")


@use("a study that asks for more examples than there are")
def too_many_first_examples(folder: Path) -> Any:
    from lm_eval.api.samplers import get_sampler

    return get_sampler("first_n")(DOCS[:1]).sample(3)


@use("a study that computes a negative number of examples")
def negative_number_of_examples(folder: Path) -> Any:
    from lm_eval.api.samplers import ContextSampler

    return ContextSampler(DOCS).sample(-1)


@use("a corpus project that cleans training text of test documents")
def corpus_project_cleans_text(folder: Path) -> Any:
    from lm_eval.decontamination.janitor import Janitor, word_ngrams, word_ngrams_indices

    janitor = Janitor(ngram_n=3, window_to_remove=2, minimum_slice_length=4)
    janitor.register_contaminant("The color of grass, is GREEN.")
    text = "Somebody wrote: the color of grass was never red. Nothing else to say about it."
    return [
        sorted(janitor.dirt_ngrams),
        janitor.clean(text),
        list(word_ngrams("a b  c d", 3)),
        [list(one) for one in word_ngrams_indices("a bb c", 2)],
    ]


@use("a loop that keeps its requests between runs")
def loop_keeps_its_requests(folder: Path) -> Any:
    from lm_eval.caching import cache

    path, cache.PATH = cache.PATH, str(folder / "requests")
    try:
        before = cache.load_from_cache(file_name="requests-colours", cache=True)
        cache.save_to_cache(file_name="requests-colours", obj=[("a", 1)])
        kept = cache.load_from_cache(file_name="requests-colours", cache=True)
        unused = cache.load_from_cache(file_name="requests-colours")
        cache.delete_cache(key="requests")
        after = cache.load_from_cache(file_name="requests-colours", cache=True)
    finally:
        cache.PATH = path
    return [before, kept, unused, after]


@use("a loop that takes a share of the documents and shows the first prompt")
def loop_takes_a_share(folder: Path) -> Any:
    from lm_eval.evaluator_utils import get_sample_size, print_writeout

    task = manager(folder, choice(folder)).load(["colours"])["tasks"]["colours"]
    sizes = [get_sample_size(task, limit) for limit in (None, 3, 0.5, 0.3, 2.9)]
    task.build_all_requests(limit=sizes[3])
    return [sizes, print_writeout(task), len(task.instances)]
