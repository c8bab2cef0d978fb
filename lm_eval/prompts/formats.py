"""Prompt formats: the same question as lettered choices, cloze, hybrid, generation or reasoning.

A task that names only its columns (`doc_to_text: question`, `doc_to_choice: choices`,
`doc_to_target: answer`) leaves the wording to a format, which writes the templates, the output
type, the delimiters and the scoring. `task@mcqa` asks for one by name.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from lm_eval.api.registry import format_registry, register_format
from lm_eval.config.types import conforms, describe, field_types
from lm_eval.defaults import default_gen_kwargs
from lm_eval.errors import ConfigError, DataError, suggestion
from lm_eval.prompts.template import env

Values = Mapping[str, Any]


@dataclass(kw_only=True)
class Format:
    """The wording of a prompt. The texts may use `{{_num_choices}}`, `{{_choice_labels}}`,
    `{{_choice_list_and}}`, `{{_choice_list_or}}` and the document's columns.
    """

    instruction: str | None = None
    question_prefix: str | None = "Question: "
    choice_labels: str | list[str] | None = "letters"
    choice_delimiter: str = "\n"
    section_separator: str = "\n"
    answer_instruction: str | None = None
    answer_prompt: str | None = "Answer:"
    gen_prefix: str | None = None
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    scorer: str | list[Any] | dict[str, Any] | None = None

    output_type: ClassVar[str] = "multiple_choice"
    #: Whether the choices stand in the prompt.
    shows_choices: ClassVar[bool] = True
    #: Whether the answer is a choice's label or its text.
    answers_with_label: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("acc",)

    def apply(self, values: Values) -> dict[str, Any]:
        """The task fields this format writes, given those that name the columns."""
        self._check(values)
        choices = _expression(values.get("doc_to_choice"), "doc_to_choice")
        target = _expression(values.get("doc_to_target"), "doc_to_target")
        if choices is None and (self.shows_choices or self.output_type == "multiple_choice"):
            raise ConfigError("this format needs doc_to_choice: the column that holds the choices.")
        if target is None:
            raise ConfigError("a format needs doc_to_target: the column that holds the answer.")
        labels = "none" if self.choice_labels is None else json.dumps(self.choice_labels)
        written: dict[str, Any] = {
            "output_type": self.output_type,
            "doc_to_text": self._text(values.get("doc_to_text"), choices, labels),
            "target_delimiter": self.target_delimiter,
            "fewshot_delimiter": self.fewshot_delimiter,
            "gen_prefix": self.gen_prefix,
            "filter_list": None,
            **self._scoring(),
        }
        gold = f"gold_index({target}, {choices}, {labels})"
        if self.output_type == "multiple_choice":
            shown = f"choice_labels({choices}, {labels})" if self.answers_with_label else choices
            written["doc_to_choice"] = f"{{{{ {shown} }}}}"
            written["doc_to_target"] = f"{{{{ {gold} }}}}"
            return written
        written["doc_to_choice"] = None
        if choices is None:
            written["doc_to_target"] = f"{{{{ {target} }}}}"
        elif self.answers_with_label:
            written["doc_to_target"] = f"{{{{ choice_labels({choices}, {labels})[{gold}] }}}}"
        else:
            written["doc_to_target"] = f"{{{{ ({choices})[{gold}] }}}}"
        return written

    def _check(self, values: Values) -> None:
        """Refuse what would make a prompt that nobody means."""
        labels = self.choice_labels
        if isinstance(labels, str) and labels not in ("letters", "numbers"):
            raise ConfigError(
                f"formats: choice_labels must be letters, numbers, a list or null, not {labels!r}."
            )
        if not labels and self.answers_with_label:
            raise ConfigError(
                "formats: choice_labels: this format's answers are labels; name some."
            )
        choices, text = values.get("doc_to_choice"), values.get("doc_to_text")
        if isinstance(choices, list) and all(len(str(choice)) == 1 for choice in choices):
            raise ConfigError(
                f"formats: doc_to_choice is {choices}, which are labels already; a format needs "
                "the choices' texts there, and words the rest itself."
            )
        named = _COLUMN.search(str(choices or "")) if not isinstance(choices, list) else None
        if isinstance(text, str) and named and re.search(rf"\{{[^}}]*\b{named[0]}\b", text):
            raise ConfigError(
                f"formats: doc_to_text shows the choices ({named[0]}) already; a format needs "
                "the question alone there, and words the rest itself."
            )

    def _text(self, spec: Any, choices: str | None, labels: str) -> str:
        """The question's template: sections one after another, and their variables before them."""
        sections = [self._question(spec)]
        if self.shows_choices:
            delimiter = json.dumps(self.choice_delimiter)
            sections.append(f"{{{{ labelled(_choices, _choice_labels) | join({delimiter}) }}}}")
        sections += [part for part in (self.answer_instruction, self.answer_prompt) if part]
        opening = ""
        if self.instruction:
            opening = self.instruction
            if not opening[-1].isspace():
                opening += self.section_separator
        text = opening + self.section_separator.join(sections)
        needed = choices is not None and any(name in text for name in ("_choice", "_num_choices"))
        return (_VARIABLES.format(choices=choices, labels=labels) if needed else "") + text

    def _question(self, spec: Any) -> str:
        """The question, given the prefix unless it has it, without an answer prompt of its own."""
        question = _template(spec)
        for prompt in (self.answer_prompt, Format.answer_prompt):
            question = question.removesuffix(f"{self.section_separator}{prompt}")
        for prefix in (self.question_prefix or "", Format.question_prefix or ""):
            question = question.removeprefix(prefix)
        return (self.question_prefix or "") + question

    def _scoring(self) -> dict[str, Any]:
        if isinstance(self.scorer, dict):
            return dict(self.scorer)
        metrics: Sequence[Any] = self.metrics
        if isinstance(self.scorer, list):
            metrics = self.scorer
        elif self.scorer is not None and self.scorer != "first_token":
            metrics = [self.scorer]
        return {"metric_list": [{"metric": m} if isinstance(m, str) else m for m in metrics]}


@register_format("mcqa")
class MultipleChoice(Format):
    """Lettered options are shown, and the letter is scored."""


@register_format("cloze")
@dataclass(kw_only=True)
class Cloze(Format):
    """The options stay hidden, and each one's text is scored."""

    choice_labels: str | list[str] | None = None
    shows_choices: ClassVar[bool] = False
    answers_with_label: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("acc", "acc_norm")


@register_format("hybrid")
@dataclass(kw_only=True)
class Hybrid(Format):
    """Lettered options are shown, and each one's text is scored."""

    answers_with_label: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("acc", "acc_norm")


@register_format("generate")
@dataclass(kw_only=True)
class Generate(Format):
    """Lettered options are shown, and the letter is found in what the model writes."""

    instruction: str | None = (
        "Given the following question and {{ _num_choices }} candidate answers "
        "({{ _choice_list_and }}), choose the best answer.\n"
    )
    answer_prompt: str | None = (
        'Your response should end with "The best answer is [answer_letter]" where the '
        "[answer_letter] is one of {{ _choice_list_or }}."
    )
    gen_prefix: str | None = "The best answer is"
    target_delimiter: str = "\n"
    scorer: str | list[Any] | dict[str, Any] | None = "first_token"
    output_type: ClassVar[str] = "generate_until"
    metrics: ClassVar[tuple[str, ...]] = ("exact_match",)

    def _scoring(self) -> dict[str, Any]:
        label = self._label_pattern()
        # The last "best answer is X" if there is one, otherwise the first label that stands alone
        # and does not begin a sentence, as in "A careful look …".
        alone = rf"(?<![\w'])({label})(?![\w'’]|\s+[a-z])"
        pattern = rf"(?s).*best answer is:?[\s*_(\[]*({label})\b|{alone}"
        return _generation(pattern, "first_token") | super()._scoring()

    def _label_pattern(self) -> str:
        if self.choice_labels == "letters":
            return "[A-Z]"
        if self.choice_labels == "numbers":
            return "[0-9]+"
        longest_first = sorted(self.choice_labels or (), key=len, reverse=True)
        return "|".join(map(re.escape, longest_first))


@register_format("cot")
@dataclass(kw_only=True)
class ChainOfThought(Format):
    """The model reasons, and the final answer is found in what it writes."""

    instruction: str | None = (
        "Given the following problem, reason step by step to find the final answer.\n"
    )
    question_prefix: str | None = "Problem: "
    choice_labels: str | list[str] | None = None
    answer_prompt: str | None = (
        'Your response should end with "The final answer is [answer]" where [answer] is the '
        "response to the problem."
    )
    target_delimiter: str = "\n"
    output_type: ClassVar[str] = "generate_until"
    shows_choices: ClassVar[bool] = False
    answers_with_label: ClassVar[bool] = False

    def _scoring(self) -> dict[str, Any]:
        pattern = r"(?s).*final answer is:?\s*([^\n]*?)[.\s]*(?:\n|$)"
        exact = {"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}
        # Reasoning has paragraphs: only the beginning of another problem ends it.
        stop = f"{self.fewshot_delimiter}{(self.question_prefix or '').strip()}"
        scoring = _generation(pattern, "final_answer", [stop], 1024) | {"metric_list": [exact]}
        return scoring if self.scorer is None else scoring | super()._scoring()


def _generation(
    pattern: str, name: str, until: Sequence[str] = ("\n\n",), max_gen_toks: int = 256
) -> dict[str, Any]:
    steps = [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]
    settings = default_gen_kwargs(list(until), max_gen_toks)
    return {
        "generation_kwargs": settings,
        "filter_list": [{"name": name, "filter": steps}],
    }


# -- choosing a format ------------------------------------------------------------------------


def apply_format(values: Values, asked: str | None) -> dict[str, Any]:
    """A task's fields under the format asked for, or the one it names itself.

    `formats:` may be a name, a table with `type` and overrides, or several of them by name, of
    which the first is the default.
    """
    offered = declared(values.get("formats"))
    name = asked or next(iter(offered), None)
    if name is None:
        return dict(values)
    overrides = offered.get(name) or {}
    kind = overrides.get("type", name)
    make = format_registry.get(kind)
    known, types = [f.name for f in fields(make)], field_types(make)
    for key in overrides:
        if key != "type" and key not in known:
            raise ConfigError(
                f"formats: {kind} has no field {key!r}.{suggestion(key, known)} "
                f"It has: {', '.join(known)}."
            )
        if key != "type" and not conforms(overrides[key], types[key]):
            raise ConfigError(
                f"formats: {kind}: {key} must be {describe(types[key])}, not {overrides[key]!r}."
            )
    chosen = make(**{k: v for k, v in overrides.items() if k != "type"})
    return {**values, **chosen.apply(values)}


def declared(formats: Any) -> dict[str, dict[str, Any]]:
    """The formats that a task file names, each with the fields it sets."""
    if formats is None:
        return {}
    if isinstance(formats, str):
        return {formats: {}}
    if isinstance(formats, list):
        return {k: v for item in formats for k, v in declared(item).items()}
    if not isinstance(formats, Mapping):
        raise ConfigError(f"formats must be a name or a table, not {formats!r}.")
    if "type" in formats:
        return {str(formats["type"]): dict(formats)}
    for name, overrides in formats.items():
        if overrides is not None and not isinstance(overrides, Mapping):
            raise ConfigError(f"formats: {name} must be a table of its fields, not {overrides!r}.")
    return {str(name): dict(overrides or {}) for name, overrides in formats.items()}


# -- from columns to templates ----------------------------------------------------------------

_VARIABLES = (
    "{{% set _choices = {choices} %}}"
    "{{% set _choice_labels = choice_labels(_choices, {labels}) %}}"
    "{{% set _num_choices = _choices | length %}}"
    "{{% set _choice_list_and = listed(_choice_labels, 'and') %}}"
    "{{% set _choice_list_or = listed(_choice_labels, 'or') %}}"
)
_COLUMN = re.compile(r"[A-Za-z_]\w*")
_WHOLE_EXPRESSION = re.compile(r"\{\{(.*)\}\}", re.DOTALL)


def _template(spec: Any) -> str:
    if not isinstance(spec, str):
        raise ConfigError("a format needs doc_to_text as a column name or a template.")
    return f"{{{{ {spec} }}}}" if _COLUMN.fullmatch(spec) else spec


def _expression(spec: Any, field: str) -> str | None:
    """A column, template or list as an expression to be used inside a larger template."""
    if spec is None:
        return None
    if isinstance(spec, Mapping):
        spec = list(spec.values())
    if isinstance(spec, (list, int)):
        return json.dumps(spec)
    if isinstance(spec, str):
        if _COLUMN.fullmatch(spec):
            return spec
        whole = _WHOLE_EXPRESSION.fullmatch(spec.strip())
        if whole and "{{" not in whole[1] and "{%" not in whole[1]:
            return f"({whole[1].strip()})"
    raise ConfigError(
        f"a format needs {field} as a column name, a list or one {{{{expression}}}}, not {spec!r}."
    )


def choice_labels(choices: Sequence[Any], labels: str | Sequence[str] | None) -> list[str]:
    """A label for each choice: letters, numbers, or the ones given; none are empty texts."""
    count = len(choices)
    if labels is None:
        return [""] * count
    if labels == "numbers":
        return [str(number + 1) for number in range(count)]
    available = list(string.ascii_uppercase) if labels == "letters" else list(labels)
    if count > len(available):
        raise DataError(f"there are {count} choices, but only {len(available)} labels.")
    return available[:count]


def labelled(choices: Sequence[Any], labels: Sequence[str]) -> list[str]:
    """`A. text` for each choice, or the text alone where it has no label."""
    pairs = zip(labels, choices, strict=True)
    return [f"{label}. {choice}" if label else str(choice) for label, choice in pairs]


def listed(items: Sequence[str], word: str) -> str:
    """`A, B and C`."""
    *first, last = [item for item in items if item] or [""]
    return f"{', '.join(first)} {word} {last}" if first else last


def gold_index(target: Any, choices: Sequence[Any], labels: Any) -> int:
    """Which choice the gold answer is, whether given as index, text or label."""
    if isinstance(target, int):
        return target
    names = choice_labels(choices, labels or "letters")
    for known in (list(map(str, choices)), names):
        if str(target) in known:
            return known.index(str(target))
    if str(target).isdigit():
        return int(target)
    raise DataError(f"the answer {target!r} is none of the choices {list(choices)!r}.")


for _helper in (choice_labels, labelled, listed, gold_index):
    env.globals[_helper.__name__] = _helper
