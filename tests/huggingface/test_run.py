"""Tests whole runs: by command, in several processes, with adapters and delta weights."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.models.demo.model import WEIGHTS
from tests.huggingface.conftest import Make, ask, torch

pytestmark = pytest.mark.slow

TASKS = ["demo_choice", "demo_stories"]
LONGEST = 64


@pytest.fixture(scope="module")
def alone() -> Any:
    options = {"pretrained": str(WEIGHTS), "dtype": "float32", "max_length": LONGEST}
    return lm_eval.simple_evaluate("hf", options, TASKS, limit=12, device="cpu")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def scores(results: Any) -> dict[str, float]:
    return {
        f"{task}/{key}": value
        for task in TASKS
        for key, value in results["results"][task].items()
        if isinstance(value, float) and "stderr" not in key
    }


def test_a_run_scores_what_the_numpy_model_scores(alone: Any) -> None:
    expected: Any = lm_eval.simple_evaluate("demo", {"max_length": LONGEST}, TASKS, limit=12)
    assert scores(alone) == pytest.approx(scores(expected), rel=1e-4)
    assert alone["config"]["model_num_parameters"] > 100_000
    for key in ("truncated_requests", "failed_requests"):
        assert alone[key] == expected[key]
    assert alone["usage"]["tokens_in"] == expected["usage"]["tokens_in"]


def two_processes() -> list[str]:
    """Returns a command prefix that starts two processes, as `accelerate launch` does on two GPUs.

    (On a CPU, `accelerate launch` starts only one process.)
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    return [*launcher, "--master_port", str(free_port())]


def test_processes_started_together_share_the_work_and_give_one_result(
    alone: Any, tmp_path: Path
) -> None:
    command = [*two_processes(), "-m", "lm_eval", "run", "--model", "hf"]
    arguments = f"pretrained={WEIGHTS},dtype=float32,max_length={LONGEST}"
    command += ["--model_args", arguments, "--limit", "12"]
    command += ["--tasks", ",".join(TASKS), "--output_path", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(file.read_text())
    assert scores(results) == pytest.approx(scores(alone), rel=1e-5)
    # Both processes' tokens; what is shared between the halves is computed in either.
    assert results["usage"]["tokens_in"] == alone["usage"]["tokens_in"]
    assert 0 < results["usage"]["tokens_shared"] <= alone["usage"]["tokens_shared"]
    assert results["truncated_requests"] == alone["truncated_requests"] == {"demo_choice": 48}
    assert done.stdout.count("byte_perplexity") == 1  # one table
    assert done.stderr.count("demo_choice: 24 requests are longer") == 2  # both had a half


SCRIPT = """
import accelerate
from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model


@register_model("own_dist")
class Own(LM):
    def __init__(self, steps=1, batch_size=1, device="cuda", **kwargs):
        super().__init__()
        accelerator = accelerate.Accelerator()
        if accelerator.num_processes > 1:
            self.accelerator = accelerator
            self._rank = accelerator.local_process_index
            self._world_size = accelerator.num_processes
        self.device, self.batch_size, self.steps = device, int(batch_size), steps

    def loglikelihood(self, requests):
        numbered = [(sum(map(ord, "".join(request.args))), request) for request in requests]
        asked = f"asked {len(requests)} {self.device} {self.batch_size} {self.steps}\\n"
        print(asked, end="", flush=True)  # in one piece: another process prints too
        return [(-float(number * self.steps % 97), False) for number, _ in numbered]

    def loglikelihood_rolling(self, requests):
        pass

    def generate_until(self, requests):
        return [request.args[0].split()[-1] for request in requests]


if __name__ == "__main__":
    cli_evaluate()
"""


def test_a_script_with_a_class_of_its_own_runs_in_several_processes(tmp_path: Path) -> None:
    """As in research code: the class sets rank and world size, and the script passes it on."""
    script = tmp_path / "own.py"
    script.write_text(SCRIPT)
    options = ["--model", "own_dist", "--model_args", "steps=3", "--batch_size", "4"]
    options += ["--device", "cpu", "--tasks", "demo_choice,demo_sums", "--limit", "9"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    found = []
    for count, command in ((1, [sys.executable]), (2, two_processes())):
        out = tmp_path / f"out{count}"
        done = subprocess.run(
            [*command, str(script), *options, "--output_path", str(out)],
            capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told = sorted(line for line in done.stdout.splitlines() if line.startswith("asked"))
        assert told == [f"asked {36 // count} cpu 4 3"] * count
        (file,) = out.rglob("results_*.json")
        found.append(json.loads(file.read_text())["results"])
    assert found[0] == found[1]
    wrong = subprocess.run(
        [sys.executable, str(script), "--model", "own_dist", "--tasks", "demo_chioce"],
        capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert wrong.returncode == 2
    assert "demo_choice" in wrong.stderr


def test_processes_that_hold_parts_of_a_model_ask_the_same_and_give_one_result(
    alone: Any, tmp_path: Path
) -> None:
    """Also in a second run, when one process has all answers stored and the others have none."""
    command = [*two_processes(), "-m", "lm_eval", "run", "--model", "hf"]
    arguments = f"pretrained={WEIGHTS},dtype=float32,max_length={LONGEST},tp_plan=auto"
    command += ["--model_args", arguments, "--device", "cpu", "--limit", "12"]
    command += ["--tasks", "demo_choice", "--output_path", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("acc_norm") == 1
    for file in (tmp_path / "out").rglob("results_*.json"):
        found = json.loads(file.read_text())["results"]["demo_choice"]
        for metric in ("acc,none", "acc_norm,none"):
            assert found[metric] == alone["results"]["demo_choice"][metric]


def test_an_adapter_changes_the_answers_and_shares_prefixes(
    llama: Any, make_lm: Make, tmp_path: Path, tokenizer: Any
) -> None:
    peft = pytest.importorskip("peft")
    from lm_eval.models.huggingface import HFLM

    base = tmp_path / "base"
    llama.save_pretrained(base)
    tokenizer.save_pretrained(base)
    torch.manual_seed(1)
    fresh = type(llama).from_pretrained(base)
    config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(fresh, config)
    adapted.save_pretrained(tmp_path / "adapter")
    lm = HFLM(pretrained=str(base), peft=str(tmp_path / "adapter"), device="cpu")
    assert lm.execution_modes.prefix_sharing
    asked = [ask("loglikelihood", "Tom has", f" {w}") for w in ("three", "four apples")]
    found = lm.loglikelihood(asked)
    plain = HFLM(pretrained=str(base), device="cpu").loglikelihood(asked)
    expected = HFLM(pretrained=adapted.merge_and_unload(), tokenizer=tokenizer).loglikelihood(asked)
    assert [a for a, _ in found] == pytest.approx([b for b, _ in expected], abs=1e-3)
    assert [a for a, _ in found] != pytest.approx([b for b, _ in plain], abs=1e-3)


def test_a_difference_is_added_to_the_weights(llama: Any, tmp_path: Path, tokenizer: Any) -> None:
    from lm_eval.errors import ModelError
    from lm_eval.models.huggingface import HFLM

    base, delta = tmp_path / "base", tmp_path / "delta"
    llama.save_pretrained(base)
    tokenizer.save_pretrained(base)
    other = type(llama).from_pretrained(base)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(0.5)
    other.save_pretrained(delta)
    lm = HFLM(pretrained=str(base), delta=str(delta), device="cpu")
    for name, weight in lm.model.state_dict().items():
        torch.testing.assert_close(weight, llama.state_dict()[name] * 1.5)
    small = type(llama)(type(llama.config)(**{**llama.config.to_dict(), "intermediate_size": 16}))
    small.save_pretrained(tmp_path / "small")
    with pytest.raises(ModelError, match="belong to another model"):
        HFLM(pretrained=str(base), delta=str(tmp_path / "small"), device="cpu")


def test_a_model_split_over_devices_answers_alike(
    llama: Any, make_lm: Make, tmp_path: Path, tokenizer: Any
) -> None:
    from lm_eval.models.huggingface import HFLM

    llama.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    asked = [ask("loglikelihood", "Tom has", f" {w}") for w in ("three", "four apples")]
    split = HFLM(pretrained=str(tmp_path), device="cpu", device_map="auto")
    found, expected = split.loglikelihood(asked), make_lm().loglikelihood(asked)
    assert [a for a, _ in found] == pytest.approx([b for b, _ in expected], abs=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_weights_are_asked_for_by_name(
    bits: int, llama: Any, tokenizer: Any, tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    from lm_eval.models.huggingface import HFLM

    llama.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    lm = HFLM(pretrained=str(tmp_path), device="cpu", **{f"load_in_{bits}bit": True})
    assert str(bits) in type(lm.model.model.layers[0].self_attn.q_proj).__name__
    asked = [ask("loglikelihood", "Tom has", f" {word}") for word in ("three", "four")]
    close = HFLM(pretrained=llama, tokenizer=tokenizer).loglikelihood(asked)
    for (found, _), (true, _) in zip(lm.loglikelihood(asked), close, strict=True):
        assert found == pytest.approx(true, rel=0.3)
        assert found != true


def test_switches_of_quantisation_become_the_object_that_transformers_wants() -> None:
    from lm_eval.models.huggingface.loading import with_quantization_config

    given = {"load_in_4bit": True, "bnb_4bit_compute_dtype": "bfloat16", "revision": "main"}
    made = with_quantization_config(given)
    assert set(made) == {"quantization_config", "revision"}
    assert made["quantization_config"].bnb_4bit_compute_dtype == torch.bfloat16
    assert with_quantization_config({"load_in_8bit": False, "revision": "main"}) == {
        "revision": "main"
    }
