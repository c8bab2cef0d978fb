"""Prompt formats, which word the same question in different ways.

A task file that names only its columns (`doc_to_text: question`, `doc_to_choice: choices`,
`doc_to_target: answer`) leaves the wording to a format. The format sets the templates, the output
type, the delimiters, the filters and the metrics of the task. The built-in formats are `mcqa`,
`cloze`, `hybrid`, `generate` and `cot`. On the command line, `task@mcqa` selects one by name, and
`task@mcqa~1` the same with the choices in another order (`Format.rotation`).
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
    """The base class of prompt formats.

    A format is a dataclass that is registered with `register_format`. Its fields are the options
    that a task file can override under `formats:`. The class variables describe what is fixed.
    A new format usually overrides fields and class variables only, and `_scoring` if it generates
    text.

    The prompt consists of the instruction, the question, the choices, the answer instruction and
    the answer prompt, in this order. The text fields are Jinja templates. They may use the columns
    of the document and these variables: `{{_num_choices}}`, `{{_choice_labels}}`,
    `{{_choice_list_and}}` (as in "A, B and C") and `{{_choice_list_or}}` (as in "A, B or C").

    Example::

        @register_format("bare")
        @dataclass(kw_only=True)
        class Bare(Format):
            question_prefix: str | None = None
            answer_prompt: str | None = None
    """

    #: The text at the beginning of the prompt.
    instruction: str | None = None
    #: The text before the question.
    question_prefix: str | None = "Question: "
    #: The labels of the choices: "letters", "numbers", a list of labels, or None for no labels.
    choice_labels: str | list[str] | None = "letters"
    #: The text between two choices.
    choice_delimiter: str = "\n"
    #: By how many places the choices are rotated: with 1, the first choice comes last.
    rotation: int = 0
    #: The text between two parts of the prompt.
    section_separator: str = "\n"
    #: The text after the choices.
    answer_instruction: str | None = None
    #: The text at the end of the prompt, before the answer.
    answer_prompt: str | None = "Answer:"
    #: The text with which the model's answer begins.
    gen_prefix: str | None = None
    #: The text between the prompt and its answer.
    target_delimiter: str = " "
    #: The text between two few-shot examples.
    fewshot_delimiter: str = "\n\n"
    #: How answers are scored: a metric, a list of metrics (as in `metric_list`), or a mapping of
    #: task fields. None uses `metrics`; so does "first_token", the default of `generate`.
    scorer: str | list[Any] | dict[str, Any] | None = None

    output_type: ClassVar[str] = "multiple_choice"
    #: Whether the prompt contains the choices.
    shows_choices: ClassVar[bool] = True
    #: Whether the answer is the label of a choice. If not, it is the text of a choice.
    answers_with_label: ClassVar[bool] = True
    #: The names of the default metrics.
    metrics: ClassVar[tuple[str, ...]] = ("acc",)

    def apply(self, values: Values) -> dict[str, Any]:
        """Returns the task fields that this format sets.

        Called when a task is built. `values` are the fields of the task file, of which
        `doc_to_text`, `doc_to_choice` and `doc_to_target` name the columns. Raises `ConfigError` if
        `doc_to_target` is not set, if the format needs the choices and `doc_to_choice` is not set,
        or if the fields do not suit a format.
        """
        self._check(values)
        choices = _expression(values.get("doc_to_choice"), "doc_to_choice")
        target = _expression(values.get("doc_to_target"), "doc_to_target")
        if choices is None and (self.shows_choices or self.output_type == "multiple_choice"):
            raise ConfigError(
                "formats: this format needs the choices; set doc_to_choice to the column that "
                "contains them."
            )
        if target is None:
            raise ConfigError(
                "formats: a format needs the gold answer; set doc_to_target to the column that "
                "contains it."
            )
        labels = "none" if self.choice_labels is None else json.dumps(self.choice_labels)
        gold = f"gold_index({target}, {choices}, {labels})"
        if self.rotation and choices is not None:
            gold = f"rotated_index({gold}, {choices}, {self.rotation})"
            choices = f"rotated({choices}, {self.rotation})"
        written: dict[str, Any] = {
            "output_type": self.output_type,
            "doc_to_text": self._text(values.get("doc_to_text"), choices, labels),
            "target_delimiter": self.target_delimiter,
            "fewshot_delimiter": self.fewshot_delimiter,
            "gen_prefix": self.gen_prefix,
            "filter_list": None,
            **self._scoring(),
        }
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
        """Raises `ConfigError` if the format cannot be applied to a task with these settings.

        `choice_labels` must be valid, `doc_to_choice` must not consist of labels, and
        `doc_to_text` must not list the choices: the format adds labels and choices itself.
        """
        labels = self.choice_labels
        if isinstance(labels, str) and labels not in ("letters", "numbers"):
            raise ConfigError(
                f"formats: choice_labels must be letters, numbers, a list or null, not {labels!r}."
            )
        if not labels and self.answers_with_label:
            raise ConfigError(
                "formats: choice_labels must not be empty, because the answers of this format are "
                "labels; set it to letters, numbers or a list."
            )
        choices, text = values.get("doc_to_choice"), values.get("doc_to_text")
        if isinstance(choices, list) and all(len(str(choice)) == 1 for choice in choices):
            raise ConfigError(
                f"formats: doc_to_choice is {choices}, which looks like labels. Set it to the "
                "texts of the choices; the format adds the labels itself."
            )
        named = _COLUMN.search(str(choices or "")) if not isinstance(choices, list) else None
        if isinstance(text, str) and named and re.search(rf"\{{[^}}]*\b{named[0]}\b", text):
            raise ConfigError(
                f"formats: doc_to_text already contains the choices ({named[0]}). Set it to the "
                "question alone; the format adds the choices itself."
            )

    def _text(self, spec: Any, choices: str | None, labels: str) -> str:
        """Returns the template of the whole prompt.

        If it uses any of the `{{_…}}` variables, it begins with statements that set them.

        Args:
            spec: the task's `doc_to_text`.
            choices: the Jinja expression of the choices, or None.
            labels: the Jinja expression of the choice labels.
        """
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
        """Returns the template of the question, with the question prefix.

        A prefix or an answer prompt that `spec` contains already is removed first. Raises
        `ConfigError` if `spec`, the task's `doc_to_text`, is not a string.
        """
        question = _template(spec)
        for prompt in (self.answer_prompt, Format.answer_prompt):
            question = question.removesuffix(f"{self.section_separator}{prompt}")
        for prefix in (self.question_prefix or "", Format.question_prefix or ""):
            question = question.removeprefix(prefix)
        return (self.question_prefix or "") + question

    def _scoring(self) -> dict[str, Any]:
        """Returns the task fields that determine the scores, such as `metric_list`.

        They come from `scorer`: a mapping is returned as it is; a metric or a list of metrics
        becomes the `metric_list`. Without a scorer, `metrics` is used. Formats that generate text
        override this method, to add `filter_list` and `generation_kwargs`.
        """
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
    """Shows the choices with letters, and scores the letters by log-likelihood."""


@register_format("cloze")
@dataclass(kw_only=True)
class Cloze(Format):
    """Does not show the choices, and scores their texts by log-likelihood."""

    choice_labels: str | list[str] | None = None
    shows_choices: ClassVar[bool] = False
    answers_with_label: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("acc", "acc_norm")


@register_format("hybrid")
@dataclass(kw_only=True)
class Hybrid(Format):
    """Shows the choices with letters, and scores their texts by log-likelihood."""

    answers_with_label: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("acc", "acc_norm")


@register_format("generate")
@dataclass(kw_only=True)
class Generate(Format):
    """Shows the choices with letters, and extracts the letter from the generated text."""

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
        # Find the last "best answer is X". If there is none, find the first label that is a word by
        # itself and does not begin a sentence, as in "A careful look …".
        alone = rf"(?<![\w'])({label})(?![\w'’]|\s+[a-z])"
        pattern = rf"(?s).*best answer is:?[\s*_(\[]*({label})\b|{alone}"
        return _generation(pattern, "first_token") | super()._scoring()

    def _label_pattern(self) -> str:
        """Returns a regular expression that matches any label of a choice."""
        if self.choice_labels == "letters":
            return "[A-Z]"
        if self.choice_labels == "numbers":
            return "[0-9]+"
        longest_first = sorted(self.choice_labels or (), key=len, reverse=True)
        return "|".join(map(re.escape, longest_first))


@register_format("cot")
@dataclass(kw_only=True)
class ChainOfThought(Format):
    """Lets the model reason step by step, and extracts the final answer from the generated text."""

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
        # Reasoning may contain blank lines, so only the start of another problem ends it.
        stop = f"{self.fewshot_delimiter}{(self.question_prefix or '').strip()}"
        scoring = _generation(pattern, "final_answer", [stop], 1024) | {"metric_list": [exact]}
        return scoring if self.scorer is None else scoring | super()._scoring()


def _generation(
    pattern: str, name: str, until: Sequence[str] = ("\n\n",), max_gen_toks: int = 256
) -> dict[str, Any]:
    """Returns the task fields `generation_kwargs` and `filter_list` of a format.

    Args:
        pattern: the regular expression that extracts the answer.
        name: the name of the filter pipeline.
        until: the stop strings.
        max_gen_toks: the most tokens to generate.
    """
    steps = [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]
    settings = default_gen_kwargs(list(until), max_gen_toks)
    return {
        "generation_kwargs": settings,
        "filter_list": [{"name": name, "filter": steps}],
    }


# -- choosing a format ------------------------------------------------------------------------


#: Separates the name of a format from the rotation of its choices, as in `arc_easy@mcqa~1`.
ROTATION_MARK = "~"
#: The keys of a task that all formats set, whatever the task file has there.
SET_BY_FORMATS = (
    *("output_type", "target_delimiter", "fewshot_delimiter", "gen_prefix"),
    *("filter_list", "metric_list"),
)


def apply_format(values: Values, requested: str | None) -> dict[str, Any]:
    """Returns the fields of a task with a prompt format applied.

    Args:
        values: the fields of the task file. `formats` may be the name of a format, a mapping with
            `type` and the options to override, or several of them by name.
        requested: the name of the format (`task@name`): one of `formats`, or any registered format;
            after `~`, by how many places its choices are rotated (`task@name~1`). None selects
            the first one in `formats`; if there is none, the fields are returned unchanged.

    Raises:
        UnknownNameError: the format is not registered.
        ConfigError: an option does not exist or has the wrong type, or the task does not suit the
            format.
    """
    named = declared_formats(values.get("formats"))
    requested, mark, rotation = (requested or "").partition(ROTATION_MARK)
    name = requested or next(iter(named), None)
    if name is None:
        return dict(values)
    overrides = dict(named.get(name) or {})
    if mark:
        if not rotation.isdecimal():
            raise ConfigError(
                f"formats: {name}{mark}{rotation}: write a number after {mark}, by how many places "
                "the choices are rotated."
            )
        overrides["rotation"] = int(rotation)
    type_name = overrides.get("type", name)
    format_class = format_registry.get(type_name)
    known, types = [f.name for f in fields(format_class)], field_types(format_class)
    for key in overrides:
        if key != "type" and key not in known:
            raise ConfigError(
                f"formats: {type_name} has no field {key!r}.{suggestion(key, known)} "
                f"Its fields are: {', '.join(known)}."
            )
        if key != "type" and not conforms(overrides[key], types[key]):
            raise ConfigError(
                f"formats: {type_name}: {key} must be {describe(types[key])}, not "
                f"{overrides[key]!r}."
            )
    chosen = format_class(**{k: v for k, v in overrides.items() if k != "type"})
    return {**values, **chosen.apply(values)}


def declared_formats(formats: Any) -> dict[str, dict[str, Any]]:
    """Returns the formats that a task file declares, by name, each with its overridden options.

    `formats` may be None, a name, a mapping from names to options, a mapping with the key `type`
    (whose value is then the name, and stays among the options), or a list of these. Of equal names,
    the last one counts. Raises `ConfigError` for anything else.
    """
    if formats is None:
        return {}
    if isinstance(formats, str):
        return {formats: {}}
    if isinstance(formats, list):
        return {k: v for item in formats for k, v in declared_formats(item).items()}
    if not isinstance(formats, Mapping):
        raise ConfigError(f"formats must be a name, a mapping or a list, not {formats!r}.")
    if "type" in formats:
        return {str(formats["type"]): dict(formats)}
    for name, overrides in formats.items():
        if overrides is not None and not isinstance(overrides, Mapping):
            raise ConfigError(
                f"formats: {name} must be a mapping of its fields, not {overrides!r}."
            )
    return {str(name): dict(overrides or {}) for name, overrides in formats.items()}


# -- templates made from columns --------------------------------------------------------------

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
    """Returns `doc_to_text` as a template: a column name becomes `{{ name }}`.

    Other text is returned unchanged. Raises `ConfigError` if `spec` is not a string.
    """
    if not isinstance(spec, str):
        raise ConfigError(
            "formats: with a format, doc_to_text must be a column name or a template, not "
            f"{spec!r}."
        )
    return f"{{{{ {spec} }}}}" if _COLUMN.fullmatch(spec) else spec


def _expression(spec: Any, field: str) -> str | None:
    """Returns a task field as a Jinja expression that can be used inside a larger template.

    Args:
        spec: the value of the field: a column name, a template that is one `{{expression}}`, a
            list, a mapping (its values are used), an integer, or None, which gives None.
        field: the name of the field, for the error message.

    Raises:
        ConfigError: `spec` is anything else.
    """
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
        f"formats: with a format, {field} must be a column name, a single {{{{expression}}}}, a "
        f"list, a mapping or an integer, not {spec!r}."
    )


def choice_labels(choices: Sequence[Any], labels: str | Sequence[str] | None) -> list[str]:
    """Returns one label per choice.

    `labels` is "letters" (from A, at most 26), "numbers" (from 1), a list of labels, or None, which
    gives empty labels. Raises `DataError` if there are more choices than labels.
    """
    count = len(choices)
    if labels is None:
        return [""] * count
    if labels == "numbers":
        return [str(number + 1) for number in range(count)]
    available = list(string.ascii_uppercase) if labels == "letters" else list(labels)
    if count > len(available):
        raise DataError(
            f"a document has {count} choices, but there are only {len(available)} labels. Set "
            "choice_labels of the format to numbers or to a longer list."
        )
    return available[:count]


def labelled(choices: Sequence[Any], labels: Sequence[str]) -> list[str]:
    """Returns `A. text` for each choice, or the text alone if the label is empty.

    There must be as many labels as choices, otherwise `ValueError` is raised.
    """
    pairs = zip(labels, choices, strict=True)
    return [f"{label}. {choice}" if label else str(choice) for label, choice in pairs]


def listed(items: Sequence[str], word: str) -> str:
    """Returns the items as an enumeration: `A, B and C` if `word` is "and".

    Empty items are left out. Returns "" if none is left.
    """
    *first, last = [item for item in items if item] or [""]
    return f"{', '.join(first)} {word} {last}" if first else last


def gold_index(target: Any, choices: Sequence[Any], labels: Any) -> int:
    """Returns the index (from 0) of the gold answer `target` in `choices`.

    An integer is returned unchanged, even if it is out of range. Other values are compared, as
    text, with the choices, then with the labels of `choice_labels` (letters if `labels` is empty),
    and at last read as an index if they consist of digits. Raises `DataError` if nothing fits.
    """
    if isinstance(target, int):
        return target
    names = choice_labels(choices, labels or "letters")
    for known in (list(map(str, choices)), names):
        if str(target) in known:
            return known.index(str(target))
    if str(target).isdigit():
        return int(target)
    raise DataError(
        f"the gold answer {target!r} is not one of the choices {list(choices)!r}, nor a label or "
        "an index; check doc_to_target and doc_to_choice."
    )


def rotated(choices: Sequence[Any], places: int) -> list[Any]:
    """Returns the choices rotated by a number of places: with 1, the first one comes last."""
    start = places % len(choices) if choices else 0
    return [*choices[start:], *choices[:start]]


def rotated_index(index: int, choices: Sequence[Any], places: int) -> int:
    """Returns where the choice at `index` is after `rotated`; an index out of range is kept."""
    return (index - places) % len(choices) if 0 <= index < len(choices) else index


for _helper in (choice_labels, labelled, listed, gold_index, rotated, rotated_index):
    env.globals[_helper.__name__] = _helper
