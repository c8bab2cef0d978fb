"""PromptSource: one data set asked about in the many ways its template files hold.

A template is one Jinja text that spells question and answer with `|||` between them, and perhaps
the answers to choose from. `use_prompt` names one, or by a pattern many: the task then fans out.
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

import yaml
from jinja2 import pass_context
from jinja2.runtime import Context

from lm_eval.errors import ConfigError, DataError, UnknownNameError, suggestion
from lm_eval.prompts.template import apply_template, env, renders_none

logger = logging.getLogger(__name__)

SETTING = "LMEVAL_PROMPTSOURCE_DIR"
PARTED = "|||"
#: Prompts that the published harness knows by these names.
BUILT_IN = {
    "qa-basic": {
        "question-newline-answer": "Question: {{question}}\nAnswer:",
        "q-newline-a": "Q: {{question}}\nA:",
    },
}

Doc = Mapping[str, Any]


@dataclass(frozen=True)
class Prompt:
    """One template of a data set. Its methods are what a task's `doc_to_*` fields call."""

    name: str
    jinja: str
    answer_choices: str | None = None

    def parts(self, doc: Doc) -> list[str]:
        """The question and the answer; fewer where the template has nothing to ask here."""
        return _split(apply_template(self.jinja, self._known(doc)))

    def _known(self, doc: Doc) -> dict[str, Any]:
        """What the template may refer to."""
        known = {**_guarded(doc), _DRAW: self._draw(doc)}
        if self.answer_choices is not None:
            known["answer_choices"] = [_guard(choice) for choice in self.choices(doc)]
        return known

    def text(self, doc: Doc) -> str:
        return self._both(doc)[0]

    def target(self, doc: Doc) -> str:
        return self._both(doc)[1]

    def choices(self, doc: Doc) -> list[str]:
        known = {**_guarded(doc), _DRAW: self._draw(doc)}
        return _split(apply_template(self.answer_choices or "", known))

    def _both(self, doc: Doc) -> list[str]:
        parts = self.parts(doc)
        if len(parts) != 2:
            raise DataError(
                f"the prompt {self.name!r} does not ask about this document: it gives "
                f"{len(parts)} of question and answer. Choose another, or leave such documents "
                "out with process_docs."
            )
        return parts

    def _draw(self, doc: Doc) -> random.Random:
        """Where a template picks at random: always the same pick for the same document."""
        written = json.dumps(doc, sort_keys=True, default=str)
        digest = hashlib.sha256(f"{self.name}\n{written}".encode(errors="surrogatepass"))
        return random.Random(digest.digest())

    def fields(self) -> dict[str, Any]:
        """The task fields this prompt writes."""
        written: dict[str, Any] = {
            "doc_to_text": _Reader(self, Prompt.text),
            "doc_to_target": _Reader(self, Prompt.target),
        }
        if self.answer_choices is not None:
            written["doc_to_choice"] = _Reader(self, Prompt.choices)
        return written


class _Reader:
    """A prompt's method as a function, which shows its template where a task is written out."""

    def __init__(self, prompt: Prompt, read: Callable[[Prompt, Doc], Any]) -> None:
        self.prompt = prompt
        self.read = read

    def __call__(self, doc: Doc) -> Any:
        return self.read(self.prompt, doc)

    def none_in(self, doc: Doc) -> str | None:
        """Says so where the template writes the word `None` for a document."""
        if not renders_none(self.prompt.jinja, self.prompt._known(doc)):
            return None
        return f"writes the word None, by the prompt {self.prompt.name!r}"

    def __str__(self) -> str:
        part = self.read.__name__
        source = self.prompt.answer_choices if part == "choices" else self.prompt.jinja
        return f"{part} of {source}"


# -- which prompts ----------------------------------------------------------------------------


def apply_prompt(values: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """A task's fields with the prompt that `use_prompt` names, be it by a pattern."""
    spec = values.get("use_prompt")
    if spec is None:
        return dict(values)
    found = find_prompts(values, folder)
    if len(found) > 1:
        raise ConfigError(f"use_prompt: {spec!r} stands for {len(found)} prompts; name one.")
    written = found[0].fields()
    if values.get("output_type") != "multiple_choice":
        written.pop("doc_to_choice", None)
    elif "doc_to_choice" not in written:
        raise ConfigError(
            f"use_prompt: {found[0].name!r} has no choices to rank; "
            "set output_type: generate_until, or name another prompt."
        )
    if "{%" in found[0].jinja:
        written["process_docs"] = _Asked(found[0], values.get("process_docs"))
    return {**values, **written}


class _Asked:
    """`process_docs` of a prompt with conditions: the documents that it asks about."""

    def __init__(self, prompt: Prompt, before: Callable[[Any], Any] | None) -> None:
        self.prompt, self.before = prompt, before

    def __call__(self, docs: Any) -> Any:
        docs = docs if self.before is None else self.before(docs)
        numbers = [i for i, doc in enumerate(docs) if len(self.prompt.parts(doc)) == 2]
        if not numbers:
            raise DataError(f"the prompt {self.prompt.name!r} asks about none of the documents.")
        if len(numbers) < len(docs):
            logger.info(
                "the prompt %r asks about %d of %d documents.",
                self.prompt.name,
                len(numbers),
                len(docs),
            )
            docs = docs.select(numbers)
        return docs

    def __str__(self) -> str:
        return f"documents that {self.prompt.name} asks about"


def fan_out(values: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """What `use_prompt` is to be for each of the prompts it stands for, by the prompt's name.

    Logs one warning that names the prompts of a pattern which do not fit the output type.
    """
    if values.get("use_prompt") is None:
        return {}
    found, skipped = _fitting(values, folder)
    if skipped:
        logger.warning(
            "use_prompt: %r: %d of %d prompts have no choices to rank and are skipped, as the "
            "output type is multiple_choice: %s.",
            values["use_prompt"],
            len(skipped),
            len(skipped) + len(found),
            ", ".join(repr(prompt.name) for prompt in skipped),
        )
    source, _ = _source_and_name(values["use_prompt"])
    return {prompt.name: f"{source}:{prompt.name}" for prompt in found}


def find_prompts(values: Mapping[str, Any], folder: Path | None = None) -> list[Prompt]:
    """The prompts that `use_prompt` stands for: `name`, `promptsource:name` or a path before it.

    The name may be a pattern, which leaves out prompts that do not fit the task's output type.
    `folder` is where the task file lies; paths may be relative to it.
    """
    return _fitting(values, folder)[0]


def _fitting(values: Mapping[str, Any], folder: Path | None) -> tuple[list[Prompt], list[Prompt]]:
    """The prompts that `use_prompt` stands for, and those a pattern matches in vain.

    An exact name is taken whether it fits or not: `apply_prompt` refuses one that does not. So is
    a pattern of which nothing fits.
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
            f"There are: {', '.join(names)}."
        )
    return found, []


def _source_and_name(spec: Any) -> tuple[str, str]:
    if not isinstance(spec, str) or not spec:
        raise ConfigError(f"use_prompt must name a prompt, not {spec!r}.")
    source, mark, name = spec.partition(":")
    return (source, name) if mark else ("promptsource", spec)


def _prompts_of(source: str, values: Mapping[str, Any], folder: Path | None) -> list[Prompt]:
    if source in BUILT_IN:
        target = values.get("doc_to_target")
        answer = target if isinstance(target, str) and "{" in target else f"{{{{{target}}}}}"
        return [Prompt(n, f"{text}{PARTED}{answer}") for n, text in BUILT_IN[source].items()]
    if source == "promptsource":
        return read_templates(_file_for(template_folder(), values))
    path = (folder or Path()) / Path(source).expanduser()
    if path.is_dir():
        return read_templates(_file_for(_templates_in(path), values))
    if path.suffix in (".yaml", ".yml"):
        return read_templates(path)
    raise ConfigError(
        f"use_prompt: {source!r} before the colon must be `promptsource`, a templates folder, or "
        f"a YAML file; the prompts built in are {', '.join(BUILT_IN)}."
    )


def template_folder() -> Path:
    """Where PromptSource's templates lie: as set, or inside the installed package."""
    setting = os.environ.get(SETTING)
    if setting:
        return _templates_in(Path(setting).expanduser())
    package = importlib.util.find_spec("promptsource")
    for place in package.submodule_search_locations or () if package else ():
        if (Path(place) / "templates").is_dir():
            return Path(place) / "templates"
    raise ConfigError(
        f"use_prompt: PromptSource's templates are not here. Set {SETTING} to a folder of them, "
        "install the package promptsource, or name a folder: `use_prompt: path/to/templates:NAME`."
    )


def _templates_in(folder: Path) -> Path:
    """Returns the folder of templates: the one given, or `templates/` inside it."""
    inside = folder / "templates"
    return inside if inside.is_dir() else folder


def _file_for(root: Path, values: Mapping[str, Any]) -> Path:
    """A data set's template file. Newer hub names carry an owner that the templates' do not."""
    data, subset = values.get("dataset_path"), values.get("dataset_name")
    if not data:
        raise ConfigError("use_prompt: the task names no data set to find the templates of.")
    for name in dict.fromkeys((str(data), str(data).rpartition("/")[2])):
        for part in dict.fromkeys((subset, None)):
            file = root / name / (part or "") / "templates.yaml"
            if file.is_file():
                return file
    near = ", ".join(sorted(p.name for p in (root / str(data).rpartition("/")[2]).glob("*/")))
    raise ConfigError(
        f"use_prompt: {root} has no templates for {data}{f' ({subset})' if subset else ''}."
        + (f" It has them for: {near}." if near else "")
    )


# -- template files ---------------------------------------------------------------------------


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads the tagged mappings of template files as plain ones."""


for _tag in ("!Template", "!TemplateMetadata"):
    _Loader.add_constructor(_tag, lambda loader, node: loader.construct_mapping(node, deep=True))


@cache
def read_templates(path: Path) -> list[Prompt]:
    """Every prompt of a file: PromptSource's own kind, or `prompts:` with `doc_to_*` texts."""
    try:
        content = yaml.load(path.read_bytes(), _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{path}: is not a file of prompt templates: {reason}.") from error
    try:
        prompts = sorted(_prompts_in(content), key=lambda prompt: prompt.name)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: is not a file of prompt templates: expected `templates:` with name and "
            f"jinja, or `prompts:` with doc_to_text and doc_to_target ({error!r})."
        ) from error
    return prompts


def _prompts_in(content: Any) -> Iterator[Prompt]:
    if "prompts" in content:
        for name, texts in content["prompts"].items():
            yield Prompt(str(name), f"{texts['doc_to_text']}{PARTED}{texts['doc_to_target']}")
        return
    seen: dict[str, int] = {}
    for template in content["templates"].values():
        name = str(template["name"])
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:  # some files use a name twice
            name = f"{name} ({seen[name]})"
        yield Prompt(name, template["jinja"], template.get("answer_choices"))


# -- rendering --------------------------------------------------------------------------------

_DRAW = "_draw"
#: Stands for a `|||` of the document itself while question and answer are told apart.
_GUARD = "\ue000\ue001\ue000"


def _guard(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(PARTED, _GUARD)
    if isinstance(value, Mapping):
        return {key: _guard(item) for key, item in value.items()}
    return [_guard(item) for item in value] if isinstance(value, (list, tuple)) else value


def _guarded(doc: Doc) -> dict[str, Any]:
    return {key: _guard(value) for key, value in doc.items()}


def _split(rendered: str) -> list[str]:
    parts = [part.strip().replace(_GUARD, PARTED) for part in rendered.split(PARTED)]
    return [] if parts == [""] else parts


@pass_context
def _choice(context: Context, items: Any) -> Any:
    """Pick one at random; outside a prompt, with no document to seed it, the first."""
    options = list(items)
    draw = context.get(_DRAW)
    return draw.choice(options) if draw is not None else options[0]


def _most_frequent(items: Any) -> list[Any]:
    """The items that occur most often, each once."""
    listed = list(items)
    most = max(map(listed.count, listed), default=0)
    return list(dict.fromkeys(item for item in listed if listed.count(item) == most))


env.filters["choice"] = _choice
env.filters["most_frequent"] = _most_frequent
env.globals["zip"] = zip
