"""Tests that wrong arguments of engines are refused in one line, before anything is loaded."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lm_eval import simple_evaluate
from lm_eval.cli import main
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.engines import base
from lm_eval.models.engines.arguments import own_length
from lm_eval.models.engines.base import OnlyEngine
from tests.engines import fake_vllm
from tests.engines.conftest import CLASSES, Create, install

ENGINES = list(CLASSES)
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the fake packages; a test fails if an engine is created."""

    def refuse(self: Any) -> None:
        raise AssertionError("the engine was loaded")

    for engine, kind in CLASSES.items():
        install(monkeypatch, engine)
        monkeypatch.setattr(kind, "_start", refuse)


def refusal(capsys: Captured, model: str, *words: str, **arguments: Any) -> str:
    """Returns the only line of the error of a run; asserts that its exit code is 2."""
    given = json.dumps({"pretrained": str(WEIGHTS), **arguments})
    options = ["--model", model, "--model_args", given, "--tasks", "demo_choice"]
    assert main(["run", *options, *words]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "rror" in line]
    return line


LENGTHS = {
    "vllm": ("max_model_len", "max_length"),
    "sglang": ("context_length", "max_model_len"),
    "llama-cpp": ("n_ctx", "max_length"),
}


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_context_length_that_is_given_twice_is_refused(
    engine: str, gguf: Path, capsys: Captured
) -> None:
    one, other = LENGTHS[engine]
    more = {"pretrained": str(gguf)} if engine == "llama-cpp" else {}
    line = refusal(capsys, engine, **{one: 100, other: 200}, **more)
    assert "mean the same; pass only one of them" in line
    assert one in line
    assert other in line


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("value", "reason"), [("many", "an integer"), (1, "2 or more")])
def test_a_context_length_that_is_no_length_is_refused(
    value: Any, reason: str, capsys: Captured
) -> None:
    assert f"max_model_len must be {reason}" in refusal(capsys, "vllm", max_model_len=value)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("engine", "variable"),
    [
        ("vllm", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
        ("sglang", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
    ],
)
def test_a_context_length_larger_than_the_models_own_is_refused(
    engine: str, variable: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refusal(capsys, engine, max_model_len=2000)
    assert "the context length of 2000 is larger than that of the model, 1024" in line
    assert f"set {variable}=1" in line
    monkeypatch.setenv(variable, "1")
    CLASSES[engine].check_before_loading({"pretrained": str(WEIGHTS), "max_model_len": 2000})


def test_a_context_length_larger_than_that_of_a_gguf_file_is_refused(create: Create) -> None:
    with pytest.raises(ConfigError, match="of 2000 is larger than that of the model, 1024"):
        create("llama-cpp", n_ctx=2000)
    assert create("llama-cpp", n_ctx=2000, rope_freq_scale=0.5).max_length == 1999


def config(folder: Path, **settings: Any) -> dict[str, str]:
    (folder / "config.json").write_text(json.dumps(settings))
    return {"pretrained": str(folder)}


def test_the_own_length_is_read_only_where_it_is_certain(tmp_path: Path) -> None:
    length = {"max_position_embeddings": 512}
    plain = {"rope_theta": 10000.0, "rope_type": "default"}
    assert own_length(config(tmp_path, **length)) == 512
    assert own_length(config(tmp_path, **length, rope_parameters=plain)) == 512
    assert own_length(config(tmp_path, text_config=length)) == 512
    scaled = {"rope_type": "linear", "factor": 4.0}
    assert own_length(config(tmp_path, **length, rope_scaling=scaled)) is None
    assert own_length(config(tmp_path, **length, model_max_length=9999)) is None
    assert own_length({**config(tmp_path, **length), "hf_overrides": {"a": 1}}) is None
    assert own_length(config(tmp_path)) is None
    assert own_length({"pretrained": "name/on-the-hub"}) is None
    assert own_length({}) is None


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("engine", ENGINES)
def test_answers_that_leave_no_room_for_a_prompt_are_refused(
    engine: str, gguf: Path, capsys: Captured
) -> None:
    more = {"pretrained": str(gguf)} if engine == "llama-cpp" else {}
    line = refusal(capsys, engine, max_length=200, max_gen_toks=199, **more)
    assert "max_gen_toks=199 leaves no room for a prompt: the context length is 200" in line
    if engine != "llama-cpp":
        assert "the context length is 1024" in refusal(capsys, engine, max_gen_toks=1023)


@pytest.mark.usefixtures("no_engine")
def test_a_default_length_of_answers_is_not_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Tasks that generate nothing, or set a length, do not need it."""
    CLASSES["vllm"].check_before_loading({"pretrained": str(WEIGHTS), "max_model_len": 200})


LONG = {"vllm": "max_model_len", "sglang": "context_length", "llama-cpp": "n_ctx"}


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("engine", ENGINES)
def test_prompts_longer_than_the_length_given_are_refused_before_loading(
    engine: str, gguf: Path, capsys: Captured
) -> None:
    name = LONG[engine]
    more = {"pretrained": str(gguf)} if engine == "llama-cpp" else {}
    line = refusal(capsys, engine, "--limit", "5", **{name: 8}, **more)
    assert f"{name}=8 is too short for" in line
    assert "of task 'demo_choice' (the longest is of document" in line
    needed = int(line.partition(f"Pass {name}=")[2].partition(",")[0])
    # With the length that the message names, the run goes on until the engine is created.
    for length, long_prompts in ((needed, "refuse"), (8, "cut")):
        given = {"pretrained": str(WEIGHTS), name: length, "long_prompts": long_prompts, **more}
        with pytest.raises(AssertionError, match="the engine was loaded"):
            simple_evaluate(engine, model_args=given, tasks=["demo_choice"], limit=5)
    given = {"pretrained": str(WEIGHTS), name: needed - 1, **more}
    with pytest.raises(ConfigError, match=f"{name}={needed - 1} is too short"):
        simple_evaluate(engine, given, tasks=["demo_choice"], limit=5)


@pytest.mark.usefixtures("no_engine")
def test_the_answer_to_a_prompt_must_fit_into_the_length_given(capsys: Captured) -> None:
    words = ("--tasks", "demo_sums", "--gen_kwargs", "max_gen_toks=100", "--limit", "3")
    line = refusal(capsys, "vllm", *words, max_model_len=120)
    assert "max_model_len=120 is too short for" in line
    assert "3 of 3 requests of task 'demo_sums'" in line


@pytest.mark.usefixtures("no_engine")
def test_texts_that_are_read_in_windows_are_never_too_long(capsys: Captured) -> None:
    given = {"pretrained": str(WEIGHTS), "max_model_len": 8}
    with pytest.raises(AssertionError, match="the engine was loaded"):
        simple_evaluate("vllm", model_args=given, tasks=["demo_stories"], limit=2)


def test_the_check_of_lengths_does_not_change_the_prompts(create: Create) -> None:
    """Few-shot examples are drawn at random, and the check draws them once before the run."""

    def prompts(long_prompts: str) -> list[Any]:
        arguments = {**given, "long_prompts": long_prompts}
        found = simple_evaluate("vllm", arguments, ["demo_choice"], 2, limit=4)
        assert found is not None
        return [sample["arguments"] for sample in found["samples"]["demo_choice"]]

    given = {"pretrained": str(WEIGHTS), "max_model_len": 1000}
    create("vllm")
    restart: Any = base.ONLY_ENGINE.__init__  # type: ignore[misc]
    restart()
    checked = prompts("refuse")
    restart()
    assert checked == prompts("cut")


@pytest.mark.usefixtures("no_engine")
def test_a_way_to_treat_long_prompts_that_does_not_exist_is_refused(capsys: Captured) -> None:
    line = refusal(capsys, "vllm", max_model_len=100, long_prompts="drop")
    assert "long_prompts must be 'refuse' or 'cut', not 'drop'" in line


@pytest.mark.usefixtures("no_engine")
def test_an_adapter_with_lora_disabled_is_refused(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    given = {"lora_local_path": str(tmp_path), "enable_lora": False}
    assert "lora_local_path names an adapter, but enable_lora is False" in refusal(
        capsys, "vllm", **given
    )
    CLASSES["vllm"].check_before_loading({"lora_local_path": str(tmp_path)})


@pytest.mark.usefixtures("no_engine")
def test_a_folder_that_is_no_adapter_is_refused(tmp_path: Path, capsys: Captured) -> None:
    line = refusal(capsys, "vllm", lora_local_path=str(tmp_path))
    assert "it has no adapter_config.json" in line


@pytest.mark.usefixtures("no_engine")
def test_an_adapter_that_sglang_would_not_apply_is_refused(capsys: Captured) -> None:
    assert "LoRA adapters are not applied" in refusal(capsys, "sglang", lora_paths=["x"])


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_unknown_quantization_is_refused_with_the_nearest_name(
    engine: str, capsys: Captured
) -> None:
    line = refusal(capsys, engine, quantization="awq_marln")
    assert "has no method 'awq_marln'. Did you mean 'awq_marlin'" in line
    CLASSES[engine].check_before_loading({"quantization": "awq_marlin"})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_engine_in_one_process_is_refused(
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
    fresh_process: OnlyEngine,
    capsys: Captured,
    gguf: Path,
) -> None:
    install(monkeypatch, "vllm")
    install(monkeypatch, engine)
    CLASSES["vllm"](pretrained=str(WEIGHTS))
    given = {"pretrained": str(gguf)} if engine == "llama-cpp" else {}
    line = refusal(capsys, engine, **given)
    assert f"an engine (vllm, {WEIGHTS}) already runs in this process" in line
    with pytest.raises(ConfigError, match="already runs in this process"):
        CLASSES[engine](**{"pretrained": str(WEIGHTS), **given})


def test_an_engine_that_did_not_start_does_not_count(
    monkeypatch: pytest.MonkeyPatch, create: Create
) -> None:
    install(monkeypatch, "vllm")

    def fail(**_: Any) -> None:
        raise RuntimeError("Engine core initialization failed.")

    monkeypatch.setattr(sys.modules["vllm"], "LLM", fail)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"vLLM could not load .*RuntimeError: Engine core"):
            CLASSES["vllm"](pretrained=str(WEIGHTS))


@pytest.mark.parametrize(
    ("engine", "package"), [("vllm", "vllm"), ("sglang", "sglang"), ("llama-cpp", "llama_cpp")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    engine: str, package: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a)
    )
    line = refusal(capsys, engine)
    assert f"needs the package '{package}', which is not installed" in line
    assert f"pip install -e '.[{engine}]' in the checkout of lm_eval" in line


@pytest.mark.usefixtures("no_engine")
def test_what_is_not_a_gguf_file_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert "there is no GGUF file" in refusal(capsys, "llama-cpp")
    other = shutil.copy(WEIGHTS / "model.safetensors", tmp_path)
    assert "is not a GGUF file" in refusal(capsys, "llama-cpp", pretrained=str(other))


@pytest.mark.usefixtures("no_engine")
def test_an_argument_that_llama_cpp_would_ignore_is_refused(gguf: Path, capsys: Captured) -> None:
    line = refusal(capsys, "llama-cpp", pretrained=str(gguf), n_thread=3)
    assert "llama.cpp has no argument 'n_thread'. Did you mean 'n_threads'" in line


@pytest.mark.parametrize(
    ("engine", "wrong", "right"),
    [("vllm", "enforce_eagr", "enforce_eager"), ("sglang", "log_leve", "log_level")],
)
def test_an_argument_that_the_engine_does_not_have_is_refused_with_the_nearest_name(
    engine: str, wrong: str, right: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    install(monkeypatch, engine)
    line = refusal(capsys, engine, **{wrong: 1})
    assert f"has no argument '{wrong}'. Did you mean '{right}'" in line


@pytest.mark.usefixtures("no_engine")
def test_more_engines_than_devices_are_refused(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_vllm.Platform, "on_cpu", False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    line = refusal(capsys, "vllm", data_parallel_size=2, tensor_parallel_size=2)
    assert "2 engines with 2 devices each need 4 devices; CUDA_VISIBLE_DEVICES=4,5,7 has 3" in line


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("count", "reason"), [(0, "must be 1 or more"), ("x", "an integer")])
def test_a_number_of_engines_that_is_none_is_refused(
    count: Any, reason: str, capsys: Captured
) -> None:
    assert reason in refusal(capsys, "vllm", data_parallel_size=count)


@pytest.mark.usefixtures("no_engine")
def test_experts_that_several_engines_would_have_to_share_are_refused(capsys: Captured) -> None:
    given = {"data_parallel_size": 2, "enable_expert_parallel": True}
    assert "Use tensor_parallel_size instead" in refusal(capsys, "vllm", **given)


@pytest.mark.usefixtures("no_engine")
def test_prompts_that_would_be_cut_on_the_right_are_refused(capsys: Captured) -> None:
    assert "must be 'left'" in refusal(capsys, "vllm", truncation_side="right")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_unknown_generation_setting_ends_a_run_in_one_line(
    engine: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured, gguf: Path
) -> None:
    install(monkeypatch, engine)
    more: dict[str, Any] = {"pretrained": str(gguf)} if engine == "llama-cpp" else {}
    words = ("--tasks", "demo_sums", "--gen_kwargs", "num_beams=2", "--limit", "2")
    line = refusal(capsys, engine, *words, **more)
    assert "has no 'num_beams'" in line
