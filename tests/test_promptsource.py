"""Tests PromptSource templates: one of them, or all that match a pattern."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from lm_eval import simple_evaluate
from lm_eval.data import load_splits, mirror_at
from lm_eval.errors import ConfigError, DataError, UnknownNameError
from lm_eval.prompts.promptsource import Prompt, find_prompts, read_templates
from lm_eval.tasks import TaskManager
from tests.conftest import Folder

SHARED = Path(__file__).parents[2] / "shared"

TEMPLATES = """\
dataset: things
subset: colours
templates:
  0b1: !Template
    answer_choices: '{{colours | join(" ||| ")}}'
    id: 0b1
    jinja: "{{thing}} is ||| {{ answer_choices[answer] }}"
    metadata: !TemplateMetadata
      choices_in_prompt: false
      metrics: [Accuracy]
      original_task: true
    name: plain
    reference: ''
  0b2: !Template
    answer_choices: '{{colours | join(" ||| ")}}'
    id: 0b2
    jinja: |
      What colour is {{thing}}: {{ answer_choices | join(" or ") }}?
      ||| {{ answer_choices[answer] }}
    metadata: !TemplateMetadata
      choices_in_prompt: true
    name: "Shown, as a question?"
  0b3: !Template
    answer_choices: null
    id: 0b3
    jinja: "Say the colour of {{thing}}. ||| {{ colours[answer] }}"
    metadata: !TemplateMetadata {}
    name: free
"""


@pytest.fixture
def things(colours: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Writes the task `colours` with templates for a dataset of that name."""
    colours.write("templates/things/colours/templates.yaml", TEMPLATES)
    monkeypatch.setenv("LMEVAL_PROMPTSOURCE_DIR", str(colours.path / "templates"))
    # The task reads its own files, but its data set goes by the name the templates know.
    colours.write(
        "load.py",
        "import json, pathlib\n"
        "def load(**kwargs):\n"
        "    text = (pathlib.Path(__file__).parent / 'colours.jsonl').read_text()\n"
        "    return {'test': [json.loads(line) for line in text.splitlines()]}\n",
    )
    return colours


def task(folder: Folder, use_prompt: str, output_type: str = "multiple_choice") -> None:
    metric = "acc" if output_type == "multiple_choice" else "exact_match"
    folder.write(
        "asked.yaml",
        "task: asked\ncustom_dataset: !function load.load\n"
        "dataset_path: owner/things\ndataset_name: colours\ntest_split: test\n"
        f"output_type: {output_type}\nuse_prompt: {use_prompt!r}\n"
        f"metric_list: [{{metric: {metric}}}]\n",
    )


def requests(folder: Folder, name: str = "asked") -> dict[str, list[tuple[str, str]]]:
    """Returns the arguments of the first document's requests, by task."""
    loaded = TaskManager(include_path=folder.path).load([name])
    found = {}
    for task_name, built in loaded["tasks"].items():
        built.set_config("num_fewshot", 0)
        built.set_fewshot_seed(1)
        built.build_all_requests(limit=1)
        found[task_name] = [request.args for request in built.instances]
    return found


@pytest.mark.parametrize("use_prompt", ["plain", "promptsource:plain", "templates:plain"])
def test_a_prompt_is_used_by_name(things: Folder, use_prompt: str) -> None:
    task(things, use_prompt)
    assert requests(things) == {"asked": [("grass is", " green"), ("grass is", " red")]}


def test_a_pattern_fans_out_into_a_group(things: Folder) -> None:
    task(things, "promptsource:[Sp]*")
    assert requests(things) == {
        "asked::plain": [("grass is", " green"), ("grass is", " red")],
        "asked::shown-as-a-question": [
            ("What colour is grass: green or red?", " green"),
            ("What colour is grass: green or red?", " red"),
        ],
    }
    assert list(requests(things, "asked::plain")) == ["asked::plain"]
    results = simple_evaluate(
        "dummy", tasks=["asked"], task_manager=TaskManager(include_path=things.path)
    )
    assert results is not None
    assert sorted(results["group_subtasks"]["asked"]) == [
        "asked::plain",
        "asked::shown-as-a-question",
    ]
    assert results["results"]["asked::shown-as-a-question"]["alias"] == "Shown, as a question?"
    assert "What colour is" in results["configs"]["asked::shown-as-a-question"]["doc_to_text"]


def test_a_pattern_skips_prompts_that_do_not_fit_the_output_type(
    things: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    task(things, "promptsource:*")
    assert sorted(requests(things)) == ["asked::plain", "asked::shown-as-a-question"]
    (warning,) = [r.getMessage() for r in caplog.records if "use_prompt" in r.getMessage()]
    assert "1 of 3 prompts have no answer choices and are skipped" in warning
    assert warning.endswith("multiple_choice: 'free'.")
    caplog.clear()
    task(things, "promptsource:[fp]*")  # one is left, so the task is no group
    assert list(requests(things)) == ["asked"]
    assert len([r for r in caplog.records if "use_prompt" in r.getMessage()]) == 1
    task(things, "promptsource:fre*")  # none is left
    with pytest.raises(ConfigError, match="'free' has no answer choices"):
        requests(things)


@pytest.mark.parametrize("use_prompt", ["plain", "above:plain"])
def test_the_folder_above_the_templates_will_do(
    things: Folder, use_prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = things.path / "above"
    above.mkdir()
    (things.path / "templates").rename(above / "templates")
    monkeypatch.setenv("LMEVAL_PROMPTSOURCE_DIR", str(above))
    task(things, use_prompt)
    assert requests(things) == {"asked": [("grass is", " green"), ("grass is", " red")]}


def test_a_generated_answer_is_compared_with_the_templates_target(things: Folder) -> None:
    task(things, "free", "generate_until")
    (built,) = TaskManager(include_path=things.path).load(["asked"])["tasks"].values()
    assert built.doc_to_target(built.eval_docs[1]) == "red"


def test_a_file_of_prompts_may_be_named(things: Folder) -> None:
    things.write(
        "mine.yaml",
        "prompts:\n  short: {doc_to_text: '{{thing}}?', doc_to_target: '{{colours[answer]}}'}\n",
    )
    task(things, "mine.yaml:*", "generate_until")
    assert requests(things)["asked"][0][0] == "grass?"


@pytest.mark.parametrize(
    ("use_prompt", "said"),
    [
        ("plian", "no prompt 'plian'. Did you mean 'plain'"),
        ("promptsource:zzz*", "Available prompts: Shown, as a question?, free, plain"),
        ("nowhere:plain", "'nowhere' before the colon must be"),
        ("free", "has no answer choices"),
        ("gone.yaml:plain", "gone.yaml: this file cannot be read"),
        ("asked.yaml:plain", "is not a file of prompt templates"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_explained(
    things: Folder, use_prompt: str, said: str
) -> None:
    task(things, use_prompt)
    with pytest.raises((ConfigError, UnknownNameError), match=r"asked\.yaml") as caught:
        TaskManager(include_path=things.path).load(["asked"])
    assert said in str(caught.value)


def test_without_templates_the_ways_to_get_them_are_said(
    things: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LMEVAL_PROMPTSOURCE_DIR")
    task(things, "plain")
    with pytest.raises(ConfigError, match="LMEVAL_PROMPTSOURCE_DIR"):
        TaskManager(include_path=things.path).load(["asked"])


def test_a_data_set_without_templates_is_named(
    things: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMEVAL_PROMPTSOURCE_DIR", str(things.path / "tmp"))
    task(things, "plain")
    with pytest.raises(ConfigError, match=r"no templates for owner/things \(colours\)"):
        TaskManager(include_path=things.path).load(["asked"])


def test_bars_in_a_document_do_not_part_question_from_answer() -> None:
    prompt = Prompt("p", "{{q}} ||| {{a}}")
    assert prompt.parts({"q": "a ||| b", "a": "c"}) == ["a ||| b", "c"]


def test_a_random_pick_is_the_same_for_the_same_document() -> None:
    prompt = Prompt("p", "{{ ['a', 'b', 'c'] | choice }}{{n}} ||| {{ ['x', 'y'] | choice }}")
    picks = [prompt.parts({"n": n}) for n in range(30)]
    assert picks == [prompt.parts({"n": n}) for n in range(30)]
    assert {pick[0][0] for pick in picks} == {"a", "b", "c"}


def test_a_document_a_template_does_not_ask_about_is_told() -> None:
    prompt = Prompt("p", "{% if q %}{{q}} ||| yes{% endif %}")
    with pytest.raises(DataError, match="cannot be used for this document"):
        prompt.text({"q": ""})


# -- the real ones ----------------------------------------------------------------------------

needs_templates = pytest.mark.skipif(
    not (SHARED / "promptsource").is_dir(), reason="needs ../shared/promptsource"
)


@needs_templates
def test_every_template_file_is_read() -> None:
    files = sorted((SHARED / "promptsource" / "templates").rglob("templates.yaml"))
    assert len(files) == 279
    assert all(read_templates(file) for file in files)


@needs_templates
def test_templates_render_the_data_sets_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undefined variables are errors: a template may not name a missing column."""
    monkeypatch.setenv("LMEVAL_PROMPTSOURCE_DIR", str(SHARED / "promptsource" / "templates"))
    asked: dict[str, int] = {}
    with mirror_at(str(SHARED / "data")):
        for folder in sorted((SHARED / "data").glob("*/*/*/")):
            data = str(folder.parent.relative_to(SHARED / "data"))
            name = None if folder.name == "default" else folder.name
            values = {"dataset_path": data, "dataset_name": name, "use_prompt": "*"}
            try:
                prompts = find_prompts(values)
            except ConfigError:
                continue
            splits = load_splits(data, name)
            docs = list(islice(splits[next(iter(splits))], 5))
            parts = [len(prompt.parts(doc)) for prompt in prompts for doc in docs]
            assert set(parts) <= {0, 2}, data
            asked[f"{data} {name}"] = parts.count(2)
    assert len(asked) == 22
    assert all(asked.values()), asked
