"""Projects with evaluation loops, prompts or caches of their own."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

from .support import DOCS, choice, data, generation, lm_class, manager, scores, use


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


def extracting(folder: Path) -> dict[str, Any]:
    """Returns the configuration of a task with two filters, as GSM8K has them."""
    pattern = {"function": "regex", "regex_pattern": "(green|red|white|blue)"}
    first = {"function": "take_first"}
    return generation(
        folder,
        filter_list=[
            {"name": "strict-match", "filter": [{"function": "remove_whitespace"}, first]},
            {"name": "flexible-extract", "filter": [pattern, first]},
        ],
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )


@use("a training project that grades stored completions with the filters of a task")
def project_grades_stored_completions(folder: Path) -> Any:
    import lm_eval.tasks
    from lm_eval.api.instance import Instance

    task = lm_eval.tasks.get_task_dict(["written"], manager(folder, extracting(folder)))["written"]
    names, grades = [one.name for one in task._filters], []
    for number, text in enumerate([" green", "It is green.", "red", ""]):
        doc = {"question": "grass", "answer": "green"}
        instance = Instance(
            request_type="generate_until",
            doc=doc,
            arguments=("", {}),
            idx=number,
            task_name="written",
        )
        instance.resps = [text]
        task._instances = [instance]
        task.apply_filters()
        found = [instance.filtered_resps[name] for name in names]
        grades.append([found, [task.process_results(doc, [one])["exact_match"] for one in found]])
    return [names, grades]


@use("a hardware maker that scores the answers of an interrupted run")
def maker_scores_an_interrupted_run(folder: Path) -> Any:
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalChatCompletion
    from lm_eval.tasks import get_task_dict

    backend = LocalChatCompletion(
        model="x",
        base_url="http://127.0.0.1:1/unused",
        tokenizer_backend=None,
        tokenized_requests=False,
    )
    tasks = manager(folder, {**extracting(folder), "fewshot_split": "train", "num_fewshot": 2})
    task = get_task_dict(["written"], tasks)["written"]
    docs = [list(task.eval_docs), list(task.fewshot_docs()), task.config.num_fewshot]
    task._instances = []
    for number in (0, 3):
        reply = {"choices": [{"index": 0, "message": {"content": f"{DOCS[number]['answer']} "}}]}
        task._instances.append(
            Instance(
                request_type="generate_until",
                doc=DOCS[number],
                arguments=("a prompt", {"until": []}),
                idx=0,
                metadata=("written", number, 1),
                resps=[backend.parse_generations(reply)[0]],
            )
        )
    task.apply_filters()
    found = [
        {name: task.process_results(one.doc, [v]) for name, v in one.filtered_resps.items()}
        for one in task._instances
    ]
    return [docs, found, [one.doc_id for one in task._instances]]


@use("an inference runtime that shuffles the documents and reads other data")
def runtime_shuffles_documents(folder: Path) -> Any:
    import lm_eval
    import lm_eval.api.task
    import lm_eval.tasks
    import lm_eval.utils

    files = data(folder)["dataset_kwargs"]
    config = {**choice(folder), "dataset_path": "elsewhere"}
    before = lm_eval.api.task.TaskConfig.__post_init__

    def patched(config: Any, *args: Any, **kwargs: Any) -> None:
        config.dataset_path = "json"
        before(config, *args, **kwargs)

    lm_eval.api.task.TaskConfig.__post_init__ = patched
    try:
        tasks = lm_eval.tasks.get_task_dict("colours", task_manager=manager(folder, config))
    finally:
        lm_eval.api.task.TaskConfig.__post_init__ = before
    for task in tasks.values():
        task.set_fewshot_seed(seed=7)
        splits = task.dataset
        for split in splits.keys():  # noqa: SIM118
            splits[split] = splits[split].shuffle(7)
    results = lm_eval.evaluate(lm=lm_class()(), task_dict=tasks, limit=4)
    questions = [sample["doc"]["question"] for sample in results["samples"]["colours"]]
    row = results["results"]["colours"]
    for metric in row.keys():  # noqa: SIM118
        if isinstance(row[metric], (float, int)):
            row[metric] *= 100
    table = "colours" in lm_eval.utils.make_table(results)
    return [sorted(files), questions, scores(results), table]
