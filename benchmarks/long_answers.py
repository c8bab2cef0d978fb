"""Checks that a run of long answers survives kills: finished answers are not generated again.

usage: python benchmarks/long_answers.py [--kills N] [--documents N] [--repeats N]

A small transformers model, made here, writes random letters: answers of up to 2,000 tokens, about
700 on average, several to each document. The run is ended by SIGKILL whenever some more answers are
finished, and started again. Printed is how many answers were generated twice, and whether the
answers are those of a run that was not disturbed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

WEIGHTS = Path(__file__).parents[1] / "lm_eval" / "models" / "demo" / "weights"
LONGEST, MEAN = 2000, 900
#: Logs each finished answer, by its prompt and the number of its repeat.
SCRIPT = """
import os, sys
from lm_eval.models.conventions import repeat_numbers
from lm_eval.models.huggingface import HFLM
from lm_eval.models.huggingface.answering import Generator

log = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
plain = Generator.answer

def logged(self, requests, in_order=True):
    numbers = {}
    for request in {id(one): one for one in requests}.values():
        places = [i for i, one in enumerate(requests) if one is request]
        numbers |= dict(zip(places, repeat_numbers([request] * len(places))))
    for i, answer in plain(self, requests, in_order):
        yield i, answer  # the caller reports the answer before it asks for the next one
        os.write(log, f"{requests[i].args[0]} {numbers[i]}\\n".encode())

Generator.answer = logged
from lm_eval.cli import main
sys.exit(main(sys.argv[1:]))
"""


def write_model(folder: Path) -> None:
    """Writes a model of one layer that draws letters, and ends with a probability of 1 in `MEAN`.

    It has the tokenizer of the embedded model.
    """
    from safetensors.numpy import load_file, save_file

    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((WEIGHTS / name).read_bytes())
    config = json.loads((WEIGHTS / "config.json").read_text(encoding="utf-8"))
    config |= {
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "max_position_embeddings": 4096,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    vocabulary = json.loads((WEIGHTS / "tokenizer.json").read_text())["model"]["vocab"]
    given = load_file(WEIGHTS / "model.safetensors")
    made = {
        name: np.ones(one.shape, np.float32) if "norm" in name else np.zeros(one.shape, np.float32)
        for name, one in given.items()
        if ".layers." not in name or ".layers.0." in name
    }
    size, width = made["model.embed_tokens.weight"].shape
    made["model.embed_tokens.weight"][:, 0] = 1.0
    head = np.zeros((size, width), np.float32)
    scale = math.sqrt(width)  # what the norm makes of the only number that is not 0
    for letter in "abcdefghijklmnopqrstuvwxyz":
        head[vocabulary[letter], 0] = 30 / scale
    head[config["eos_token_id"], 0] = (30 + math.log(26 / MEAN)) / scale
    made["lm_head.weight"] = head
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})


def write_task(folder: Path, documents: int) -> None:
    """Writes the task `letters`, whose documents ask for letters."""
    folder.mkdir()
    rows = (json.dumps({"prompt": f"Letters-{number}:"}) for number in range(documents))
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "letters.yaml").write_text(
        f"""task: letters
dataset_path: json
dataset_kwargs: {{data_files: {{test: rows.jsonl}}}}
test_split: test
doc_to_text: "{{{{prompt}}}}"
doc_to_target: a
generation_kwargs: {{until: [], max_gen_toks: {LONGEST}, do_sample: true, temperature: 1.0}}
""",
        encoding="utf-8",
    )


class Trial:
    """One evaluation: its output folder, and a log of the answers that the model has finished."""

    def __init__(self, folder: Path, name: str, repeats: int) -> None:
        self.folder, self.out, self.log = folder, folder / name, folder / f"{name}.log"
        self.repeats = repeats

    def start(self, **streams: Any) -> subprocess.Popen[bytes]:
        """Starts the evaluation in a new process."""
        words = ["run", "--model", "hf", "--tasks", "letters", "--include_path"]
        words += [str(self.folder / "tasks"), "--output_path", str(self.out), "--log_samples"]
        words += ["--repeats", str(self.repeats), "--device", "cpu", "--gen_kwargs", "top_k=0"]
        words += ["--model_args", f"pretrained={self.folder / 'model'},dtype=float32"]
        variables = {**os.environ, "NOTES": str(self.log), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([sys.executable, "-c", SCRIPT, *words], env=variables, **streams)

    def finished(self) -> list[str]:
        """Returns the answers that were finished, as `prompt repeat`."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def answers(self) -> list[Any]:
        """Returns the answers in the sample log."""
        (log,) = self.out.rglob("samples_letters_*.jsonl")
        return [json.loads(line)["resps"] for line in log.read_text().splitlines()]


def main() -> None:
    """Runs the evaluation undisturbed and with kills; prints what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--documents", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--show", action="store_true", help="run once, with its progress bar")
    given = parser.parse_args()
    total = given.documents * given.repeats
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_model(folder / "model")
        write_task(folder / "tasks", given.documents)
        calm = Trial(folder, "calm", given.repeats)
        assert calm.start(**({} if given.show else quiet)).wait() == 0
        if given.show:
            return
        trial, kills = Trial(folder, "killed", given.repeats), 0
        while kills < given.kills:
            process, before = trial.start(**quiet), len(trial.finished())
            goal = before + max(1, (total - before) // (given.kills - kills + 1))
            while len(trial.finished()) < goal and process.poll() is None:
                time.sleep(0.002)
            assert process.poll() is None, "the run ended before it was killed"
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        assert trial.start(**quiet).wait() == 0
        counts = Counter(trial.finished())
        again = sum(counts.values()) - len(counts)
        lengths = [len(one) for doc in calm.answers() for one in doc[0]]
        print(
            f"{total} answers of {min(lengths)} to {max(lengths)} tokens (mean "
            f"{np.mean(lengths):.0f}), {kills} kills: {len(counts)} answered, {again} finished "
            f"answers generated again; answers equal those of an undisturbed run: "
            f"{trial.answers() == calm.answers()}"
        )


if __name__ == "__main__":
    main()
