"""Toolkits that quantize or compress a model and compare scores before and after."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from .support import HF, checkpoint, choice, llama, lm_class, manager, scores, tokenizer, use, write


@use("a quantization toolkit that evaluates the quantized object and prints a table", needs=HF)
def quantizer_prints_a_table(folder: Path) -> Any:
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.utils import make_table

    hflm = HFLM(
        pretrained=llama(), tokenizer=tokenizer(), device="cpu", batch_size=4, max_batch_size=64
    )
    results = lm_eval.simple_evaluate(
        model=hflm,
        tasks=["colours"],
        limit=4,
        batch_size=4,
        task_manager=manager(folder, choice(folder)),
    )
    header = make_table(results).splitlines()[0]
    return [scores(results), [cell.strip() for cell in header.strip("|").split("|")]]


@use("a compression script that matches task names and averages accuracies")
def compressor_averages_accuracies(folder: Path) -> Any:
    import lm_eval
    from lm_eval import utils as lm_eval_utils

    tasks = manager(folder, choice(folder), choice(folder, "colours_too"))
    names = lm_eval_utils.pattern_match(["colours*"], tasks.all_tasks)
    results = lm_eval.simple_evaluate(lm_class()(), tasks=names, task_manager=tasks)["results"]
    values = {
        task: round(result.get("acc_norm,none", result["acc,none"]), 4)
        for task, result in results.items()
    }
    values["acc_avg"] = round(sum(values.values()) / len(values), 4)
    return values


@use("a quantization toolkit that looks models up in the registry")
def quantizer_looks_models_up(folder: Path) -> Any:
    import lm_eval.api.registry
    import lm_eval.models
    from lm_eval.evaluator_utils import eval_logger

    known = list(lm_eval.api.registry.MODEL_REGISTRY.keys())
    made = lm_eval.api.registry.get_model("dummy").create_from_arg_string(
        "", {"batch_size": None, "max_batch_size": None, "device": None}
    )
    eval_logger.info("models: %s", known)
    return ["hf" in known, "dummy" in lm_eval.api.registry.MODEL_REGISTRY, type(made).__name__]


@use("a quantization toolkit that replaces how a model is created from arguments", needs=HF)
def quantizer_replaces_creation(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.model import T
    from lm_eval.models.huggingface import HFLM

    used: list[Any] = []

    def create(cls: type[T], arg_dict: dict, additional_config: dict | None = None) -> T:
        used.append(arg_dict.pop("quant_cfg", None))
        given = {k: v for k, v in (additional_config or {}).items() if v is not None}
        lm = cls(**arg_dict, **given)
        lm.tokenizer.padding_side = "left"
        return lm

    original = HFLM.__dict__.get("create_from_arg_obj")
    HFLM.create_from_arg_obj = classmethod(create)
    try:
        results = lm_eval.simple_evaluate(
            model="hf",
            model_args={"pretrained": checkpoint(folder), "quant_cfg": "INT8", "dtype": "float32"},
            tasks=["colours"],
            device="cpu",
            task_manager=manager(folder, choice(folder)),
        )
    finally:
        if original is None:
            del HFLM.create_from_arg_obj
        else:
            HFLM.create_from_arg_obj = original
    return [used, scores(results)]


@use("a quantization toolkit that adds options to the command line", needs=HF)
def quantizer_adds_options(folder: Path) -> Any:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval._cli import harness

    add_args, execute, seen = harness.Run._add_args, harness.Run._execute, []

    def more_args(self: Any) -> None:
        add_args(self)
        group = self._parser.add_argument_group("quantization")
        group.add_argument("--quant_cfg", type=str)
        group.add_argument("--calib_size", type=int, default=512)

    def quantized(args: Any) -> None:
        model_args = {} if args.model_args is None else dict(args.model_args)
        if getattr(args, "trust_remote_code", False):
            model_args["trust_remote_code"], args.trust_remote_code = True, None
        seen.append([args.quant_cfg, args.calib_size, model_args["dtype"], args.gen_kwargs])
        seen.append([args.tasks, args.limit, hasattr(args, "log_samples"), args.device])
        del args.quant_cfg, args.calib_size
        args.model_args = model_args
        execute(args)

    tasks, out = write(folder, choice(folder)), folder / "out"
    words = ["hf.py", "--model", "hf", "--tasks", "colours", "--quant_cfg", "INT8", "--limit", "2"]
    words += ["--model_args", f"pretrained={checkpoint(folder)},dtype=float32", "--device", "cpu"]
    words += ["--include_path", str(tasks), "--output_path", str(out), "--trust_remote_code"]
    with (
        mock.patch.object(harness.Run, "_add_args", more_args),
        mock.patch.object(harness.Run, "_execute", staticmethod(quantized)),
        mock.patch.object(sys, "argv", words),
    ):
        cli_evaluate()
    (file,) = out.rglob("results_*.json")
    results = json.loads(file.read_text(encoding="utf-8"))
    return [seen, scores(results)]


@use("a script that reads the command line in two steps")
def script_reads_the_command_line(folder: Path) -> Any:
    from lm_eval._cli import HarnessCLI
    from lm_eval._cli.utils import request_caching_arg_to_dict

    words = ["x.py", "--model", "dummy", "--tasks", "colours", "--include_path"]
    words += [str(write(folder, choice(folder))), "--num_fewshot", "0", "--gen_kwargs", "a=1,b=x"]
    with mock.patch.object(sys, "argv", words):
        cli = HarnessCLI()
        args = cli.parse_args()
        cli.execute(args)
    given = [args.command, args.model, args.tasks, args.num_fewshot, args.gen_kwargs, args.seed]
    return [given, [request_caching_arg_to_dict(v) for v in (None, "true", "refresh", "delete")]]


@use("a compression library whose tests compare metrics with those in a file", needs=HF)
def compression_tests_compare_metrics(folder: Path) -> Any:
    import lm_eval
    import lm_eval.api.registry
    import lm_eval.models

    cls = lm_eval.api.registry.get_model("hf")
    results = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": checkpoint(folder), "dtype": "float32", "add_bos_token": True},
        tasks=["colours"],
        num_fewshot=0,
        limit=4,
        device="cpu",
        apply_chat_template=False,
        batch_size=1,
        task_manager=manager(folder, choice(folder)),
    )
    metrics: dict[str, Any] = results["results"]["colours"]
    pairs = []
    for key in sorted(key for key in metrics if "," in key and "_stderr" not in key):
        pairs.append([key, metrics[key], key.replace(",", "_stderr,") in metrics])
    return [cls.__name__, pairs]


@use("a compression library that imports an OpenVINO model and uses it for some models only")
def compressor_imports_an_openvino_model(folder: Path) -> Any:
    from lm_eval.models.optimum_lm import OptimumLM

    return [OptimumLM.__name__, isinstance(OptimumLM, type)]


@use(
    "a quantization toolkit that imports classes for models with images",
    difference="published: needs vLLM to import; here: importable, an error when used",
)
def quantizer_imports_models_with_images(folder: Path) -> Any:
    from lm_eval.models.hf_vlms import HFMultimodalLM
    from lm_eval.models.vllm_vlms import VLLM_VLM

    return [HFMultimodalLM.__name__, VLLM_VLM.__name__]


@use(
    "a fine-tuning recipe that derives from the multimodal class at the top of its file",
    difference="published: transformers models with images; here: an error with an alternative",
)
def recipe_derives_from_the_multimodal_class(folder: Path) -> Any:
    from lm_eval.models.hf_vlms import HFMultimodalLM

    class Wrapper(HFMultimodalLM):
        def __init__(self) -> None:
            pass

    return type(Wrapper()).__name__


@use(
    "a steering project that imports the steered model",
    difference="published: steers with a file; here: an error with an alternative",
)
def steering_project_uses_the_steered_model(folder: Path) -> Any:
    from lm_eval.models.hf_steered import SteeredModel, steer

    assert callable(steer)
    return SteeredModel(pretrained="nowhere", steer_path=str(folder / "missing.csv"))
