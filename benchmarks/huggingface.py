"""Measures time and peak memory of the Hugging Face backend, compared with the published harness.

usage: python benchmarks/huggingface.py [PUBLISHED_VENV] [--data FOLDER] [--tokenizer FOLDER]
                                        [--batch N] [--only NAME …] [--rounds N]

Both harnesses get the same requests, made from real datasets. The model is a randomly initialized
Llama of 13 million parameters in float32, on one CPU core (set OMP_NUM_THREADS for more). The data
are Parquet files, named as on the hub (`<org>/<name>/<config>/<split>.parquet`), by default in
../shared/data. Each measurement runs in a new process. Ours runs with its defaults, the published
harness with batch size N.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
LETTERS = "ABCD"
MAX_LENGTH = 2048


# -- the requests, which are the same for both harnesses ------------------------------------------


def rows(data: Path, path: str) -> list[dict[str, Any]]:
    """Returns the rows of a Parquet file below the folder `data`."""
    import pyarrow.parquet

    return pyarrow.parquet.read_table(data / f"{path}.parquet").to_pylist()


def question(row: dict[str, Any], answered: bool) -> str:
    """Returns an MMLU question with its lettered choices, and with its answer if `answered`."""
    choices = "".join(f"{x}. {c}\n" for x, c in zip(LETTERS, row["choices"], strict=True))
    answer = f" {LETTERS[row['answer']]}\n\n" if answered else ""
    return f"{row['question'].strip()}\n{choices}Answer:{answer}"


def letters(data: Path, common: bool) -> list[tuple[Any, ...]]:
    """Returns requests for 300 MMLU questions with five examples and one-letter choices.

    With `common`, all prompts have the same examples, and so the same prefix.
    """
    test = rows(data, "cais/mmlu/high_school_psychology/test")
    shots = rows(data, "cais/mmlu/professional_psychology/test")[:200]
    rng = random.Random(0)
    requests = []
    for row in test[:300]:
        own = shots[:5] if common else rng.sample(shots, 5)
        prompt = "".join(question(shot, True) for shot in own) + question(row, False)
        requests += [(prompt, f" {letter}") for letter in LETTERS]
    return requests


def endings(data: Path) -> list[tuple[Any, ...]]:
    """Returns requests for 300 HellaSwag documents without examples, four endings each."""
    found = rows(data, "Rowan/hellaswag/default/validation")[:300]
    return [(row["ctx"], f" {ending}") for row in found for ending in row["endings"]]


def texts(data: Path) -> list[tuple[Any, ...]]:
    """Returns requests for the perplexity of ten WikiText pages."""
    return [(row["page"],) for row in rows(data, TEXTS)[:10]]


TEXTS = "EleutherAI/wikitext_document_level/wikitext-2-raw-v1/test"


def sums(data: Path) -> list[tuple[Any, ...]]:
    """Returns generation requests for 40 GSM8K problems with two examples each, 64 new tokens."""
    test, train = (rows(data, f"openai/gsm8k/main/{split}") for split in ("test", "train"))
    rng = random.Random(0)
    requests = []
    for row in test[:40]:
        shots = rng.sample(train[:200], 2)
        solved = "".join(f"Question: {s['question']}\nAnswer: {s['answer']}\n\n" for s in shots)
        settings = {"until": ["Question:", "</s>"], "do_sample": False, "max_gen_toks": 64}
        requests.append((f"{solved}Question: {row['question']}\nAnswer:", settings))
    return requests


WORK: dict[str, tuple[str, str, Any]] = {
    "letters-common": ("loglikelihood", "5-shot letters, one prefix", lambda d: letters(d, True)),
    "letters-random": ("loglikelihood", "5-shot letters, own prefix", lambda d: letters(d, False)),
    "endings": ("loglikelihood", "0-shot HellaSwag endings", endings),
    "texts": ("loglikelihood_rolling", "WikiText, rolling", texts),
    "sums": ("generate_until", "2-shot GSM8K, 64 tokens", sums),
}


# -- one measurement ----------------------------------------------------------------------------


def measure(name: str, data: Path, tokenizer: str, batch: str) -> None:
    """Runs one workload with whichever `lm_eval` is installed.

    Prints, as JSON, the seconds in the model, the peak memory in MB and the answers.
    """
    import logging

    logging.disable(logging.WARNING)
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    words = transformers.AutoTokenizer.from_pretrained(tokenizer)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    kind, _, make = WORK[name]
    requests = [Instance(kind, {}, args, i, (name, i, 1)) for i, args in enumerate(make(data))]
    lm = HFLM(pretrained=model, tokenizer=words, batch_size=batch)
    # Model time is the time after tokenization. Ours overlaps the two, so both are counted for it.
    inner = kind
    if batch != "auto" and kind != "generate_until":
        inner = "_loglikelihood_tokens"
    spent, plain = [0.0], getattr(lm, inner)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        answers = plain(*args, **kwargs)
        spent[0] += time.perf_counter() - start
        return answers

    setattr(lm, inner, timed)
    answers = getattr(lm, kind)(requests)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"model_s": spent[0], "peak_mb": peak, "answers": answers}))


def run(python: str, name: str, arguments: argparse.Namespace, batch: str) -> dict[str, Any]:
    """Runs one workload under the interpreter `python`; returns what `measure` prints."""
    command = [python, str(Path(__file__).resolve()), "--measure", name, "--batch", batch]
    command += ["--data", str(arguments.data), "--tokenizer", arguments.tokenizer]
    quiet = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **quiet}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd="/", env=environment, check=False
    )
    if done.returncode:
        sys.exit(f"The workload {name} failed under {python}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def distance(one: list[Any], two: list[Any]) -> str:
    """Returns, as text, how much two lists of answers differ."""
    if isinstance(one[0], str):
        same = sum(a == b for a, b in zip(one, two, strict=True))
        return f"{same} of {len(one)} texts equal"
    first = [a[0] if isinstance(a, list) else a for a in one]
    second = [b[0] if isinstance(b, list) else b for b in two]
    return f"answers within {max(abs(a - b) for a, b in zip(first, second, strict=True)):.1e}"


def main() -> None:
    parser = argparse.ArgumentParser()
    published = str(HERE / ".venv" / "published")
    parser.add_argument(
        "published", nargs="?", default=published, help="virtual environment to compare with"
    )
    data, tokenizer = HERE.parent / "shared/data", HERE.parent / "shared/tokenizers/smollm2"
    parser.add_argument("--data", type=Path, default=data, help="folder of Parquet files")
    parser.add_argument("--tokenizer", default=str(tokenizer), help="folder of a tokenizer")
    parser.add_argument("--batch", default="16", help="the published harness's batch size")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each workload")
    parser.add_argument(
        "--only", nargs="*", choices=list(WORK), default=list(WORK), help="workloads to run"
    )
    parser.add_argument("--measure", choices=list(WORK), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.data, arguments.tokenizer, arguments.batch)
        return
    published = str(Path(arguments.published).resolve() / "bin" / "python")
    for name in arguments.only:
        theirs, ours = [], []
        for _ in range(arguments.rounds):  # alternately, so that noise affects both alike
            theirs.append(run(published, name, arguments, arguments.batch))
            ours.append(run(sys.executable, name, arguments, "auto"))
        model = [statistics.median(r["model_s"] for r in found) for found in (theirs, ours)]
        peak = [max(r["peak_mb"] for r in found) for found in (theirs, ours)]
        print(
            f"{WORK[name][1]:27} published {model[0]:6.1f} s {peak[0]:5.0f} MB   "
            f"ours {model[1]:6.1f} s {peak[1]:5.0f} MB   {model[0] / model[1]:.1f} times faster, "
            f"memory 1/{peak[0] / peak[1]:.1f}, "
            f"{distance(theirs[0]['answers'], ours[0]['answers'])}",
            flush=True,
        )


if __name__ == "__main__":
    main()
