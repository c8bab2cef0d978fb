"""Runs the same checks on every task of the library.

Documents are generated (`library_rows.py`) or come from the mirror `../shared/data`; tasks that
have neither are skipped.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import meta

from lm_eval.api.instance import Instance
from lm_eval.errors import ConfigError
from lm_eval.prompts.template import env
from lm_eval.tasks import TaskManager
from lm_eval.tasks.check import problems_of
from tests import library_tasks as library
from tests.library_prompts import Asked, ask, prompt_hash, shots_of
from tools.generate_tasks import generated, generators

PINNED = Path(__file__).parent / "library_prompts.json"

#: Prefixes of tasks whose prompt reads the column of the gold answer, and why this is right.
READS_THE_ANSWER = {
    "lambada": "one text: all but its last word, and its last word",
    "mgsm_": "a worked answer tells examples, which have a heading, from questions",
    "coqa": "one column holds the answers of a conversation; all but the last are shown",
    "mbpp": "the tests that decide are shown: they tell the name of the function",
    "wmt1": "one column holds a sentence in both languages",
    "iwslt2017-": "one column holds a sentence in both languages",
}
#: Tasks of which a document has two equal choices, in the dataset itself.
SAME_CHOICES = {
    "mmlu_business_ethics_continuation": "a question of the data set has one choice twice",
}
#: The mirror's training rows are copies of test rows.
COPIED_EXAMPLES = ("hendrycks_math_",)
#: Tasks without few-shot examples: the published files have a list or a number as target.
NO_EXAMPLES = ("agieval_", "super_glue-wsc-t5-prompt", "webqs")


@functools.cache
def task_named(name: str) -> Any:
    source = library.source_of(name)
    if source is not None and not (source.is_generated or source.is_in_mirror):
        pytest.skip(f"no copy of {source.path}")
    try:
        return library.build(name)
    except ConfigError as error:
        if "pip install" in str(error):
            pytest.skip(str(error))
        raise


@functools.cache
def asked_by(name: str) -> list[Asked]:
    task = task_named(name)
    if name.startswith(NO_EXAMPLES):
        task.set_config("num_fewshot", 0)
    with library.data_for(name):
        return ask(task)


@functools.cache
def pinned() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(PINNED.read_text(encoding="utf-8"))
    return found


def choices_of(task: Any, doc: Any) -> list[str]:
    return list(map(str, task.doc_to_choice(doc))) if task.config.doc_to_choice else []


def gold_texts(task: Any, doc: Any) -> list[str]:
    """Returns the correct answers as text."""
    choices, target = choices_of(task, doc), task.doc_to_target(doc)
    targets = target if isinstance(target, list) else [target]
    return [choices[t] if isinstance(t, int) and choices else str(t) for t in targets]


class _Watched(dict[str, Any]):
    """A document that records which of its columns are read."""

    def __init__(self, doc: Any) -> None:
        super().__init__(doc)
        self.seen: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)


def columns_read(spec: Any, doc: Any) -> set[str]:
    """Returns the columns that a field of a task file reads; it may be a function or template."""
    if callable(spec):
        watched = _Watched(doc)
        spec(watched)
        return watched.seen
    if not isinstance(spec, str):
        return set()
    return {spec} if spec in doc else meta.find_undeclared_variables(env.parse(spec))


# -- the checks -------------------------------------------------------------------------------


def has_a_version(name: str, task: Any, asked: Sequence[Asked]) -> None:
    assert isinstance(task.VERSION, (int, float))


def renders(name: str, task: Any, asked: Sequence[Asked]) -> None:
    assert asked
    for item in asked:
        assert item.arguments, "nothing is asked"
        for kind, *arguments in item.arguments:
            assert kind in ("loglikelihood", "loglikelihood_rolling", "generate_until")
            assert all(isinstance(argument, str) for argument in arguments)
            assert any(argument.strip() for argument in arguments)


def has_a_gold_answer(name: str, task: Any, asked: Sequence[Asked]) -> None:
    if task.config.process_results is not None and task.OUTPUT_TYPE == "generate_until":
        return  # scored by code that gets the gold answer in another way
    for item in asked:
        golds = gold_texts(task, item.doc)
        assert any(gold.strip() for gold in golds), f"no gold answer: {golds}"
        choices = choices_of(task, item.doc)
        if choices and not task.multiple_input:
            assert all(gold in choices for gold in golds), f"{golds} are none of {choices}"
        if task.multiple_input:
            assert 0 <= item.question < len(choices)


def choices_differ(name: str, task: Any, asked: Sequence[Asked]) -> None:
    for item in asked:
        choices = choices_of(task, item.doc)
        if name not in SAME_CHOICES:
            assert len(set(choices)) == len(choices), choices


def does_not_read_the_answer(name: str, task: Any, asked: Sequence[Asked]) -> None:
    """Checks that the prompt does not read the column with the correct answer."""
    if not name.startswith(tuple(READS_THE_ANSWER)) and not task.multiple_input:
        assert not answers_read(task, asked[0].doc)


def answers_read(task: Any, doc: Any) -> set[str]:
    """Returns the columns with the correct answer that the prompt reads."""
    config = task.config
    told = columns_read(config.doc_to_target, doc) - columns_read(config.doc_to_choice, doc)
    prompt = (config.doc_to_text, config.description, config.gen_prefix)
    return told & set().union(*(columns_read(spec, doc) for spec in prompt))


def does_not_tell_the_answer(name: str, task: Any, asked: Sequence[Asked]) -> None:
    """Checks that not every document's prompt shows the correct choice without wrong ones."""
    if task.multiple_input or not task.config.doc_to_choice:
        return
    for item in asked:
        choices, golds = choices_of(task, item.doc), gold_texts(task, item.doc)
        shown = {choice for choice in choices if len(choice) > 1 and choice in item.context}
        if not shown or not shown <= set(golds):
            return
    raise AssertionError("every prompt holds its own answer")


def examples_are_others(name: str, task: Any, asked: Sequence[Asked]) -> None:
    """Checks that the question occurs in its prompt only once, so not among the examples."""
    if not shots_of(task) or name.startswith(COPIED_EXAMPLES):
        return
    for item in asked:
        question = item.question
        if not isinstance(question, str) or len(question.strip()) < 20:
            continue
        assert item.with_examples.count(question) == 1
        assert item.with_examples != item.context, "no examples are shown"


def prompts_are_those_of_the_version(name: str, task: Any, asked: Sequence[Asked]) -> None:
    version, known = pinned().get(name, ("none", ""))
    advice = "run tools/pin_prompts.py"
    assert version == str(task.VERSION), f"version {task.VERSION} is new: {advice}"
    changed = "prompts have changed, so the version must: raise metadata.version, and "
    assert known == prompt_hash(list(asked)), changed + advice


def is_scored_all_at_once(name: str, task: Any, asked: Sequence[Asked]) -> None:
    """Checks that log-likelihoods are scored for all documents at once, without a fallback."""
    own = any(metric.fn is not None for metric in task._metrics.shared.metrics.values())
    if task.OUTPUT_TYPE == "generate_until" or task.config.process_results is not None or own:
        return
    rolling = task.OUTPUT_TYPE == "loglikelihood_rolling"
    requests = []
    for number, item in enumerate(asked):
        arguments = enumerate(item.arguments)
        requests.append(
            [
                Instance(
                    kind,
                    item.doc,
                    tuple(texts),
                    place,
                    ("task", number, 1),
                    filtered_resps={"none": -1.0 if rolling else (-float(place), False)},
                    tokens=1,
                )
                for place, (kind, *texts) in arguments
            ]
        )
    columns = task.score_documents("none", requests)
    assert columns, "it falls back to scoring document by document"
    assert all(len(column) == len(asked) for column in columns.values())


CHECKS = (
    has_a_version,
    renders,
    has_a_gold_answer,
    choices_differ,
    does_not_read_the_answer,
    does_not_tell_the_answer,
    examples_are_others,
    is_scored_all_at_once,
    prompts_are_those_of_the_version,
)


@pytest.mark.parametrize("name", sorted(library.task_files()))
def test_task(name: str) -> None:
    task, asked = task_named(name), asked_by(name)
    failed = []
    for check in CHECKS:
        if check in (has_a_version, has_a_gold_answer, choices_differ) and name in library.CLASSES:
            continue  # Python classes with their own metrics and targets
        try:
            check(name, task, asked)
        except AssertionError as error:
            failed.append(f"{check.__name__}: {str(error).splitlines()[0]}")
    assert not failed, "; ".join(failed)


@pytest.mark.parametrize("prefix", READS_THE_ANSWER)
def test_an_exception_is_still_needed(prefix: str) -> None:
    names = [name for name in library.task_files() if name.startswith(prefix)]
    assert any(answers_read(task_named(name), asked_by(name)[0].doc) for name in names)


# -- the folders ------------------------------------------------------------------------------


@pytest.mark.parametrize("script", generators(), ids=lambda path: path.parent.name)
def test_generated_files_are_what_the_script_writes(script: Path) -> None:
    for path, text in generated(script).items():
        assert path.read_text(encoding="utf-8") == text, f"run tools/generate_tasks.py: {path.name}"


FOLDERS = sorted(path for path in library.LIBRARY.iterdir() if any(path.glob("**/*.yaml")))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_family_says_what_it_is(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert len(text.split()) > 25


def test_pins_are_of_tasks_that_exist() -> None:
    assert not set(pinned()) - set(library.task_files())


# -- the checks themselves --------------------------------------------------------------------

BROKEN = {
    does_not_read_the_answer: ("doc_to_text", "{{thing}} is {{answer}}"),
    does_not_tell_the_answer: ("doc_to_text", "{{thing}}: {{colours[answer]}}"),
    choices_differ: ("doc_to_choice", ["green", "green"]),
    has_a_gold_answer: ("doc_to_choice", "{{['', '']}}"),
    has_a_version: ("metadata", {"version": "new"}),
    prompts_are_those_of_the_version: ("doc_to_text", "{{thing}}"),
}


def coloured(colours: Any, **changes: Any) -> Any:
    config = yaml.safe_load((colours.path / "colours.yaml").read_text(encoding="utf-8"))
    config["dataset_kwargs"]["data_files"]["test"] = str(colours.path / "colours.jsonl")
    (task,) = library.manager().load([{**config, **changes}])["tasks"].values()
    return task


@pytest.mark.parametrize("check", BROKEN, ids=lambda check: check.__name__)
def test_a_check_finds_what_it_is_for(check: Any, colours: Any) -> None:
    field, value = BROKEN[check]
    sound, broken = coloured(colours), coloured(colours, **{field: value})
    if check is not prompts_are_those_of_the_version:
        check("colours", sound, ask(sound))
    with pytest.raises(AssertionError):
        check("colours", broken, ask(broken))


def test_a_task_that_falls_back_to_one_by_one_is_found(
    colours: Any, caplog: pytest.LogCaptureFixture
) -> None:
    task = coloured(colours)
    asked = ask(task)
    is_scored_all_at_once("colours", task, asked)
    assert "scored one by one" not in caplog.text
    broken = [replace(item, doc={**item.doc, "answer": None}) for item in asked]
    with pytest.raises(AssertionError):
        is_scored_all_at_once("colours", task, broken)
    reason = (
        "task 'colours': its documents cannot be scored all at once. They are scored one by one, "
        "to find the document that is the cause: the gold answer is None"
    )
    assert reason in caplog.text


def test_a_question_among_its_examples_is_found(colours: Any) -> None:
    task = coloured(colours)
    sound = ask(task)
    examples_are_others("colours", task, sound)
    twice = [replace(item, with_examples=item.question + item.with_examples) for item in sound]
    with pytest.raises(AssertionError):
        examples_are_others("colours", task, twice)


def test_validate_finds_nothing_in_the_library() -> None:
    manager = TaskManager()
    entries = [manager.task_index[name] for name in manager.all_tasks]
    assert problems_of(entries, manager.task_index) == []
