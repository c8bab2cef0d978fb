"""Generates the YAML files of the Open LLM Leaderboard v2. Run by `tools/generate_tasks.py`.

Its BBH tasks have the same questions as ours (`../bbh/_tasks`), but as multiple choice.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

import yaml

BBH = Path(__file__).parents[1] / "bbh" / "_tasks"
YES_NO = ["Yes", "No"]
#: The choices of each BBH task; a number n stands for the first n letters: (A), (B) …
CHOICES: dict[str, list[str] | int] = {
    "boolean_expressions": ["False", "True"],
    "causal_judgement": YES_NO,
    "date_understanding": 6,
    "disambiguation_qa": 3,
    "formal_fallacies": ["valid", "invalid"],
    "geometric_shapes": 11,
    "hyperbaton": 2,
    "logical_deduction_five_objects": 5,
    "logical_deduction_seven_objects": 7,
    "logical_deduction_three_objects": 3,
    "movie_recommendation": 6,
    "navigate": YES_NO,
    "object_counting": [str(number) for number in range(19)],
    "penguins_in_a_table": 5,
    "reasoning_about_colored_objects": 18,
    "ruin_names": 6,
    "salient_translation_error_detection": 6,
    "snarks": 2,
    "sports_understanding": ["yes", "no"],
    "temporal_sequences": 4,
    "tracking_shuffled_objects_five_objects": 5,
    "tracking_shuffled_objects_seven_objects": 7,
    "tracking_shuffled_objects_three_objects": 3,
    "web_of_lies": YES_NO,
}
MATH = {
    "algebra": "algebra",
    "counting_and_prob": "counting_and_probability",
    "geometry": "geometry",
    "intermediate_algebra": "intermediate_algebra",
    "num_theory": "number_theory",
    "prealgebra": "prealgebra",
    "precalculus": "precalculus",
}
GPQA = ("diamond", "extended", "main")
MUSR = ("murder_mysteries", "object_placements", "team_allocation")


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {f"bbh_mc/{task}.yaml": _bbh(task, choices) for task, choices in CHOICES.items()}
    made["bbh_mc/_leaderboard_bbh.yaml"] = _group("bbh", [f"bbh_{t}" for t in CHOICES], "acc_norm")
    for name, config in MATH.items():
        made[f"math/math_{name}.yaml"] = _member(f"math_{name}_hard", f"dataset_name: {config}")
    made["math/_leaderboard_math.yaml"] = _group(
        "math_hard", [f"math_{name}_hard" for name in MATH], "exact_match"
    )
    for name in GPQA:
        made[f"gpqa/gpqa_{name}_zeroshot.yaml"] = _member(
            f"gpqa_{name}", f"dataset_name: gpqa_{name}"
        )
    made["gpqa/_leaderboard_gpqa.yaml"] = _group("gpqa", [f"gpqa_{n}" for n in GPQA], "acc_norm")
    for name in MUSR:
        made[f"musr/musr_{name}.yaml"] = _member(f"musr_{name}", f"test_split: {name}")
    made["musr/_musr.yaml"] = _group("musr", [f"musr_{n}" for n in MUSR], "acc_norm")
    return made


def _member(name: str, line: str) -> str:
    """Returns a task file that includes `base` and adds one `line`."""
    return f"include: _template_yaml\ntask: leaderboard_{name}\n{line}\n"


def _group(name: str, members: list[str], metric: str) -> str:
    """Returns a group file."""
    listed = "".join(f"  - leaderboard_{member}\n" for member in members)
    return (
        f"group: leaderboard_{name}\ntask:\n{listed}aggregate_metric_list:\n  - metric: {metric}\n"
    )


def _bbh(task: str, choices: list[str] | int) -> str:
    """Returns the file of one BBH task; its description comes from our file of the same task."""
    if isinstance(choices, int):
        choices = [f"({letter})" for letter in string.ascii_uppercase[:choices]]
    description = yaml.safe_load((BBH / f"{task}.yaml").read_text("utf-8"))["description"].rstrip()
    return (
        f"include:\n  - _bbh.yaml\n  - ../../bbh/_tasks/{task}.yaml\n"
        f"task: leaderboard_bbh_{task}\ndescription: {json.dumps(description)}\n"
        f"doc_to_choice: {json.dumps(choices)}\n"
    )
