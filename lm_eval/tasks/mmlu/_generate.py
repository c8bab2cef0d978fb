"""Write MMLU's member files: 57 subjects, each asked in six ways, and their groups.

What the subjects share of a way stands in `_default.yaml` and its like. Run by
`tools/generate_tasks.py`.
"""

from __future__ import annotations

from typing import NamedTuple

CATEGORIES = {
    "stem": """abstract_algebra anatomy astronomy college_biology college_chemistry
        college_computer_science college_mathematics college_physics computer_security
        conceptual_physics electrical_engineering elementary_mathematics high_school_biology
        high_school_chemistry high_school_computer_science high_school_mathematics
        high_school_physics high_school_statistics machine_learning""",
    "other": """business_ethics clinical_knowledge college_medicine global_facts human_aging
        management marketing medical_genetics miscellaneous nutrition professional_accounting
        professional_medicine virology""",
    "social_sciences": """econometrics high_school_geography high_school_government_and_politics
        high_school_macroeconomics high_school_microeconomics high_school_psychology
        human_sexuality professional_psychology public_relations security_studies sociology
        us_foreign_policy""",
    "humanities": """formal_logic high_school_european_history high_school_us_history
        high_school_world_history international_law jurisprudence logical_fallacies
        moral_disputes moral_scenarios philosophy prehistory professional_law world_religions""",
}


class Way(NamedTuple):
    """One way of asking: its group, what the group shows, and how its tasks and tags are called."""

    group: str
    alias: str
    task: str
    tag: str
    shows_subject: bool
    metric: str
    version: int

    @property
    def folder(self) -> str:
        return self.group.removeprefix("mmlu_")


ACC = "- metric: acc\n"
WAYS = (
    Way(
        "mmlu_continuation",
        "mmlu (continuation)",
        "mmlu_{}_continuation",
        "mmlu_{}_continuation",
        False,
        ACC,
        2,
    ),
    Way(
        "mmlu_generative",
        "mmlu (generative)",
        "mmlu_{}_generative",
        "mmlu_{}_generative",
        True,
        "- metric: exact_match\n  filter_list: get_response\n",
        3,
    ),
    *(
        Way(
            f"mmlu_flan_{way}",
            f"mmlu (flan style, {alias})",
            f"mmlu_flan_{way}_{{}}",
            f"mmlu_flan_{way}_{{}}",
            False,
            ACC,
            2,
        )
        for way, alias in (
            ("cot_zeroshot", "zeroshot cot"),
            ("n_shot_generative", "generative"),
            ("n_shot_loglikelihood", "loglikelihood"),
        )
    ),
)
DEFAULT = Way("mmlu_default", "", "mmlu_{}", "mmlu_{}_tasks", True, ACC, 2)


def files() -> dict[str, str]:
    made = {
        f"{way.folder}/{subject}.yaml": _member(way, subject, category)
        for way in (DEFAULT, *WAYS)
        for category, subjects in CATEGORIES.items()
        for subject in subjects.split()
    }
    made |= {f"{way.group}.yaml": _group(way) for way in WAYS}
    made["mmlu.yaml"] = _named_group("mmlu", [f"mmlu_{category}" for category in CATEGORIES])
    for category in CATEGORIES:
        alias = f"group_alias: {category.replace('_', ' ')}\n"
        made[f"mmlu_{category}.yaml"] = _named_group(
            f"mmlu_{category}", [f"mmlu_{category}_tasks"], alias
        )
    return made


def _member(way: Way, subject: str, category: str) -> str:
    alias = f"task_alias: {subject}\n" if way.shows_subject else ""
    return (
        f"include: ../_{way.folder}.yaml\ntask: {way.task.format(subject)}\n{alias}"
        f"tag: {way.tag.format(category)}\ndataset_name: {subject}\n"
    )


def _named_group(name: str, members: list[str], alias: str = "") -> str:
    listed = "".join(f"  - {member}\n" for member in members)
    return (
        f"group: {name}\n{alias}task:\n{listed}aggregate_metric_list:\n{_indented(ACC, 2)}"
        f"metadata:\n  version: {DEFAULT.version}\n"
    )


def _group(way: Way) -> str:
    """The four categories are groups of their own inside."""
    members = "".join(
        f"  - group: {category.replace('_', ' ')}\n    task: [{way.tag.format(category)}]\n"
        f"    aggregate_metric_list:\n{_indented(way.metric, 6)}"
        for category in CATEGORIES
    )
    return (
        f"group: {way.group}\ngroup_alias: {way.alias}\ntask:\n{members}"
        f"aggregate_metric_list:\n{_indented(way.metric, 2)}metadata:\n  version: {way.version}\n"
    )


def _indented(text: str, spaces: int) -> str:
    return "".join(" " * spaces + line for line in text.splitlines(keepends=True))
