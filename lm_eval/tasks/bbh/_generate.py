"""Write BBH's member files: 27 tasks, each asked in four ways.

What the ways share of a task stands in `_tasks`, what tasks share of a way in `_zeroshot.yaml`
and its like. Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

WAYS = ("zeroshot", "cot_zeroshot", "fewshot", "cot_fewshot")
LETTER = (
    "!function filters.Letter",
    {"ignore_case": "true", "ignore_punctuation": "true", "regex_pattern": r"(\([A-Z]\))"},
)
NUMBER = ("!function filters.Number", {"regex_pattern": "([-0-9]+)"})


def _words(*words: str) -> tuple[str, dict[str, str]]:
    return "regex", {"regex_pattern": rf"\b({'|'.join(words)})\b"}


def _mapped(no: str, yes: str) -> tuple[str, dict[str, str]]:
    table = f'\n            "\\\\b({no})\\\\b": "no"\n            "\\\\b({yes})\\\\b": "yes"'
    return "!function filters.Mapped", {"ignore_case": "true", "regex_pattern_to_value": table}


#: How an answer is found where the model was not shown any: by kind.
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
_SAID = "|".join(
    f"(?<={opening} )(.*)(?=.)"
    for opening in ("The answer is", "the answer is", "The answer:", "The final answer:")
)


def files() -> dict[str, str]:
    made = {f"{way}/{task}.yaml": _member(way, task) for way in WAYS for task in TASKS}
    for kind in KINDS:
        made[f"_answers/first_{kind}.yaml"] = _strict() + _flexible(kind, 0)
        made[f"_answers/last_{kind}.yaml"] = _flexible(kind, -1, "filter_list:\n") + _strict(_SAID)
    for group, way in (("bbh", "cot_fewshot"), *((f"bbh_{way}", way) for way in WAYS)):
        made[f"{group}.yaml"] = _group(group, way)
    return made


def _member(way: str, task: str) -> str:
    parts = [f"_{way}.yaml", f"_tasks/{task}.yaml"]
    if "zeroshot" in way:
        parts.append(f"_answers/{'last' if 'cot' in way else 'first'}_{TASKS[task]}.yaml")
    includes = "".join(f"  - ../{part}\n" for part in parts)
    return f"include:\n{includes}task: bbh_{way}_{task}\n"


def _group(group: str, way: str) -> str:
    members = "".join(f"  - bbh_{way}_{task}\n" for task in TASKS)
    matched = {"fewshot": "none", "cot_fewshot": "get-answer"}.get(way, "flexible-extract")
    return (
        f"group: {group}\ntask:\n{members}aggregate_metric_list:\n  - metric: exact_match\n"
        f"    filter_list: {matched}\nmetadata:\n  version: 3.0\n"
    )


def _strict(pattern: str = "") -> str:
    """The whole answer, or what follows `the answer is`."""
    head = "" if pattern else "filter_list:\n"
    step = f"      - function: regex\n        regex_pattern: '({pattern})'\n" if pattern else ""
    return f"{head}  - name: strict-match\n    filter:\n{step}      - function: take_first\n"


def _flexible(kind: str, select: int, head: str = "") -> str:
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
