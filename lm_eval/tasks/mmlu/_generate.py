"""Generates MMLU's YAML files: 57 subjects, each in six prompting styles, and their groups.

What the subjects of a style share is in the template in its folder. Run by
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


class Style(NamedTuple):
    """A prompting style and its group.

    `folder` is the folder of the style's files, and `template` the file in it that all subjects
    include. `alias` is the group's name in tables. `task` and `tag` are format strings that make
    the names of tasks (from a subject) and tags (from a category). With `shows_subject`, tables
    show the subject instead of the task's name. `metric` is YAML text. `version` is that of the
    group.
    """

    folder: str
    template: str
    group: str
    alias: str
    task: str
    tag: str
    shows_subject: bool
    metric: str
    version: int


ACC = "- metric: acc\n"
STYLES = (
    Style(
        "continuation",
        "_continuation_template_yaml",
        "mmlu_continuation",
        "mmlu (continuation)",
        "mmlu_{}_continuation",
        "mmlu_{}_continuation",
        False,
        ACC,
        2,
    ),
    Style(
        "generative",
        "_default_template_yaml",
        "mmlu_generative",
        "mmlu (generative)",
        "mmlu_{}_generative",
        "mmlu_{}_generative",
        True,
        "- metric: exact_match\n  filter_list: get_response\n",
        3,
    ),
    *(
        Style(
            f"flan_{folder}",
            f"_mmlu_flan_{template}_template_yaml",
            f"mmlu_flan_{style}",
            f"mmlu (flan style, {alias})",
            f"mmlu_flan_{style}_{{}}",
            f"mmlu_flan_{style}_{{}}",
            False,
            ACC,
            2,
        )
        for style, folder, template, alias in (
            ("cot_zeroshot", "cot_zeroshot", "cot_zeroshot", "zeroshot cot"),
            ("n_shot_generative", "n_shot/generative", "generative", "generative"),
            ("n_shot_loglikelihood", "n_shot/loglikelihood", "loglikelihood", "loglikelihood"),
        )
    ),
)
DEFAULT = Style(
    "default", "_default_template_yaml", "mmlu", "", "mmlu_{}", "mmlu_{}_tasks", True, ACC, 2
)


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {
        f"{style.folder}/mmlu_{subject}.yaml": _member(style, subject, category)
        for style in (DEFAULT, *STYLES)
        for category, subjects in CATEGORIES.items()
        for subject in subjects.split()
    }
    made |= {f"{style.folder}/_mmlu.yaml": _group(style) for style in STYLES}
    made["default/_mmlu.yaml"] = _named_group(
        "mmlu", [f"mmlu_{category}" for category in CATEGORIES]
    )
    for category in CATEGORIES:
        alias = f"group_alias: {category.replace('_', ' ')}\n"
        made[f"default/_mmlu_{category}.yaml"] = _named_group(
            f"mmlu_{category}", [f"mmlu_{category}_tasks"], alias
        )
    return made


def _member(style: Style, subject: str, category: str) -> str:
    """Returns the task file of one subject in one style."""
    alias = f"task_alias: {subject}\n" if style.shows_subject else ""
    return (
        f"include: {style.template}\ntask: {style.task.format(subject)}\n{alias}"
        f"tag: {style.tag.format(category)}\ndataset_name: {subject}\n"
    )


def _named_group(name: str, members: list[str], alias: str = "") -> str:
    """Returns the file of a group of the default style."""
    listed = "".join(f"  - {member}\n" for member in members)
    return (
        f"group: {name}\n{alias}task:\n{listed}aggregate_metric_list:\n{_indented(ACC, 2)}"
        f"metadata:\n  version: {DEFAULT.version}\n"
    )


def _group(style: Style) -> str:
    """Returns the group file of a style; its four categories are nested groups."""
    members = "".join(
        f"  - group: {category.replace('_', ' ')}\n    task: [{style.tag.format(category)}]\n"
        f"    aggregate_metric_list:\n{_indented(style.metric, 6)}"
        for category in CATEGORIES
    )
    return (
        f"group: {style.group}\ngroup_alias: {style.alias}\ntask:\n{members}"
        f"aggregate_metric_list:\n{_indented(style.metric, 2)}"
        f"metadata:\n  version: {style.version}\n"
    )


def _indented(text: str, spaces: int) -> str:
    return "".join(" " * spaces + line for line in text.splitlines(keepends=True))
