"""Tests that names that published task folders and model classes import keep working."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = {
    "lm_eval": [
        "simple_evaluate",
        "evaluate",
        "resume",
        "score",
        "__version__",
        "capabilities",
        "check_model",
        "compare",
        "evaluate_live",
        "LiveTasks",
    ],
    "lm_eval.callback": ["TrainerCallback", "lightning_callback"],
    "lm_eval.results": ["load", "StoredResults"],
    "lm_eval.__main__": ["cli_evaluate"],
    "lm_eval._cli": ["HarnessCLI"],
    "lm_eval._cli.harness": ["HarnessCLI", "List", "Run", "Validate"],
    "lm_eval._cli.run": ["Run"],
    "lm_eval._cli.ls": ["List"],
    "lm_eval._cli.validate": ["Validate"],
    "lm_eval._cli.subcommand": ["SubCommand"],
    "lm_eval._cli.utils": [
        "handle_cli_value_string",
        "key_val_to_dict",
        "request_caching_arg_to_dict",
    ],
    "lm_eval.api.model": ["LM", "TemplateLM", "CacheHook", "CachingLM", "T"],
    "lm_eval.api.instance": ["Instance", "OutputType"],
    "lm_eval.api.task": [
        "Task",
        "ConfigurableTask",
        "MultipleChoiceTask",
        "PerplexityTask",
        "TaskConfig",
        "ALL_OUTPUT_TYPES",
        "eval_logger",
    ],
    "lm_eval.api.filter": ["Filter", "FilterEnsemble", "NotFound"],
    "lm_eval.api.group": ["Group", "ConfigurableGroup", "GroupConfig", "AggMetricConfig"],
    "lm_eval.api.samplers": ["ContextSampler", "FirstNSampler", "get_sampler"],
    "lm_eval.api.metrics": [
        "mean",
        "median",
        "nanmean",
        "perplexity",
        "weighted_perplexity",
        "weighted_mean",
        "bits_per_byte",
        "f1_score",
        "matthews_corrcoef",
        "metric_max_over_ground_truths",
        "mean_stderr",
        "sample_stddev",
        "bootstrap_stderr",
        "pooled_sample_stderr",
        "Metric",
        "acc_all",
        "aggregate_subtask_metrics",
        "bleu",
        "brier_score",
        "chrf",
        "chrfpp",
        "exact_match_hf_evaluate",
        "register_aggregation",
        "register_metric",
        "stderr_for_metric",
        "ter",
        "unweighted_mean_stderr",
    ],
    "lm_eval.api.registry": [
        "register_model",
        "register_filter",
        "register_metric",
        "register_aggregation",
        "register_reduction",
        "register_format",
        "get_model",
        "get_filter",
        "get_metric",
        "get_aggregation",
        "get_reduction",
        "get_metric_aggregation",
        "is_higher_better",
        "MODEL_REGISTRY",
        "FILTER_REGISTRY",
        "METRIC_REGISTRY",
        "AGGREGATION_REGISTRY",
        "DEFAULT_METRIC_REGISTRY",
        "Registry",
    ],
    "lm_eval.caching.cache": ["PATH", "delete_cache", "load_from_cache", "save_to_cache"],
    "lm_eval.config.evaluate_config": ["EvaluatorConfig"],
    "lm_eval.config.group": ["GroupConfig", "AggMetricConfig"],
    "lm_eval.config.task": ["TaskConfig", "FewshotConfig"],
    "lm_eval.decontamination.janitor": [
        "Janitor",
        "form_ngrams",
        "split_indices",
        "word_ngrams",
        "word_ngrams_indices",
    ],
    "lm_eval.evaluator": ["evaluate", "simple_evaluate"],
    "lm_eval.evaluator_utils": [
        "eval_logger",
        "get_sample_size",
        "print_writeout",
        "run_task_tests",
    ],
    "lm_eval.loggers": ["EvaluationTracker", "WandbLogger"],
    "lm_eval.loggers.utils": [
        "_handle_non_serializable",
        "add_env_info",
        "add_tokenizer_info",
        "get_commit_from_path",
        "get_git_commit_hash",
        "remove_none_pattern",
    ],
    "lm_eval.tasks": ["TaskManager", "get_task_dict"],
    "lm_eval.tasks._index": ["Entry", "Kind"],
    "lm_eval.filters": ["build_filter_ensemble"],
    "lm_eval.filters.extraction": [
        "Filter",
        "RegexFilter",
        "WhitespaceFilter",
        "POSFilter",
        "MultiChoiceRegexFilter",
    ],
    "lm_eval.filters.selection": ["TakeFirstFilter", "TakeKFilter", "MajorityVoteFilter"],
    "lm_eval.filters.transformation": [
        "LowercaseFilter",
        "UppercaseFilter",
        "MapFilter",
        "SPANFilter",
    ],
    "lm_eval.filters.custom": ["CustomFilter"],
    "lm_eval.models.anthropic_llms": ["AnthropicChat", "AnthropicLM"],
    "lm_eval.models.api_models": [
        "JsonChatStr",
        "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER",
        "LogLikelihoodInputs",
        "TemplateAPI",
        "create_image_prompt",
    ],
    "lm_eval.models.gguf": ["GGUFLM"],
    "lm_eval.models.hf_steered": ["SteeredModel", "steer"],
    "lm_eval.models.hf_vlms": ["DEFAULT_IMAGE_PLACEHOLDER", "HFMultimodalLM"],
    "lm_eval.models.huggingface": [
        "Collator",
        "handle_stop_sequences",
        "has_bos_prefix",
        "normalize_gen_kwargs",
        "postprocess_generated_text",
        "resolve_max_length",
    ],
    "lm_eval.models.litellm_llms": ["LiteLLMChatCompletion"],
    "lm_eval.models.mamba_lm": ["MambaLMWrapper"],
    "lm_eval.models.openai_completions": [
        "AzureOpenaiChatCompletionsLM",
        "LocalChatCompletion",
        "LocalCompletionsAPI",
        "OpenAIChatCompletion",
        "OpenAICompletionsAPI",
    ],
    "lm_eval.models.optimum_lm": ["OptimumLM"],
    "lm_eval.models": ["from_logits"],
    "lm_eval.models.scripted": ["ScriptedLM"],
    "lm_eval.models.sglang_causallms": ["SGLangLM"],
    "lm_eval.models.sglang_generate_API": ["SGLANGGENERATEAPI"],
    "lm_eval.models.dummy": ["DummyLM"],
    "lm_eval.models.demo": ["DemoLM"],
    "lm_eval.models.utils": [
        "retry_on_specific_exceptions",
        "Collator",
        "Grouper",
        "Reorderer",
        "chunks",
        "handle_stop_sequences",
        "has_bos_prefix",
        "maybe_truncate",
        "normalize_gen_kwargs",
        "postprocess_generated_text",
        "resolve_max_length",
        "truncate_tokens",
        "undistribute",
        "_add_special_kwargs",
    ],
    "lm_eval.models.vllm_causallms": ["VLLM"],
    "lm_eval.models.vllm_vlms": ["VLLM_VLM"],
    "lm_eval.utils": [
        "RemoteTokenizer",
        "Reorderer",
        "SPACING",
        "apply_template",
        "check_remote_tokenizer_support",
        "eval_logger",
        "general_detokenize",
        "get_file_datetime",
        "get_file_task_name",
        "get_latest_filename",
        "get_results_filenames",
        "get_rolling_token_windows",
        "get_sample_results_filenames",
        "handle_arg_string",
        "handle_non_serializable",
        "hash_string",
        "join_iters",
        "make_disjoint_window",
        "make_table",
        "pattern_match",
        "positional_deprecated",
        "regex_replace",
        "sanitize_list",
        "sanitize_model_name",
        "sanitize_task_name",
        "setup_logging",
        "simple_parse_args_string",
        "softmax",
        "weighted_f1_score",
    ],
}


@pytest.mark.parametrize("module", sorted(NAMES))
def test_a_module_offers_its_names(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in NAMES[module]:
        assert getattr(loaded, name) is not None, name


#: The parameters of the published entry points, by name and in order.
SIMPLE_EVALUATE = [
    "model",
    "model_args",
    "tasks",
    "num_fewshot",
    "batch_size",
    "max_batch_size",
    "device",
    "use_cache",
    "cache_requests",
    "rewrite_requests_cache",
    "delete_requests_cache",
    "limit",
    "samples",
    "bootstrap_iters",
    "check_integrity",
    "write_out",
    "log_samples",
    "evaluation_tracker",
    "system_instruction",
    "apply_chat_template",
    "fewshot_as_multiturn",
    "gen_kwargs",
    "task_manager",
    "verbosity",
    "predict_only",
    "random_seed",
    "numpy_random_seed",
    "torch_random_seed",
    "fewshot_random_seed",
    "confirm_run_unsafe_code",
    "metadata",
]

EVALUATE = [
    "lm",
    "task_dict",
    "limit",
    "samples",
    "cache_requests",
    "rewrite_requests_cache",
    "bootstrap_iters",
    "write_out",
    "log_samples",
    "system_instruction",
    "apply_chat_template",
    "fewshot_as_multiturn",
    "verbosity",
    "confirm_run_unsafe_code",
]


def test_the_entry_points_take_the_published_parameters() -> None:
    import lm_eval

    for function, published, ours in (
        (
            lm_eval.simple_evaluate,
            SIMPLE_EVALUATE,
            [
                *("data_dir", "confidence", "cluster", "sample", "sample_seed", "output_path"),
                *("fresh", "max_failed", "decontaminate", "require_isolation"),
                *("executor", "workers", "gpus_per_worker", "cpus_per_worker"),
                *("ray_address", "max_restarts", "repeats", "metrics"),
            ],
        ),
        (
            lm_eval.evaluate,
            EVALUATE,
            ["confidence", "cluster", "max_failed", "decontaminate", "require_isolation"],
        ),
    ):
        assert list(inspect.signature(function).parameters) == [*published, *ours]


OPTIONS = [
    "config",
    "tasks",
    "model",
    "model_args",
    "apply_chat_template",
    "limit",
    "use_cache",
    "num_fewshot",
    "batch_size",
    "max_batch_size",
    "device",
    "gen_kwargs",
    "output_path",
    "log_samples",
    "samples",
    "cache_requests",
    "check_integrity",
    "system_instruction",
    "fewshot_as_multiturn",
    "include_path",
    "verbosity",
    "write_out",
    "show_config",
    "wandb_args",
    "wandb_config_args",
    "trackio_args",
    "hf_hub_log_args",
    "predict_only",
    "seed",
    "trust_remote_code",
    "confirm_run_unsafe_code",
    "metadata",
]


def test_the_run_command_takes_the_published_options() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for option in OPTIONS:
        assert (
            f"--{option} " in done.stdout
            or f"--{option}," in done.stdout
            or (f"--{option}\n" in done.stdout)
        ), option


def test_every_name_of_the_api_page_exists() -> None:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    names = re.findall(
        r"^::: ([\w.]+)(?:\n    options:\n      members:\n((?: {8}- \w+\n)+))?", page, re.M
    )
    assert len(names) > 20
    for name, members in names:
        found = resolve(name)
        for member in re.findall(r"- (\w+)", members):
            assert hasattr(found, member), f"{name}.{member}"


def resolve(name: str) -> object:
    """Returns the module, class or function with a dotted name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)
