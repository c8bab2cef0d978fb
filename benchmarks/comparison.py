"""What the benchmarks that compare harnesses have in common: texts, processes, and reports."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
LETTERS = "ABCD"
SHOTS, SUBJECTS = 5, 8
NAMES = ("Ann", "Otto", "Vera", "Karl", "Greta", "Tom", "Lena", "Hugo", "Dora", "Max")
THINGS = ("kite", "lamp", "ring", "boat", "bell", "map", "hat", "clock", "knife", "flute")
PLACES = ("tower", "garden", "church", "mill", "cellar", "school", "river", "barn", "forest")

Pairs = list[tuple[str, str]]
"""Contexts with their continuations, those of a document after each other."""

Rates = dict[str, list[float]]
"""For each client its rate in every round."""


# -- texts, made of words that the embedded model knows -------------------------------------------


class Questions:
    """Draws questions about people and places; `salt` decides about all of them."""

    def __init__(self, salt: str, lettered: bool) -> None:
        """Prepares questions whose choices are letters; or else texts, which are not listed."""
        self._draw = random.Random(salt)
        self._lettered = lettered

    def question(self, answered: bool) -> tuple[str, list[str]]:
        """Returns a question, with its answer if `answered`, and its choices."""
        draw = self._draw
        facts = [(draw.choice(NAMES), draw.choice(THINGS), draw.choice(PLACES)) for _ in range(4)]
        told = " ".join(f"{who} has a {what} and is in the {where}." for who, what, where in facts)
        places = [f"in the {where}" for _, _, where in facts]
        asked = draw.randrange(4)
        text = f"{told} Where is {facts[asked][0]}?\n"
        if self._lettered:
            listed = zip(LETTERS, places, strict=True)
            text += "".join(f"{letter}. {place}\n" for letter, place in listed)
        named = [what for _, what, _ in facts]
        choices = (
            [f" {letter}" for letter in LETTERS]
            if self._lettered
            else [f" {place} with the {what}" for place, what in zip(places, named, strict=True)]
        )
        answer = f"{choices[asked]}\n\n" if answered else ""
        return f"{text}Answer:{answer}", choices

    def pairs(self, documents: int, shots: int) -> Pairs:
        """Returns requests for questions after examples, which all of a subject share."""
        found: Pairs = []
        for _ in range(SUBJECTS):
            examples = "".join(self.question(True)[0] for _ in range(shots))
            for _ in range(documents // SUBJECTS):
                text, choices = self.question(False)
                found += [(examples + text, choice) for choice in choices]
        return found


def letters(documents: int, salt: str) -> Pairs:
    """Returns requests for questions with five examples and the choices A to D, like MMLU."""
    return Questions(salt, lettered=True).pairs(documents, SHOTS)


def texts(documents: int, salt: str, shots: int) -> Pairs:
    """Returns requests for questions whose choices are texts, like ARC."""
    return Questions(salt, lettered=False).pairs(documents, shots)


# -- processes and reports ------------------------------------------------------------------------


def measure(
    python: str,
    script: str,
    work: str,
    cache: Path,
    ours: bool,
    variables: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """Returns what `python script --measure work` prints as JSON.

    `options` are passed as `--name=value`. Only our measurements may import our package, which
    PYTHONPATH may contain.
    """
    words = [f"--{name}={value}" for name, value in options.items()]
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if ours:
        inherited["PYTHONPATH"] = str(HERE)
    own = {"HF_HUB_OFFLINE": "1", "LMEVAL_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [python, str(Path(script).resolve()), "--measure", work, *words],
        capture_output=True,
        text=True,
        cwd=cache,
        env={**inherited, **own, **(variables or {})},
        check=False,
    )
    if done.returncode:
        sys.exit(f"The measurement {work} failed under {python}:\n{done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])  # vLLM writes its log to stdout, too


def load() -> str:
    """Returns the number of processes that wanted to run in the last minute, as text."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def report(rates: Rates, unit: str, references: list[str]) -> None:
    """Prints the median rate of each client, and the median ratio to others of the same round."""
    for name, values in rates.items():
        ratios = []
        for reference in references:
            same_round = zip(values, rates[reference], strict=True)
            ratio = statistics.median(value / other for value, other in same_round)
            ratios.append(f"{ratio:5.2f} × {reference.partition(',')[0]}")
        rounds = ", ".join(f"{value:.4g}" for value in values)
        rate = statistics.median(values)
        print(f"{name:29} {rate:7.1f} {unit}   {'   '.join(ratios)}   ({rounds})", flush=True)
