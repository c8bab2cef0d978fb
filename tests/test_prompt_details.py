"""Tests details of prompts that were once wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lm_eval.errors import ConfigError, DataError, EvalError
from lm_eval.prompts.formats import apply_format
from lm_eval.tasks import TaskManager
from tests.conftest import Folder


def variant(folder: Folder, old: str, new: str, name: str = "variant.yaml") -> str:
    text = (folder.path / "colours.yaml").read_text()
    assert old in text
    return str(folder.write(name, text.replace(old, new)))


def requests(spec: str, shots: int = 0, limit: int = 1) -> list[tuple[Any, ...]]:
    (task,) = TaskManager().load(spec)["tasks"].values()
    task.set_config("num_fewshot", shots)
    task.set_fewshot_seed(1)
    task.build_all_requests(limit=limit)
    return [request.args for request in task.instances]


COLUMNS = {"doc_to_text": "q", "doc_to_choice": "options", "doc_to_target": "gold"}


@pytest.mark.parametrize(
    ("values", "formats", "said"),
    [
        ({"doc_to_choice": ["A", "B", "C"]}, "mcqa", "which looks like labels"),
        ({"doc_to_text": "{{q}}\n{{options[0]}}"}, "cloze", "already contains the choices"),
        ({}, {"mcqa": {"choice_labels": None}}, "answers of this format are labels"),
        ({}, {"generate": {"choice_labels": None}}, "answers of this format are labels"),
        ({}, {"mcqa": {"choice_labels": "leters"}}, "letters, numbers, a list or null"),
        ({}, {"mcqa": {"question_prefix": 5}}, "question_prefix must be a string"),
        ({}, {"mcqa": "abc"}, "must be a mapping"),
    ],
)
def test_a_format_refuses_what_nobody_means(values: Any, formats: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        apply_format({**COLUMNS, **values, "formats": formats}, None)


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        (" B", "B"),
        (" B.", "B"),
        (" (B)", "B"),
        ("I think it is B", "B"),
        ("I reason. The best answer is **B**", "B"),
        ("A careful look shows B. So the best answer is: B.", "B"),
        ("The best answer is A. No, the best answer is B", "B"),
    ],
)
def test_the_letter_is_found_in_what_a_model_writes(answer: str, letter: str) -> None:
    written = apply_format({**COLUMNS, "formats": "generate"}, None)
    (pattern,) = [
        step["regex_pattern"]
        for pipeline in written["filter_list"]
        for step in pipeline["filter"]
        if "regex_pattern" in step
    ]
    found = re.findall(pattern, answer)[0]
    assert next(group for group in found if group) == letter


def test_another_formats_question_has_one_prefix() -> None:
    written = apply_format({**COLUMNS, "doc_to_text": "Question: {{q}}\nAnswer:"}, "cot")
    assert "Problem: {{q}}" in written["doc_to_text"]
    assert "Question:" not in written["doc_to_text"]


def test_a_file_may_be_asked_for_in_a_format(colours: Folder) -> None:
    asked = requests(f"{colours.path}/colours.yaml@mcqa")
    assert [continuation for _, continuation in asked] == [" A", " B"]


def test_an_examples_prefix_is_its_own_column(colours: Folder) -> None:
    shots = (
        "fewshot_config:\n  sampler: first_n\n  gen_prefix: hint\n  samples:\n"
        "    - {thing: soot, colours: [white, black], answer: 1, hint: 'Dark, so'}\n"
    )
    file = variant(colours, "metadata:", f"{shots}metadata:")
    context, _ = requests(file, shots=1)[0]
    assert context == ("Of what colour is soot? Dark, so black\n\nOf what colour is grass?")


def test_a_function_that_changes_its_document_changes_it_once(colours: Folder) -> None:
    colours.write("f.py", "def text(doc):\n    doc['thing'] += '!'\n    return doc['thing']\n")
    file = variant(colours, 'doc_to_text: "Of what', "doc_to_text: !function f.text #")
    assert requests(file)[0][0] == "grass!"


@pytest.mark.parametrize(
    "made", ["tuple(doc['colours'])", "__import__('numpy').array(doc['colours'])"]
)
def test_choices_may_be_a_tuple_or_an_array(colours: Folder, made: str) -> None:
    colours.write("f.py", f"def choices(doc):\n    return {made}\n")
    file = variant(colours, "doc_to_choice: colours", "doc_to_choice: !function f.choices")
    assert [continuation for _, continuation in requests(file)] == [" green", " red"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("doc_to_target: answer", "doc_to_target: none", r"document 0: the gold answer is None"),
        ("doc_to_target: answer", "doc_to_target: half", r"document 0: the gold answer is 0\.5"),
        ("doc_to_choice: colours", "doc_to_choice: holes", "returned None as a choice"),
        (
            "multiple_choice",
            "loglikelihood",
            "doc_to_target returned 0, but only text can be scored",
        ),
        ("metadata:", "fewshot_config: first_n\nmetadata:", "must be a mapping"),
        (
            "metadata:",
            "fewshot_config: {fewshot_indices: abc}\nmetadata:",
            "fewshot_indices must be a list",
        ),
        (
            "metadata:",
            "generation_kwargs: {until: 5}\nmetadata:",
            r"generation_kwargs\.until must be a string",
        ),
        ("{{thing}}", "{{ thing | regex_replace('(', '') }}", "in the template|the template"),
        ("{{thing}}", "{{ range(10**9) | length }}", "the template"),
        ('doc_to_text: "Of what', "doc_to_text: !function f.boom #", r"KeyError: 'zz' \(f\.py:2\)"),
    ],
)
def test_mistakes_are_told_before_anything_is_asked(
    colours: Folder, old: str, new: str, said: str
) -> None:
    colours.write("f.py", "def boom(doc):\n    return doc['zz']\n")
    text = (colours.path / "colours.jsonl").read_text()
    more = '"none": null, "half": 0.5, "holes": ["a", null], "thing"'
    colours.write("colours.jsonl", text.replace('"thing"', more))
    with pytest.raises(EvalError, match=said) as caught:
        requests(variant(colours, old, new), limit=6)
    assert str(caught.value).count("task 'colours'") == 1


def test_whole_texts_need_no_examples(colours: Folder) -> None:
    file = variant(
        colours,
        'output_type: multiple_choice\ndoc_to_text: "Of what colour is {{thing}}?"\n'
        "doc_to_choice: colours\ndoc_to_target: answer",
        "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{thing}}'",
    )
    text = (colours.path / "variant.yaml").read_text()
    colours.write("variant.yaml", text.replace("metric: acc", "metric: bits_per_byte"))
    assert requests(file, shots=99) == [("grass",)]


@pytest.mark.parametrize(
    "text",
    [
        '[{"q": 3.14159265358979}, {"q": 2.0}]',
        '{\n  "q": 1.5\n}\n{\n  "q": 2.5\n}\n',
        '{"q": 1}{"q": 2}',
        '\ufeff{"q": 1}\n{"q": 2}\n',
    ],
)
def test_json_is_read_as_the_library_reads_it(folder: Folder, text: str) -> None:
    import datasets

    from lm_eval.data import load_splits

    file = folder.write("rows.json", text)
    ours = load_splits("json", data_files={"test": str(file)})["test"]
    try:
        theirs = datasets.load_dataset(
            "json", data_files={"test": str(file)}, cache_dir=str(folder.path / "cache")
        )["test"]
    except Exception:  # it cannot read a byte order mark; we can
        assert [row["q"] for row in ours] == [1, 2]
    else:
        assert [row["q"] for row in ours] == [row["q"] for row in theirs]


def test_json_that_is_none_is_told_with_its_line(folder: Folder) -> None:
    from lm_eval.data import load_splits

    file = folder.write("rows.jsonl", '{"q": 1}\n{"q": \n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2"):
        load_splits("json", data_files={"test": str(file)})
