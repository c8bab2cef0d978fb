"""Generates MMLU-Pro's YAML files: one task per category, and their group.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

CATEGORIES = [
    "biology",
    "business",
    "chemistry",
    "computer_science",
    "economics",
    "engineering",
    "health",
    "history",
    "law",
    "math",
    "other",
    "philosophy",
    "physics",
    "psychology",
]


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {
        f"mmlu_pro_{name}.yaml": (
            f"include: _default_template_yaml\ntask: mmlu_pro_{name}\ntask_alias: {name}\n"
            f"process_docs: !function utils.process_{name}\n"
        )
        for name in CATEGORIES
    }
    members = "".join(f"  - mmlu_pro_{name}\n" for name in CATEGORIES)
    made["_mmlu_pro.yaml"] = (
        f"group: mmlu_pro\ntask:\n{members}aggregate_metric_list:\n  - metric: exact_match\n"
        "    filter_list: custom-extract\nmetadata:\n  version: 2.0\n"
    )
    return made
