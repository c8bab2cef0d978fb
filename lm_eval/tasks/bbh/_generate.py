"""Generates BBH's YAML files: 27 tasks, each in four prompting styles, and their groups.

What the styles of one task share is in `_tasks`; what the tasks of one style share is in
`_zeroshot.yaml`, `_fewshot.yaml` and so on. Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

STYLES = ("zeroshot", "cot_zeroshot", "fewshot", "cot_fewshot")
LETTER = (
    "!function filters.Letter",
    {"ignore_case": "true", "ignore_punctuation": "true", "regex_pattern": r"(\([A-Z]\))"},
)
NUMBER = ("!function filters.Number", {"regex_pattern": "([-0-9]+)"})


def _words(*words: str) -> tuple[str, dict[str, str]]:
    """Returns a filter that extracts one of `words`."""
    return "regex", {"regex_pattern": rf"\b({'|'.join(words)})\b"}


def _mapped(no: str, yes: str) -> tuple[str, dict[str, str]]:
    """Returns a filter that maps matches of the two regular expressions to "no" and "yes"."""
    table = f'\n            "\\\\b({no})\\\\b": "no"\n            "\\\\b({yes})\\\\b": "yes"'
    return "!function filters.Mapped", {"ignore_case": "true", "regex_pattern_to_value": table}


#: Per kind of answer: the filter that extracts it, and its settings. Used without examples only,
#: since examples show the model how to write its answer.
KINDS = {
    "letter": LETTER,
    "number": NUMBER,
    "yes_no": _words("Yes", "No", "yes", "no"),
    "true_false": _words("True", "False"),
    "valid_invalid": _words("valid", "invalid"),
    "brackets": ("regex", {"regex_pattern": r'(?<= )([" \[\(<{}>\)\]]+)|([" \[\(<{}>\)\]]+)'}),
    "plausible": _mapped("no|not plausible", "yes|plausible"),
    "truth": _mapped(
        "no|does not tell the truth|is not telling the truth",
        "yes|tells the truth|is telling the truth",
    ),
    "sorted_words": ("!function filters.SortedWords", {}),
}
TASKS = {
    "boolean_expressions": "true_false",
    "causal_judgement": "yes_no",
    "date_understanding": "letter",
    "disambiguation_qa": "letter",
    "dyck_languages": "brackets",
    "formal_fallacies": "valid_invalid",
    "geometric_shapes": "letter",
    "hyperbaton": "letter",
    "logical_deduction_five_objects": "letter",
    "logical_deduction_seven_objects": "letter",
    "logical_deduction_three_objects": "letter",
    "movie_recommendation": "letter",
    "multistep_arithmetic_two": "number",
    "navigate": "yes_no",
    "object_counting": "number",
    "penguins_in_a_table": "letter",
    "reasoning_about_colored_objects": "letter",
    "ruin_names": "letter",
    "salient_translation_error_detection": "letter",
    "snarks": "letter",
    "sports_understanding": "plausible",
    "temporal_sequences": "letter",
    "tracking_shuffled_objects_five_objects": "letter",
    "tracking_shuffled_objects_seven_objects": "letter",
    "tracking_shuffled_objects_three_objects": "letter",
    "web_of_lies": "truth",
    "word_sorting": "sorted_words",
}
#: Matches what follows "the answer is" and similar phrases.
_ANNOUNCED_ANSWER = "|".join(
    f"(?<={opening} )(.*)(?=.)"
    for opening in ("The answer is", "the answer is", "The answer:", "The final answer:")
)


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {f"{style}/{task}.yaml": _member(style, task) for style in STYLES for task in TASKS}
    for kind in KINDS:
        made[f"_answers/first_{kind}.yaml"] = _strict() + _flexible(kind, 0)
        made[f"_answers/last_{kind}.yaml"] = _flexible(kind, -1, "filter_list:\n") + _strict(
            _ANNOUNCED_ANSWER
        )
    for group, style in (("bbh", "cot_fewshot"), *((f"bbh_{style}", style) for style in STYLES)):
        made[f"{style}/_{group}.yaml"] = _group(group, style)
    return made


def _member(style: str, task: str) -> str:
    """Returns the task file of `task` in one prompting style."""
    parts = [f"_{style}.yaml", f"_tasks/{task}.yaml"]
    if "zeroshot" in style:
        parts.append(f"_answers/{'last' if 'cot' in style else 'first'}_{TASKS[task]}.yaml")
    includes = "".join(f"  - ../{part}\n" for part in parts)
    return f"include:\n{includes}task: bbh_{style}_{task}\n"


def _group(group: str, style: str) -> str:
    """Returns the group file of one prompting style."""
    members = "".join(f"  - bbh_{style}_{task}\n" for task in TASKS)
    matched = {"fewshot": "none", "cot_fewshot": "get-answer"}.get(style, "flexible-extract")
    return (
        f"group: {group}\ntask:\n{members}aggregate_metric_list:\n  - metric: exact_match\n"
        f"    filter_list: {matched}\nmetadata:\n  version: 3.0\n"
    )


def _strict(pattern: str = "") -> str:
    """Returns the filter pipeline `strict-match`: the whole response or a match of `pattern`."""
    head = "" if pattern else "filter_list:\n"
    step = f"      - function: regex\n        regex_pattern: '({pattern})'\n" if pattern else ""
    return f"{head}  - name: strict-match\n    filter:\n{step}      - function: take_first\n"


def _flexible(kind: str, select: int, head: str = "") -> str:
    """Returns the filter pipeline `flexible-extract` for a kind of answer.

    `select` is 0 to take the first match of a response and -1 to take the last.
    """
    function, settings = KINDS[kind]
    if function != "!function filters.SortedWords":
        settings = {"group_select": str(select), **settings}
    lines = [f"      - function: {function}"]
    for key, value in settings.items():
        lines.append(f"        {key}: {_quoted(value) if key == 'regex_pattern' else value}")
    steps = "\n".join(line.rstrip() for line in lines)
    steps = steps.replace("value: \n", "value:\n")
    return f"{head}  - name: flexible-extract\n    filter:\n{steps}\n      - function: take_first\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
