"""Prompts from PromptSource, a collection of many prompt templates for each dataset.

A template is a Jinja string that renders the question and the answer, separated by `|||`. It may
also have a second Jinja string that renders the answer choices. The field `use_prompt` of a task
file names a template, or matches several with a pattern. A pattern expands to one task per
template.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import json
import logging
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from lm_eval.config.regular_file import is_folder, is_regular, user_path
from lm_eval.config.yaml_file import TaskFileLoader, read_yaml
from lm_eval.errors import ConfigError, DataError, UnknownNameError, suggestion
from lm_eval.prompts.template import apply_template, env, renders_none

logger = logging.getLogger(__name__)

#: The environment variable with the path of PromptSource's template folder.
TEMPLATES_ENV_VAR = "LMEVAL_PROMPTSOURCE_DIR"
#: Separates question and answer, and answer choices, in a rendered template.
SEPARATOR = "|||"
#: Prompts that the published harness defines: the prompt's text by source and name.
BUILT_IN = {
    "qa-basic": {
        "question-newline-answer": "Question: {{question}}\nAnswer:",
        "q-newline-a": "Q: {{question}}\nA:",
    },
}

Doc = Mapping[str, Any]


@dataclass(frozen=True)
class Prompt:
    """One prompt template of a dataset. A task's `doc_to_*` fields call its methods."""

    name: str
    #: The template of question and answer, separated by `|||`.
    jinja: str
    #: The template of the answer choices, separated by `|||`; None if there are no choices.
    answer_choices: str | None = None

    def parts(self, doc: Doc) -> list[str]:
        """Returns the rendered parts of the template: usually `[question, answer]`.

        There are fewer, or none, if a condition in the template excludes the document.
        """
        return _split(apply_template(self.jinja, self._variables(doc)))

    def _variables(self, doc: Doc) -> dict[str, Any]:
        """Returns the variables of the template: columns, answer choices and a random generator.

        `answer_choices` is left out if the prompt has none.
        """
        variables = {**_escape_doc(doc), _GENERATOR_VARIABLE: self._generator(doc)}
        if self.answer_choices is not None:
            variables["answer_choices"] = [_escape(choice) for choice in self.choices(doc)]
        return variables

    def text(self, doc: Doc) -> str:
        """Returns the question. Raises `DataError` if the template excludes the document."""
        return self._question_and_answer(doc)[0]

    def target(self, doc: Doc) -> str:
        """Returns the answer. Raises `DataError` if the template excludes the document."""
        return self._question_and_answer(doc)[1]

    def choices(self, doc: Doc) -> list[str]:
        """Returns the answer choices; an empty list if the template has none."""
        variables = {**_escape_doc(doc), _GENERATOR_VARIABLE: self._generator(doc)}
        return _split(apply_template(self.answer_choices or "", variables))

    def _question_and_answer(self, doc: Doc) -> list[str]:
        """Returns `[question, answer]`.

        Raises `DataError` if the template excludes the document, that is, does not render two
        parts.
        """
        parts = self.parts(doc)
        if len(parts) != 2:
            raise DataError(
                f"the prompt {self.name!r} cannot be used for this document: it must render a "
                f"question and an answer, but rendered {len(parts)} part(s). Choose another "
                "prompt, or remove such documents with process_docs."
            )
        return parts

    def _generator(self, doc: Doc) -> random.Random:
        """Returns the generator for random choices in the template.

        It is seeded with the prompt's name and the document, so the choices are reproducible.
        """
        written = json.dumps(doc, sort_keys=True, default=str)
        digest = hashlib.sha256(f"{self.name}\n{written}".encode(errors="surrogatepass"))
        return random.Random(digest.digest())

    def fields(self) -> dict[str, Any]:
        """Returns the task fields that this prompt sets, as functions of a document.

        These are `doc_to_text`, `doc_to_target` and, if there are answer choices, `doc_to_choice`.
        """
        written: dict[str, Any] = {
            "doc_to_text": _PromptField(self, Prompt.text),
            "doc_to_target": _PromptField(self, Prompt.target),
        }
        if self.answer_choices is not None:
            written["doc_to_choice"] = _PromptField(self, Prompt.choices)
        return written


class _PromptField:
    """A callable that calls a method of a prompt, for the `doc_to_*` fields of a task.

    Its `str()` contains the template, because results files store the configuration of a task.
    """

    def __init__(self, prompt: Prompt, read: Callable[[Prompt, Doc], Any]) -> None:
        self.prompt = prompt
        self.read = read

    def __call__(self, doc: Doc) -> Any:
        return self.read(self.prompt, doc)

    def none_in(self, doc: Doc) -> str | None:
        """Returns a description if the prompt contains `None` for a document; otherwise None.

        The whole template is searched: both question and answer.
        """
        if not renders_none(self.prompt.jinja, self.prompt._variables(doc)):
            return None
        return f"contains the word None, which the prompt {self.prompt.name!r} renders"

    def __str__(self) -> str:
        part = self.read.__name__
        source = self.prompt.answer_choices if part == "choices" else self.prompt.jinja
        return f"{part} of {source}"


# -- finding prompts --------------------------------------------------------------------------


def apply_prompt(values: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Returns the fields of a task with the prompt applied that `use_prompt` names.

    If `use_prompt` is not set, the fields are returned unchanged. A pattern must match exactly one
    prompt. If the template has conditions, `process_docs` is set to a function that keeps the
    documents for which the prompt can be used.

    Args:
        values: the fields of the task file.
        folder: the folder of the task file, to which paths in `use_prompt` may be relative.

    Raises:
        UnknownNameError: there is no prompt with this name.
        ConfigError: the pattern matches several prompts, the prompt has no answer choices although
            the task is multiple-choice, or the templates are not found.
    """
    spec = values.get("use_prompt")
    if spec is None:
        return dict(values)
    found = find_prompts(values, folder)
    if len(found) > 1:
        raise ConfigError(
            f"use_prompt: {spec!r} matches {len(found)} prompts, but this task can use only one; "
            "write the full name of one prompt."
        )
    written = found[0].fields()
    if values.get("output_type") != "multiple_choice":
        written.pop("doc_to_choice", None)
    elif "doc_to_choice" not in written:
        raise ConfigError(
            f"use_prompt: the prompt {found[0].name!r} has no answer choices, which output_type "
            "multiple_choice needs; set output_type: generate_until, or name another prompt."
        )
    if "{%" in found[0].jinja:
        written["process_docs"] = _FittingDocs(found[0], values.get("process_docs"))
    return {**values, **written}


class _FittingDocs:
    """The `process_docs` of a prompt with conditions: keeps the documents that the prompt fits.

    If the task has a `process_docs` of its own, given as `before`, it is called first.
    """

    def __init__(self, prompt: Prompt, before: Callable[[Any], Any] | None) -> None:
        self.prompt, self.before = prompt, before

    def __call__(self, docs: Any) -> Any:
        docs = docs if self.before is None else self.before(docs)
        numbers = [i for i, doc in enumerate(docs) if len(self.prompt.parts(doc)) == 2]
        if not numbers:
            raise DataError(
                f"the prompt {self.prompt.name!r} can be used for none of the documents; name "
                "another one in use_prompt."
            )
        if len(numbers) < len(docs):
            logger.info(
                "the prompt %r can be used for %d of %d documents; the others are left out.",
                self.prompt.name,
                len(numbers),
                len(docs),
            )
            docs = docs.select(numbers)
        return docs

    def __str__(self) -> str:
        return f"documents that the prompt {self.prompt.name} applies to"


def fan_out(values: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """Returns the prompts that `use_prompt` matches, so that a task can be made for each.

    The mapping is from each prompt's name to the `use_prompt` value that selects it alone. It is
    empty if `use_prompt` is not set. Logs a warning with the prompts that match a pattern but do
    not fit the output type of the task. The parameters are those of `apply_prompt`, and the errors
    those of `find_prompts`.
    """
    if values.get("use_prompt") is None:
        return {}
    found, skipped = _fitting(values, folder)
    if skipped:
        logger.warning(
            "use_prompt: %r: %d of %d prompts have no answer choices and are skipped, because the "
            "output type is multiple_choice: %s.",
            values["use_prompt"],
            len(skipped),
            len(skipped) + len(found),
            ", ".join(repr(prompt.name) for prompt in skipped),
        )
    source, _ = _source_and_name(values["use_prompt"])
    return {prompt.name: f"{source}:{prompt.name}" for prompt in found}


def find_prompts(values: Mapping[str, Any], folder: Path | None = None) -> list[Prompt]:
    """Returns the prompts that `use_prompt` of a task names, at least one.

    `use_prompt` is `name`, `promptsource:name`, or `source:name`, where the source is the path of a
    template file or folder, or `qa-basic`. The name may be a pattern with `*`. If some of the
    prompts that it matches have answer choices and the task is multiple-choice, those without are
    left out.

    Args:
        values: the fields of the task file.
        folder: the folder of the task file, to which paths may be relative.

    Raises:
        UnknownNameError: no prompt matches.
        ConfigError: the templates are not found, or a file is not a template file.
    """
    return _fitting(values, folder)[0]


def _fitting(values: Mapping[str, Any], folder: Path | None) -> tuple[list[Prompt], list[Prompt]]:
    """Returns the prompts that `use_prompt` names, and those that are skipped.

    Prompts without answer choices are skipped if a pattern matches them in a multiple-choice task.
    An exact name is never skipped, nor are the prompts of a pattern if all of them lack choices;
    `apply_prompt` raises an error for these. Raises `UnknownNameError` if no prompt matches.
    """
    source, wanted = _source_and_name(values["use_prompt"])
    prompts = _prompts_of(source, values, folder)
    exact = [prompt for prompt in prompts if prompt.name == wanted]
    found = exact or [p for p in prompts if fnmatch.fnmatchcase(p.name, wanted)]
    if not exact and values.get("output_type") == "multiple_choice":
        ranked = [prompt for prompt in found if prompt.answer_choices is not None]
        if ranked:
            return ranked, [prompt for prompt in found if prompt.answer_choices is None]
    if not found:
        names = [prompt.name for prompt in prompts]
        raise UnknownNameError(
            f"use_prompt: there is no prompt {wanted!r}.{suggestion(wanted, names)} "
            f"Available prompts: {', '.join(names)}."
        )
    return found, []


def _source_and_name(spec: Any) -> tuple[str, str]:
    """Returns the parts of `use_prompt` before and after the first colon.

    Without a colon, the source is "promptsource". Raises `ConfigError` if `spec` is not a string,
    or is empty.
    """
    if not isinstance(spec, str) or not spec:
        raise ConfigError(f"use_prompt must be the name of a prompt, not {spec!r}.")
    source, mark, name = spec.partition(":")
    return (source, name) if mark else ("promptsource", spec)


def _prompts_of(source: str, values: Mapping[str, Any], folder: Path | None) -> list[Prompt]:
    """Returns all prompts of a source: a built-in one, "promptsource", a folder or a YAML file.

    In "promptsource" and in a folder, these are the prompts for the task's dataset. Paths are
    relative to `folder`. Raises `ConfigError` if the source is none of these, or has no prompts for
    the dataset.
    """
    if source in BUILT_IN:
        target = values.get("doc_to_target")
        answer = target if isinstance(target, str) and "{" in target else f"{{{{{target}}}}}"
        return [Prompt(n, f"{text}{SEPARATOR}{answer}") for n, text in BUILT_IN[source].items()]
    if source == "promptsource":
        return read_templates(_file_for(template_folder(), values))
    path = (folder or Path()) / user_path(source)
    if is_folder(path):
        return read_templates(_file_for(_templates_in(path), values))
    if path.suffix in (".yaml", ".yml"):
        return read_templates(path)
    raise ConfigError(
        f"use_prompt: {source!r} before the colon must be `promptsource`, a template folder, a "
        f"YAML file, or a built-in source ({', '.join(BUILT_IN)})."
    )


def template_folder() -> Path:
    """Returns the path of PromptSource's template folder.

    It is set by the environment variable `LMEVAL_PROMPTSOURCE_DIR`, whose path need not exist;
    otherwise it is inside the installed package `promptsource`. Raises `ConfigError` if there is
    neither.
    """
    setting = os.environ.get(TEMPLATES_ENV_VAR)
    if setting:
        return _templates_in(Path(setting).expanduser())
    package = importlib.util.find_spec("promptsource")
    for place in package.submodule_search_locations or () if package else ():
        if (Path(place) / "templates").is_dir():
            return Path(place) / "templates"
    raise ConfigError(
        f"use_prompt: PromptSource's templates were not found. Set the environment variable "
        f"{TEMPLATES_ENV_VAR} to their folder, install the package promptsource, or name a folder: "
        "`use_prompt: path/to/templates:NAME`."
    )


def _templates_in(folder: Path) -> Path:
    """Returns `folder/templates` if it exists, otherwise `folder`."""
    inside = folder / "templates"
    return inside if inside.is_dir() else folder


def _file_for(root: Path, values: Mapping[str, Any]) -> Path:
    """Returns the `templates.yaml` of the task's dataset in the template folder `root`.

    Tries the folder `dataset_path`, then its last part (`name` of `owner/name`), because older
    templates have no owner. In each, the file of the subset (`dataset_name`) is preferred to that
    of the whole dataset. Raises `ConfigError` if there is no file, or if `dataset_path` is not set.
    """
    data, subset = values.get("dataset_path"), values.get("dataset_name")
    if not data:
        raise ConfigError(
            "use_prompt: PromptSource's templates are found by the name of the dataset, but the "
            "task does not set dataset_path. Set it, or name a template file: "
            "`use_prompt: path/to/templates.yaml:NAME`."
        )
    for name in dict.fromkeys((str(data), str(data).rpartition("/")[2])):
        for part in dict.fromkeys((subset, None)):
            file = root / name / (part or "") / "templates.yaml"
            if is_regular(file):
                return file
    beside = root / str(data).rpartition("/")[2]
    near = ", ".join(sorted(p.name for p in beside.glob("*/")) if is_folder(beside) else ())
    raise ConfigError(
        f"use_prompt: {root} has no templates for {data}{f' ({subset})' if subset else ''}."
        + (f" There are templates for these subsets: {near}." if near else "")
        + " Check dataset_path and dataset_name."
    )


# -- template files ---------------------------------------------------------------------------


class _TemplateLoader(TaskFileLoader):
    """A YAML loader that reads the mappings tagged `!Template` as plain dictionaries."""


for _tag in ("!Template", "!TemplateMetadata"):
    _TemplateLoader.add_constructor(
        _tag, lambda loader, node: loader.construct_mapping(node, deep=True)
    )


@cache
def read_templates(path: Path) -> list[Prompt]:
    """Returns the prompts of a template file, sorted by name. Files are cached by path.

    The file is a `templates.yaml` of PromptSource, or has a mapping `prompts:` with `doc_to_text`
    and `doc_to_target` by name. Raises `ConfigError` if it cannot be read or has another structure.
    """
    try:
        _, content = read_yaml(path, _TemplateLoader)
    except ConfigError as error:
        raise ConfigError(f"use_prompt: the template file {error}") from error
    try:
        prompts = sorted(_prompts_in(content), key=lambda prompt: prompt.name)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"use_prompt: {path} is not a file of prompt templates: expected `templates:` with "
            "name and jinja, or `prompts:` with doc_to_text and doc_to_target "
            f"({error!r})."
        ) from error
    return prompts


def _prompts_in(content: Any) -> Iterator[Prompt]:
    """Yields the prompts in the parsed content of a template file.

    If a name occurs several times under `templates`, "(2)" and so on is added to the later ones.
    Raises `KeyError`, `TypeError` or `AttributeError` if the content has another structure.
    """
    if "prompts" in content:
        for name, texts in content["prompts"].items():
            yield Prompt(str(name), f"{texts['doc_to_text']}{SEPARATOR}{texts['doc_to_target']}")
        return
    seen: dict[str, int] = {}
    for template in content["templates"].values():
        name = str(template["name"])
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:  # Some files of PromptSource contain a name twice.
            name = f"{name} ({seen[name]})"
        yield Prompt(name, template["jinja"], template.get("answer_choices"))


# -- rendering --------------------------------------------------------------------------------

#: The template variable that holds the random generator.
_GENERATOR_VARIABLE = "_draw"
#: Replaces `|||` in the columns of a document, so that it is not taken for a separator.
_ESCAPED_SEPARATOR = "\ue000\ue001\ue000"


def _escape(value: Any) -> Any:
    """Returns `value` with every `|||` in its strings replaced by a placeholder.

    It also looks inside mappings, lists and tuples; tuples become lists.
    """
    if isinstance(value, str):
        return value.replace(SEPARATOR, _ESCAPED_SEPARATOR)
    if isinstance(value, Mapping):
        return {key: _escape(item) for key, item in value.items()}
    return [_escape(item) for item in value] if isinstance(value, (list, tuple)) else value


def _escape_doc(doc: Doc) -> dict[str, Any]:
    """Returns a copy of a document with every `|||` in its columns replaced by a placeholder."""
    return {key: _escape(value) for key, value in doc.items()}


def _split(rendered: str) -> list[str]:
    """Returns the parts of a rendered template between `|||`, without whitespace around them.

    Separators that were escaped are restored. Returns an empty list for blank text.
    """
    parts = [
        part.strip().replace(_ESCAPED_SEPARATOR, SEPARATOR) for part in rendered.split(SEPARATOR)
    ]
    return [] if parts == [""] else parts


@pass_context
def _choice(context: Context, items: Any) -> Any:
    """Returns a random item: the template filter `choice`.

    In a template that is not a PromptSource prompt there is no seed, so the first item is returned.
    """
    options = list(items)
    generator = context.get(_GENERATOR_VARIABLE)
    return generator.choice(options) if generator is not None else options[0]


def _most_frequent(items: Any) -> list[Any]:
    """Returns the items that occur most often, each once: the template filter `most_frequent`."""
    listed = list(items)
    most = max(map(listed.count, listed), default=0)
    return list(dict.fromkeys(item for item in listed if listed.count(item) == most))


env.filters["choice"] = _choice
env.filters["most_frequent"] = _most_frequent
env.globals["zip"] = zip
