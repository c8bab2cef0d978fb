"""Tests whole runs: requests, scores and files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.api.task import ConfigurableTask, MultipleChoiceTask, PerplexityTask
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.results.table import make_table
from lm_eval.tasks import TaskManager, get_task_dict
from tests.conftest import Command, Folder

RIGHT = {"grass": "green", "blood": "red", "snow": "white", "coal": "black", "the sea": "blue"}


def painter() -> ScriptedLM:
    """Returns a model that knows the color of everything but pigs."""

    def judge(context: str, continuation: str) -> tuple[float, bool]:
        thing = context.rpartition("colour is ")[2].rstrip("?")
        return (-1.0, True) if RIGHT.get(thing, "blue") == continuation.strip() else (-2.0, False)

    return ScriptedLM(loglikelihood=judge)


def manager(folder: Folder) -> TaskManager:
    return TaskManager(include_path=folder.path)


def evaluated(folder: Folder, lm: LM, tasks: Any, **settings: Any) -> Any:
    results = lm_eval.simple_evaluate(lm, tasks=tasks, task_manager=manager(folder), **settings)
    assert results is not None
    return results


def test_a_multiple_choice_task_is_scored(colours: Folder) -> None:
    results = evaluated(colours, painter(), ["colours"])
    row = results["results"]["colours"]
    assert row["acc,none"] == 5 / 6
    assert row["acc_stderr,none"] == pytest.approx(math.sqrt(5 / 36 * 6 / 5 / 6))
    assert row["alias"] == "colours"
    assert results["n-samples"] == {"colours": {"original": 6, "effective": 6}}
    assert results["versions"] == {"colours": 1.0}
    assert results["n-shot"] == {"colours": 0}
    assert results["higher_is_better"] == {"colours": {"acc": True}}
    assert "groups" not in results


def test_each_choice_is_one_request(colours: Folder) -> None:
    lm = painter()
    evaluated(colours, lm, ["colours"], limit=1)
    assert lm.asked is lm.requests
    assert [request.args for request in lm.requests] == [
        ("Of what colour is grass?", " green"),
        ("Of what colour is grass?", " red"),
    ]
    assert [(r.task_name, r.doc_id, r.idx, r.repeats) for r in lm.requests] == [
        ("colours", 0, 0, 1),
        ("colours", 0, 1, 1),
    ]


def test_few_shot_prompts_show_other_documents(colours: Folder) -> None:
    lm = painter()
    evaluated(colours, lm, ["colours"], num_fewshot=2)
    for request in lm.requests:
        *shots, question = request.args[0].split("\n\n")
        assert len(shots) == 2
        assert question == f"Of what colour is {request.doc['thing']}?"
        assert all(request.doc["thing"] not in shot for shot in shots)


def test_a_task_that_says_zero_examples_means_it(colours: Folder) -> None:
    lm = painter()
    spec = {"task": "colours", "num_fewshot": 0}
    results = evaluated(colours, lm, [spec], num_fewshot=2)
    assert results["n-shot"] == {"colours": 0}
    assert "\n\n" not in lm.requests[0].args[0]


def test_limit_takes_the_first_or_a_share(colours: Folder) -> None:
    for limit, count in ((2, 2), (0.5, 3), (0.1, 1), (100, 6)):
        results = evaluated(colours, painter(), ["colours"], limit=limit)
        assert results["n-samples"]["colours"] == {"original": 6, "effective": count}


def test_samples_choose_documents_by_number(colours: Folder) -> None:
    results = evaluated(colours, painter(), ["colours"], samples={"colours": [5, 1, 5]})
    assert [s["doc"]["thing"] for s in results["samples"]["colours"]] == ["blood", "a pig"]
    assert [s["doc_id"] for s in results["samples"]["colours"]] == [1, 5]


def test_a_sample_says_what_was_asked_answered_and_scored(colours: Folder) -> None:
    sample = evaluated(colours, painter(), ["colours"])["samples"]["colours"][0]
    assert sample["target"] == 0
    assert sample["arguments"][1] == ("Of what colour is grass?", " red")
    assert sample["resps"] == [[(-1.0, True)], [(-2.0, False)]]
    assert sample["filtered_resps"] == [(-1.0, True), (-2.0, False)]
    assert sample["filter"] == "none"
    assert sample["metrics"] == ["acc"]
    assert sample["acc"] == 1.0
    assert all(len(sample[f"{part}_hash"]) == 64 for part in ("doc", "prompt", "target"))


def test_samples_are_left_out_when_not_wanted(colours: Folder) -> None:
    assert "samples" not in evaluated(colours, painter(), ["colours"], log_samples=False)


def counting(folder: Folder) -> Folder:
    """Writes a generation task with repeats and two filter pipelines."""
    folder.rows("sums.jsonl", [{"sum": f"{i}+1", "total": str(i + 1)} for i in range(3)])
    folder.write(
        "sums.yaml",
        """\
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{sum}} ="
doc_to_target: "{{total}}"
repeats: 3
generation_kwargs: {until: ["."], temperature: "0.5", do_sample: true}
metric_list:
  - metric: exact_match
filter_list:
  - name: first
    filter: [{function: take_first}]
  - name: vote
    filter: [{function: majority_vote}, {function: take_first}]
""",
    )
    return folder


def test_repeats_are_asked_together_and_filtered_apart(folder: Folder) -> None:
    answers = iter(["1", "9", "9", "2", "2", "9", "9", "3", "3"])
    lm = ScriptedLM(generate=lambda context, settings: next(answers))
    results = evaluated(counting(folder), lm, ["sums"])
    row = results["results"]["sums"]
    assert row["exact_match,first"] == pytest.approx(2 / 3)  # 1 and 2 right, 9 for 3 wrong
    assert row["exact_match,vote"] == pytest.approx(2 / 3)  # 9 for 1 wrong, 2 and 3 right
    assert len(lm.requests) == 9
    assert lm.requests[0].args == ("0+1 =", {"until": ["."], "temperature": 0.5, "do_sample": True})
    assert [s["filter"] for s in results["samples"]["sums"]] == ["first"] * 3 + ["vote"] * 3


def test_gen_kwargs_go_over_the_tasks_own(folder: Folder) -> None:
    lm = ScriptedLM(generate=lambda context, settings: "1")
    evaluated(counting(folder), lm, ["sums"], gen_kwargs="temperature=0,max_gen_toks=7", limit=1)
    assert lm.requests[0].args[1]["temperature"] == 0
    assert lm.requests[0].args[1]["max_gen_toks"] == 7
    assert lm.requests[0].args[1]["until"] == ["."]


def test_predict_only_asks_and_does_not_score(folder: Folder) -> None:
    lm = ScriptedLM(generate=lambda context, settings: "1")
    results = evaluated(counting(folder), lm, ["sums"], predict_only=True, log_samples=False)
    assert results["results"]["sums"]["bypass,first"] == 999
    assert results["samples"]["sums"][0]["resps"] == [["1", "1", "1"]]


def test_chat_prompts_go_through_the_models_template(colours: Folder) -> None:
    class Chatty(ScriptedLM):
        tokenizer_name = "chatty"

        def apply_chat_template(
            self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
        ) -> str:
            return "".join(f"<{m['role']}>{m['content']}" for m in chat_history) + "<assistant>"

        def chat_template(self, chat_template: bool | str = False) -> str:
            return "the template"

    lm = Chatty(loglikelihood=lambda context, continuation: (-1.0, False))
    results = evaluated(
        colours,
        lm,
        ["colours"],
        limit=1,
        apply_chat_template=True,
        system_instruction="Be brief.",
        num_fewshot=1,
        samples=None,
    )
    context, continuation = lm.requests[0].args
    assert context.startswith("<system>Be brief.<user>Of what colour is ")
    assert context.endswith("<user>Of what colour is grass?<assistant>")
    assert continuation == "green"
    assert results["chat_template"] == "the template"
    assert len(results["chat_template_sha"]) == 64


def test_results_say_how_they_were_made(colours: Folder) -> None:
    results = evaluated(colours, painter(), ["colours"], random_seed=3, fewshot_random_seed=4)
    assert results["config"]["model"] == "ScriptedLM"
    assert results["config"]["random_seed"] == 3
    assert results["config"]["fewshot_seed"] == 4
    assert results["lm_eval_version"] == lm_eval.__version__
    assert results["configs"]["colours"]["doc_to_choice"] == "colours"


def test_evaluate_takes_loaded_tasks_in_either_form(colours: Folder) -> None:
    for loaded in (
        manager(colours).load(["colours"]),
        get_task_dict(["colours"], manager(colours)),
    ):
        results = lm_eval.evaluate(painter(), loaded)
        assert results is not None
        assert results["results"]["colours"]["acc,none"] == 5 / 6


def test_values_a_metric_names_keep_its_aggregation(folder: Folder) -> None:
    counting(folder)
    folder.write(
        "tries.py",
        "def tries(references, predictions):\n    return {'at@1': 1.0, 'at@2': 3.0}\n"
        "def total(items):\n    return sum(items)\n",
    )
    text = (folder.path / "sums.yaml").read_text()
    metrics = "  - metric: !function tries.tries\n    aggregation: !function tries.total\n"
    metrics += "    higher_is_better: true\n"
    folder.write("sums.yaml", text.replace("metric_list:\n", f"metric_list:\n{metrics}"))
    lm = ScriptedLM(generate=lambda context, settings: "1")
    results = evaluated(folder, lm, ["sums"])
    assert results["results"]["sums"]["at@2,first"] == 9.0
    assert results["higher_is_better"]["sums"]["at@1"] is True


def test_a_backend_whose_package_is_missing_says_what_to_install(
    colours: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(model_registry._entries, "needy", "no_such_package_anywhere:Model")
    with pytest.raises(ModelError, match=r"'needy' needs the package 'no_such_package_anywhere'"):
        lm_eval.simple_evaluate("needy", tasks=["colours"], task_manager=manager(colours))


def test_a_model_that_loses_answers_is_an_error(colours: Folder) -> None:
    class Forgetful(ScriptedLM):
        def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
            return []

    with pytest.raises(ModelError, match="returned 0 answers for 12 requests"):
        evaluated(colours, Forgetful(), ["colours"])


def test_unsafe_tasks_need_confirmation(colours: Folder) -> None:
    spec = {"task": "colours", "unsafe_code": True}
    with pytest.raises(ConfigError, match="--confirm_run_unsafe_code"):
        evaluated(colours, painter(), [spec])
    evaluated(colours, painter(), [spec], confirm_run_unsafe_code=True)


def test_a_length_that_the_task_goes_before_is_said(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    counting(folder)
    file = folder.path / "sums.yaml"
    file.write_text(file.read_text() + "generation_kwargs: {until: ['.'], max_gen_toks: 8}\n")
    lm = ScriptedLM(generate=lambda context, settings: "1")
    evaluated(folder, lm, ["sums"], gen_kwargs="max_new_tokens=20")
    assert "sums: max_new_tokens in --gen_kwargs is ignored, because the task sets" in caplog.text
    caplog.clear()
    evaluated(folder, lm, ["sums"], gen_kwargs="max_gen_toks=20")
    assert "is ignored" not in caplog.text


def test_tasks_with_images_are_refused_by_text_models(colours: Folder) -> None:
    with pytest.raises(ModelError, match="images"):
        evaluated(colours, painter(), [{"task": "colours", "doc_to_image": "thing"}])


def test_python_classes_can_be_tasks() -> None:
    class Parrots(MultipleChoiceTask):
        VERSION = 3

        def download(self, *args: Any, **kwargs: Any) -> None:
            self.dataset = {}

        def has_training_docs(self) -> bool:
            return False

        def has_validation_docs(self) -> bool:
            return False

        def has_test_docs(self) -> bool:
            return True

        def test_docs(self) -> Any:
            return [{"query": "Polly wants a", "choices": ["cracker", "bike"], "gold": 0}] * 2

        def doc_to_text(self, doc: Any) -> str:
            return str(doc["query"])

    class Poems(PerplexityTask):
        def download(self, *args: Any, **kwargs: Any) -> None:
            self.dataset = {}

        def has_validation_docs(self) -> bool:
            return False

        def has_test_docs(self) -> bool:
            return True

        def test_docs(self) -> Any:
            return ["roses are red"]

    lm = ScriptedLM(loglikelihood=lambda c, t: (-float(len(t)), False), rolling=lambda text: -6.0)
    results = lm_eval.simple_evaluate(lm, tasks=[Parrots(), Poems()])
    assert results is not None
    assert results["results"]["Parrots"]["acc,none"] == 0.0
    assert results["results"]["Poems"]["word_perplexity,none"] == pytest.approx(math.e**2)
    assert results["versions"] == {"Parrots": 3, "Poems": None}


def test_a_configurable_task_can_be_subclassed(colours: Folder) -> None:
    class Loud(ConfigurableTask):
        def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> str:
            return str(super().doc_to_text(doc, doc_to_text)).upper()

    config = manager(colours).load("colours")["tasks"]["colours"].config
    lm = ScriptedLM(loglikelihood=lambda context, continuation: (-1.0, False))
    lm_eval.simple_evaluate(lm, tasks=[Loud(config=config)], limit=1)
    assert lm.requests[0].args[0] == "OF WHAT COLOUR IS GRASS?"


# -- files and tables -------------------------------------------------------------------------


def test_files_hold_the_results_and_recompute_to_them(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = lm_eval_command(
        *("run", "--model", "dummy", "--tasks", "demo", "--limit", "20"),
        *("--output_path", out, "--log_samples"),
    )
    assert done.returncode == 0, done.stderr
    (file,) = out.rglob("results_*.json")
    results = json.loads(file.read_text(encoding="utf-8"))
    assert set(results["task_hashes"]) == set(results["configs"])
    for task, config in results["configs"].items():
        (log,) = file.parent.glob(f"samples_{task}_*.jsonl")
        samples = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        for metric in config["metric_list"]:
            check_metric(metric["metric"], samples, results["results"][task])


def check_metric(metric: str, samples: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Recomputes a score from the sample log, by its definition."""
    for pipeline in {sample["filter"] for sample in samples}:
        values = [s[metric] for s in samples if s["filter"] == pipeline]
        reported = row[f"{metric},{pipeline}"]
        if metric == "perplexity":
            expected = math.exp(-sum(values) / len(values))
        elif metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
            rate = -sum(v[0] for v in values) / sum(v[1] for v in values)
            expected = rate / math.log(2) if metric == "bits_per_byte" else math.exp(rate)
        else:
            expected = sum(values) / len(values)
        assert reported == pytest.approx(expected)


def test_an_output_path_ending_in_json_names_the_file(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    lm_eval_command(
        *("run", "--model", "dummy", "--tasks", "demo_pairs", "--limit", "2"),
        *("--output_path", tmp_path / "mine.json"),
    )
    (file,) = tmp_path.glob("mine_*.json")
    assert "demo_pairs" in json.loads(file.read_text())["results"]


def test_settings_can_come_from_a_file_and_options_win(
    lm_eval_command: Command, folder: Folder
) -> None:
    config = folder.write("run.yaml", "model: dummy\ntasks: [demo_pairs]\nlimit: 3\n")
    done = lm_eval_command("run", "--config", config, "--limit", "2")
    assert done.returncode == 0, done.stderr
    assert "limit: 2.0" in done.stdout
    assert "pairs" in done.stdout


def test_a_pipe_sees_the_table_and_no_progress(lm_eval_command: Command) -> None:
    done = lm_eval_command("--model", "dummy", "--tasks", "demo_pairs", "--limit", "2")
    assert done.stderr == ""
    assert "|Stderr|" in done.stdout


def test_the_table_has_the_published_shape() -> None:
    results = {
        "results": {
            "g": {"alias": "Group", "acc,none": 0.25, "acc_stderr,none": 0.01},
            "a": {"alias": "a", "acc,none": 0.5, "acc_stderr,none": "N/A", "sample_len": 4},
            "b": {"alias": "b", "ppl,none": 12.0},
        },
        "group_subtasks": {"g": ["a"]},
        "versions": {"g": "1.0", "a": 2},
        "n-shot": {"g": 0, "a": 0, "b": 5},
        "higher_is_better": {"a": {"acc": True}, "b": {"ppl": False}},
    }
    assert make_table(results) == (
        "|Tasks|Version|Filter|n-shot|Metric|   | Value |   |Stderr|\n"
        "|-----|------:|------|-----:|------|---|------:|---|-----:|\n"
        "|Group|    1.0|none  |     0|acc   |   | 0.2500|±  |0.0100|\n"
        "| - a |      2|none  |     0|acc   |↑  | 0.5000|±  |   N/A|\n"
        "|b    |    N/A|none  |     5|ppl   |↓  |12.0000|   |      |\n"
    )


def test_truncated_prompts_and_missing_documents_stand_in_the_table() -> None:
    row = {"acc,none": 0.5, "acc_stderr,none": 0.1, "sample_len": 30}
    results: dict[str, Any] = {
        "results": {"g": {**row, "sample_len": 60}, "a": row, "b": row, "c": row},
        "groups": {"g": {**row, "sample_len": 60}},
        "group_subtasks": {"g": ["h", "lost"], "h": ["a", "b"], "a": [], "c": []},
        "versions": {},
    }

    def cells(column: str = "results") -> dict[str, list[str]]:
        lines = [line.strip("|").split("|") for line in make_table(results, column).splitlines()]
        return {line[0].strip(" -"): [cell.strip() for cell in line[9:]] for line in lines}

    plain = make_table(results), make_table(results, "groups")
    assert cells()["Tasks"] == []
    results["truncated_requests"] = {"a": 3, "b": 0}
    assert cells() == {
        **{"Tasks": ["Truncated prompts"], "": ["-" * 16 + ":"]},
        **{"g": ["3"], "a": ["3"], "b": [""], "c": [""]},
    }
    results["truncated_requests"] = {"a": 0}
    results["unanswered_documents"] = {"a": {"1": "too long"}, "b": {}, "lost": {"0": "filtered"}}
    assert cells()["Tasks"] == ["Missing"]
    assert cells()["a"] == ["3.2%"]  # 1 of 31
    assert cells()["b"] == [""]
    assert cells("groups")["g"] == ["3.2%"]  # 2 of 62
    results["unanswered_documents"] = {}
    assert plain == (make_table(results), make_table(results, "groups"))


def test_a_task_of_two_groups_has_a_row_in_each() -> None:
    row = {"alias": "a", "acc,none": 0.5}
    results = {
        "results": {"g": {**row, "alias": "g"}, "h": {**row, "alias": "h"}, "a": row},
        "group_subtasks": {"g": ["a"], "h": ["a"], "a": []},
        "versions": {},
        "n-shot": {},
        "higher_is_better": {},
    }
    names = [line.split("|")[1].rstrip() for line in make_table(results).splitlines()[2:]]
    assert names == ["g", " - a", "h", " - a"]
    once = make_table(results, sort_results=True).splitlines()[2:]
    assert [line.split("|")[1].rstrip() for line in once] == [" - a", "g", "h"]
