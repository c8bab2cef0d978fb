"""Generates AGIEval's YAML files: one task per exam, and their groups.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

CHINESE = [
    "gaokao_biology",
    "gaokao_chemistry",
    "gaokao_chinese",
    "gaokao_geography",
    "gaokao_history",
    "gaokao_mathcloze",
    "gaokao_mathqa",
    "gaokao_physics",
    "jec_qa_ca",
    "jec_qa_kd",
    "logiqa_zh",
]
ENGLISH = [
    "aqua_rat",
    "gaokao_english",
    "logiqa_en",
    "lsat_ar",
    "lsat_lr",
    "lsat_rc",
    "math",
    "sat_en_without_passage",
    "sat_en",
    "sat_math",
]
#: Exams whose answers are generated; all others are multiple choice.
WRITTEN = ("gaokao_mathcloze", "math")


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {f"{name.replace('_', '-')}.yaml": _member(name) for name in CHINESE + ENGLISH}
    nous = [name for name in ENGLISH if name not in (*WRITTEN, "gaokao_english")]
    for group, members, metric in (
        ("agieval", CHINESE + ENGLISH, "acc"),
        ("agieval_cn", CHINESE, "acc"),
        ("agieval_en", ENGLISH, "acc"),
        ("agieval_nous", nous, "acc_norm"),
    ):
        listed = "".join(f"  - agieval_{name}\n" for name in members)
        made[f"{group}.yaml"] = (
            f"group: {group}\ntask:\n{listed}aggregate_metric_list:\n  - metric: {metric}\n"
            "metadata:\n  version: 0.0\n"
        )
    return made


def _member(name: str) -> str:
    """Returns the task file of one exam."""
    base = "_written.yaml" if name in WRITTEN else "_choice.yaml"
    path = f"hails/agieval-{name.replace('_', '-')}"
    return f"include: {base}\ntask: agieval_{name}\ndataset_path: {path}\n"
