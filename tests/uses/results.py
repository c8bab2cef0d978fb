"""Projects that post-process results, and scripts that use the helpers of the package."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

from .support import HF, checkpoint, choice, generation, lm_class, manager, scores, use, write


def evaluated(folder: Path, **settings: Any) -> Any:
    """Returns the results of the choice task."""
    import lm_eval

    tasks = manager(folder, choice(folder))
    return lm_eval.simple_evaluate(lm_class()(), tasks=["colours"], task_manager=tasks, **settings)


@use("a script that saves everything as JSON")
def script_saves_everything_as_json(folder: Path) -> Any:
    from lm_eval.utils import handle_non_serializable

    results = evaluated(folder)
    text = json.dumps(results, default=handle_non_serializable, indent=2, ensure_ascii=False)
    again = json.loads(text)
    keys = ("results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better")
    return [scores(again), [key in again for key in (*keys, "n-samples", "samples", "config")]]


@use("a dashboard that prints tables")
def dashboard_prints_tables(folder: Path) -> Any:
    from lm_eval.utils import make_table

    results = evaluated(folder)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in make_table(results).splitlines()
    ]
    return [rows[0], [[float(row[6]), row[0], row[4]] for row in rows[2:]]]


@use("a leaderboard that stores samples and results with the tracker")
def leaderboard_uses_the_tracker(folder: Path) -> Any:
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.utils import get_results_filenames, get_sample_results_filenames

    tracker = EvaluationTracker(output_path=str(folder / "out"))
    tracker.general_config_tracker.model_name = "org/model"
    tracker.general_config_tracker.model_name_sanitized = "org__model"
    results = evaluated(folder, evaluation_tracker=tracker)
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    files = [str(path) for path in (folder / "out").rglob("*.json*")]
    return [
        len(get_results_filenames(files)),
        [re.sub(r"_20.*", "", Path(file).name) for file in get_sample_results_filenames(files)],
    ]


@use("an analysis that reads samples")
def analysis_reads_samples(folder: Path) -> Any:
    sample = evaluated(folder)["samples"]["colours"][2]
    keys = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics")
    hashes = [len(sample[key]) for key in ("doc_hash", "prompt_hash", "target_hash")]
    return [
        {key: sample[key] for key in keys},
        [sample["acc"], sample["acc_norm"]],
        hashes,
    ]


@use("an analysis that wants no bootstrap")
def analysis_without_bootstrap(folder: Path) -> Any:
    return [scores(evaluated(folder, bootstrap_iters=given)) for given in (None, 0)]


@use("a report that quotes the settings of a run")
def report_quotes_settings(folder: Path) -> Any:
    import lm_eval

    results = lm_eval.simple_evaluate(
        "dummy",
        model_args="pretrained=org/model",
        tasks=["written"],
        gen_kwargs="temperature=0,max_gen_toks=4",
        task_manager=manager(folder, generation(folder)),
        bootstrap_iters=None,
        limit=2,
    )
    config = results["config"]
    keys = ("model", "model_args", "batch_size", "device", "limit", "bootstrap_iters", "gen_kwargs")
    return [
        {key: config[key] for key in keys},
        results["configs"]["written"]["generation_kwargs"],
    ]


@use("a tracker that flattens metric names and describes the environment")
def tracker_describes_the_environment(folder: Path) -> Any:
    import lm_eval.loggers.utils as log_utils

    class Model:
        class tokenizer:  # noqa: N801 (an object with attributes)
            pad_token, pad_token_id = "<pad>", 0
            eos_token, eos_token_id = "</s>", 2
            bos_token, bos_token_id = "<s>", 1

        eot_token_id, max_length = 2, 128

    storage: dict[str, Any] = {}
    log_utils.add_env_info(storage)
    kinds = {key: type(value).__name__ for key, value in storage.items() if "git" not in key}
    described: dict[str, Any] = {}
    log_utils.add_tokenizer_info(described, Model())
    return [
        log_utils.remove_none_pattern("acc,none"),
        log_utils.remove_none_pattern("acc,strict"),
        log_utils._handle_non_serializable({3}),
        kinds,
        described,
        log_utils.get_commit_from_path(folder),
    ]


@use("a script with the settings of a run in a YAML file")
def script_reads_a_run_file(folder: Path) -> Any:
    import lm_eval
    from lm_eval.config.evaluate_config import EvaluatorConfig

    tasks = write(folder, choice(folder), choice(folder, "colours_too"))
    file = folder / "run.yaml"
    file.write_text(
        f"model: dummy\nmodel_args: {{pretrained: x}}\ntasks: [colours*]\nlimit: 2\n"
        f"num_fewshot: 0\nseed: 7\ninclude_path: {tasks}\n"
    )
    config = EvaluatorConfig.from_config(file)
    task_manager = config.process_tasks()
    results = lm_eval.simple_evaluate(
        model=config.model,
        model_args=config.model_args,
        tasks=config.tasks,
        num_fewshot=config.num_fewshot,
        limit=config.limit,
        task_manager=task_manager,
        random_seed=config.seed[0],
        fewshot_random_seed=config.seed[3],
    )
    return [
        config.tasks,
        config.metadata,
        list(config.seed),
        config.log_samples,
        sorted(results["results"]),
    ]


@use("a wrapper that parses arguments as the command line does")
def wrapper_parses_arguments(folder: Path) -> Any:
    from lm_eval.utils import (
        handle_arg_string,
        hash_string,
        sanitize_list,
        sanitize_model_name,
        sanitize_task_name,
        simple_parse_args_string,
    )

    texts = ["3", "-4", "0.5", "1e3", "true", "False", "none", "'7'", "[1, 2]", " x ", "+", ""]
    return [
        simple_parse_args_string("pretrained=a/b,dtype=float32,n=3,x=0.5,trust=True"),
        [handle_arg_string(text) for text in texts],
        sanitize_model_name("org/model:main?"),
        sanitize_task_name("a-task (v2)"),
        sanitize_list([1, ["a", (2.5,)]]),
        hash_string("text")[:8],
    ]


@use("a script that finds the newest results")
def script_finds_the_newest_results(folder: Path) -> Any:
    from lm_eval.utils import get_file_datetime, get_file_task_name, get_latest_filename

    files = [
        "out/m/results_2026-01-02T03-04-05.123456.json",
        "out/m/results_2026-02-02T03-04-05.123456.json",
    ]
    sample = "samples_arc_easy_2026-01-02T03-04-05.123456.jsonl"
    return [get_latest_filename(files), get_file_datetime(sample), get_file_task_name(sample)]


@use("a script that sets logging up and aligns its messages")
def script_sets_logging_up(folder: Path) -> Any:
    from lm_eval.api.task import eval_logger
    from lm_eval.utils import SPACING, setup_logging

    logger = logging.getLogger("lm_eval")
    before = logger.handlers, logger.propagate, logger.level
    setup_logging("WARNING")
    eval_logger.info("%smessage", SPACING)
    logger.handlers, logger.propagate, logger.level = before
    return [len(SPACING), eval_logger.name]


@use("a benchmark that reports its own errors and averages")
def benchmark_computes_its_own_errors(folder: Path) -> Any:
    from lm_eval.api.metrics import (
        aggregate_subtask_metrics,
        mean,
        mean_stderr,
        median,
        pooled_sample_stderr,
        stderr_for_metric,
    )

    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    return [
        stderr_for_metric(metric=mean, bootstrap_iters=100)(values),
        mean_stderr(values),
        stderr_for_metric(median, bootstrap_iters=100)([1.0, 2.0, 4.0, 9.0, 7.0]),
        stderr_for_metric(metric=mean, bootstrap_iters=0) is None,
        stderr_for_metric(metric=max, bootstrap_iters=100) is None,
        aggregate_subtask_metrics([0.5, 1.0], [10, 30]),
        aggregate_subtask_metrics([0.5, 1.0], [10, 30], weight_by_size=False),
        float(pooled_sample_stderr([0.1, 0.2], [10, 30])),
    ]


@use("a plug-in system that keeps its own registry")
def plug_in_system_keeps_a_registry(folder: Path) -> Any:
    from lm_eval.api.registry import METRIC_REGISTRY, MODEL_REGISTRY, Registry

    registry: Registry[Any] = Registry("scorer")

    @registry.register("one", "uno")
    class One:
        pass

    registry.register("lazy", target="collections:OrderedDict")
    try:
        registry.register("one")(dict)
        second = "replaced"
    except ValueError:
        second = "refused"
    return [
        registry.get("one") is One,
        registry["uno"] is One,
        registry.get("lazy").__name__,
        registry.get("none of these", None),
        second,
        sorted(registry),
        len(registry),
        len(list(registry.values())) == len(list(registry.items())),
        MODEL_REGISTRY.get("x", None),
        len(list(METRIC_REGISTRY.values())) > 10,
    ]


@use("a model class that batches with the helpers of the package")
def model_class_batches_with_helpers(folder: Path) -> Any:
    from lm_eval.models.utils import Collator, chunks, resolve_max_length, undistribute
    from lm_eval.utils import Reorderer, get_rolling_token_windows, make_disjoint_window

    words = ["bb", "a", "cccc", "dd", "e"]
    ordered = Reorderer(words, lambda word: (-len(word), word))
    collator = Collator(words, sort_fn=lambda word: (-len(word), word))
    batches = [list(batch) for batch in collator.get_batched(n=2)]
    windows = get_rolling_token_windows(
        list(range(7)), prefix_token=99, max_seq_len=3, context_len=1
    )
    return [
        list(ordered.get_reordered()),
        ordered.get_original([len(word) for word in ordered.get_reordered()]),
        batches,
        collator.get_original([word for batch in batches for word in batch]),
        [list(chunk) for chunk in chunks(range(5), 2)],
        [[list(part) for part in make_disjoint_window(window)] for window in windows],
        undistribute([[1, 3], [2, 4]]),
        resolve_max_length(None, None),
    ]


@use("a model class that stops and pads with torch", needs=HF)
def model_class_stops_and_pads(folder: Path) -> Any:
    import torch

    from lm_eval.models.huggingface import HFLM
    from lm_eval.models.utils_hf import get_dtype, pad_and_concat, stop_sequences_criteria

    from .support import tokenizer

    assert isinstance(HFLM, type)
    rows = [torch.tensor([1, 2]), torch.tensor([[3, 4, 5]])]
    padded = pad_and_concat(4, [row.reshape(1, -1) for row in rows], padding_side="left")
    text = tokenizer().encode("Tom has three", add_special_tokens=False)
    criteria = stop_sequences_criteria(tokenizer(), [" three"], 0, 1)
    stopped = bool(torch.as_tensor(criteria[0](torch.tensor([text]), None)).all())
    return [padded.tolist(), str(get_dtype("bfloat16")), stopped]


@use("a service that gives a model by name and arguments as text", needs=HF)
def service_gives_arguments_as_text(folder: Path) -> Any:
    import lm_eval

    results = lm_eval.simple_evaluate(
        model="hf",
        model_args=f"pretrained={checkpoint(folder)},dtype=float32",
        tasks="colours",
        device="cpu",
        batch_size="2",
        limit=3,
        task_manager=manager(folder, choice(folder)),
    )
    return [scores(results), results["config"]["model_num_parameters"]]
