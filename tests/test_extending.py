"""Tests adding a metric, an aggregation or a sampler in one file, and that tasks share no state."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import lm_eval
from lm_eval.api import registry
from lm_eval.api.registry import (
    get_sampler,
    register_aggregation,
    register_likelihood_metric,
    register_sampler,
)
from lm_eval.api.samplers import SAMPLER_REGISTRY, ContextSampler, FirstNSampler
from lm_eval.entry_points import PluginEntry
from lm_eval.errors import ConfigError, DataError, EvalError, UnknownNameError
from lm_eval.metrics.documents import Choices, Targets
from lm_eval.metrics.uncertainty import standard_error
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder


@pytest.fixture(autouse=True)
def _leave_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the names that these tests register after each of them."""
    for kept in (
        registry.metric_registry,
        registry.metric_agg_registry,
        registry.metric_output_registry,
        registry.higher_is_better_registry,
        registry.aggregation_registry,
        registry.sampler_registry,
        *registry.likelihood_registries.values(),
    ):
        len(kept)  # the built-in names first, so that they stay
        monkeypatch.setattr(kept, "_entries", dict(kept._entries))
        monkeypatch.setattr(kept, "_third_party", set(kept._third_party))


def change(folder: Folder, old: str, new: str) -> None:
    file = folder.path / "colours.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def longer_is_likelier(context: str, continuation: str) -> tuple[float, bool]:
    return -10.0 + len(continuation) - (0.5 if context else 0.0), False


def row(folder: Folder, **settings: Any) -> dict[str, Any]:
    """Returns the results of the task `colours`; the model prefers longer choices."""
    results = lm_eval.simple_evaluate(
        ScriptedLM(loglikelihood=longer_is_likelier),
        tasks=["colours"],
        task_manager=TaskManager(include_path=folder.path),
        **settings,
    )
    assert results is not None
    found: dict[str, Any] = results["results"]["colours"]
    return found


# -- metrics ----------------------------------------------------------------------------------


def test_a_metric_of_choices_is_one_registration(colours: Folder) -> None:
    calls = []

    @register_likelihood_metric(
        metric="margin", output_type="multiple_choice", higher_is_better=True, aggregation="mean"
    )
    def margin(documents: Choices) -> list[float]:
        calls.append(len(documents.golds))
        best = documents.loglikelihoods.max(axis=1)
        return (best - documents.loglikelihoods.min(axis=1)).tolist()

    change(colours, "  - metric: acc\n", "  - metric: margin\n  - metric: acc\n")
    found = row(colours)
    assert found["margin,none"] == pytest.approx((2 + 2 + 0 + 0 + 0 + 0) / 6)
    assert found["acc,none"] == pytest.approx(3 / 6)
    assert calls == [6]  # all documents at once


def test_a_metric_of_a_task_folder_is_one_registration(colours: Folder) -> None:
    colours.write(
        "helpers.py",
        "from lm_eval.api.registry import register_likelihood_metric\n\n"
        "@register_likelihood_metric(metric='folder_longest', output_type='multiple_choice',\n"
        "                            higher_is_better=True, aggregation='mean')\n"
        "def folder_longest(documents):\n"
        "    return documents.hits(documents.characters.argmax(axis=1))\n",
    )
    change(colours, "  - metric: acc\n", "  - metric: folder_longest\n")
    assert row(colours)["folder_longest,none"] == pytest.approx(3 / 6)


def test_a_metric_may_need_the_choices_without_the_question(colours: Folder) -> None:
    @register_likelihood_metric(
        metric="gain",
        output_type="multiple_choice",
        higher_is_better=True,
        aggregation="mean",
        needs=["unconditional"],
    )
    def gain(documents: Choices) -> list[float]:
        assert documents.unconditional is not None
        return (documents.loglikelihoods - documents.unconditional).mean(axis=1).tolist()

    change(colours, "  - metric: acc\n", "  - metric: acc\n  - metric: gain\n")
    found = row(colours)
    assert found["gain,none"] == pytest.approx(-0.5)
    assert found["acc,none"] == pytest.approx(3 / 6)


def test_a_metric_that_needs_tokens_has_them_counted(colours: Folder) -> None:
    @register_likelihood_metric(
        metric="size",
        output_type="multiple_choice",
        higher_is_better=True,
        aggregation="mean",
        needs=["tokens"],
    )
    def size(documents: Choices) -> list[float]:
        return documents.tokens.sum(axis=1).tolist()

    change(colours, "  - metric: acc\n", "  - metric: size\n")
    manager = TaskManager(include_path=colours.path)
    results = lm_eval.simple_evaluate("demo", tasks=["colours"], task_manager=manager)
    assert results is not None
    assert results["results"]["colours"]["size,none"] >= 2


def test_a_metric_of_targets_is_one_registration(colours: Folder) -> None:
    @register_likelihood_metric(
        metric="nats", output_type="loglikelihood", higher_is_better=False, aggregation="mean"
    )
    def nats(targets: Targets) -> list[float]:
        return [-value for value in targets.loglikelihoods]

    change(colours, "multiple_choice", "loglikelihood")
    change(colours, "doc_to_choice: colours\n", "")
    change(colours, "doc_to_target: answer", "doc_to_target: thing")
    change(colours, "  - metric: acc\n", "  - metric: nats\n")
    assert row(colours)["nats,none"] == pytest.approx(10.5 - sum((5, 5, 4, 4, 7, 5)) / 6)


def test_a_metric_is_refused_for_an_output_type_it_is_not_registered_for(colours: Folder) -> None:
    change(colours, "  - metric: acc\n", "  - metric: perplexity\n")
    with pytest.raises(
        ConfigError, match=r"only for loglikelihood\. Metrics for this output type: acc, acc_b"
    ):
        row(colours)


def test_a_metric_that_fails_is_told_with_its_task(colours: Folder) -> None:
    @register_likelihood_metric(
        metric="broken", output_type="multiple_choice", higher_is_better=True, aggregation="mean"
    )
    def broken(documents: Choices) -> list[float]:
        raise ZeroDivisionError("nothing to divide by")

    change(colours, "  - metric: acc\n", "  - metric: broken\n")
    told = r"task 'colours': scoring its documents failed: ZeroDivisionError.*test_extending\.py:"
    with pytest.raises(EvalError, match=told):
        row(colours)


def test_an_aggregation_is_left_as_it_was_when_it_is_registered() -> None:
    def spread(items: list[float]) -> float:
        return max(items) - min(items)

    assert standard_error(spread, [1.0, 2.0, 5.0], 100) is None
    register_aggregation("spread", bootstrap=True)(spread)
    assert not vars(spread)
    assert (standard_error(spread, [1.0, 2.0, 5.0], 100) or 0) > 0


# -- samplers ---------------------------------------------------------------------------------


def test_a_sampler_is_registered_and_used_by_name(colours: Folder) -> None:
    @register_sampler("last_n")
    class LastN(ContextSampler):
        def sample(self, n: int, eval_doc: Any = None, df: Any = None, **kwargs: Any) -> Any:
            return self.df[-n:]

    change(
        colours,
        "test_split: test",
        "test_split: test\nfewshot_split: test\nfewshot_config: {sampler: last_n}",
    )
    (task,) = TaskManager(include_path=colours.path).load("colours")["tasks"].values()
    task.set_fewshot_seed(1)
    prompt = task.fewshot_context(task.eval_docs[0], 2)
    assert prompt.startswith("Of what colour is the sea? blue\n\nOf what colour is a pig? pink")
    assert get_sampler("last_n") is LastN


def test_a_sampler_of_a_task_folder_is_used_by_name(colours: Folder) -> None:
    colours.write(
        "sampling.py",
        "from lm_eval.api.samplers import ContextSampler, register_sampler\n\n"
        "@register_sampler('folder_last')\n"
        "class Last(ContextSampler):\n"
        "    def sample(self, n, eval_doc=None, df=None, **kwargs):\n"
        "        return self.df[-n:]\n",
    )
    change(
        colours,
        "test_split: test",
        "test_split: test\nfewshot_split: test\nfewshot_config: {sampler: folder_last}",
    )
    manager = TaskManager(include_path=colours.path)
    (task,) = manager.load("colours")["tasks"].values()
    task.set_fewshot_seed(1)
    assert "a pig" in task.fewshot_context(task.eval_docs[0], 1)


def test_an_installed_package_may_bring_a_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = PluginEntry("installed", "lm_eval.prompts.fewshot:FirstNSampler", "some-package")

    def plugin_entries(group: str) -> list[PluginEntry]:
        return [entry] if group == "lm_eval.samplers" else []

    monkeypatch.setattr(registry, "plugin_entries", plugin_entries)
    monkeypatch.setattr(registry.sampler_registry, "_complete", False)
    assert get_sampler("installed") is FirstNSampler


def test_the_table_of_samplers_is_a_mapping() -> None:
    assert dict(SAMPLER_REGISTRY) == {"default": ContextSampler, "first_n": FirstNSampler}
    assert (SAMPLER_REGISTRY.get("nowhere"), "first_n" in SAMPLER_REGISTRY) == (None, True)
    SAMPLER_REGISTRY["mine"] = FirstNSampler
    assert get_sampler("mine") is FirstNSampler
    with pytest.raises(UnknownNameError, match="Did you mean 'first_n'"):
        SAMPLER_REGISTRY["frist_n"]


# -- tasks ------------------------------------------------------------------------------------


def colours_task(folder: Folder) -> Any:
    (task,) = TaskManager(include_path=folder.path).load("colours")["tasks"].values()
    task.set_config("num_fewshot", 0)
    task.set_fewshot_seed(1)
    task.build_all_requests()
    return task


def test_a_copy_with_other_requests_leaves_the_task_its_own(colours: Folder) -> None:
    task = colours_task(colours)
    before = list(task.instances)
    copied = task.with_requests(before[:2])
    assert (len(copied.instances), len(task.instances)) == (2, 12)
    copied.set_requests(None)
    assert (copied.instances, task.instances) == ([], before)


def test_a_task_counts_gold_answers_that_are_no_choice(colours: Folder) -> None:
    task = colours_task(colours)
    for request in task.instances:
        request.filtered_resps = {"none": (-1.0, False)}
    asked = [task.instances[i : i + 2] for i in range(0, 12, 2)]
    for requests in asked[:2]:
        requests[0].doc["answer"] = 7
    task.begin_scoring()
    task.score_documents("none", asked)
    assert task.gold_missing == 2
    task.begin_scoring()
    assert task.gold_missing == 0
    for requests in asked:
        task.score_document("none", requests[0].doc, [(-1.0, False)] * 2)
    assert task.gold_missing == 2


def test_the_reason_for_scoring_document_by_document_is_logged(
    colours: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    colours.write(
        "helpers.py",
        "def choices(doc):\n    return {'grass': ['green', 'red']}[doc['thing']]\n",
    )
    task = colours_task(colours)
    task.set_config("doc_to_choice", lambda doc: {"grass": ["green", "red"]}[doc["thing"]])
    with caplog.at_level(logging.WARNING):
        assert task.score_documents("none", [[r] for r in task.instances]) is None
    assert "task 'colours': its documents cannot be scored all at once" in caplog.text
    assert "the document that is the cause: doc_to_choice failed: KeyError" in caplog.text


def test_a_mistake_of_ours_in_scoring_is_not_swallowed(
    colours: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = colours_task(colours)
    for request in task.instances:
        request.filtered_resps = {"none": (-1.0, False)}
    asked = [task.instances[i : i + 2] for i in range(0, 12, 2)]
    monkeypatch.setattr(Choices, "hits", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        task.score_documents("none", asked)


def test_an_answer_that_is_no_pair_is_told_with_its_document(colours: Folder) -> None:
    colours.write(
        "own.py",
        "class Odd:\n"
        "    def apply(self, resps, docs):\n"
        "        return [[None] if d['thing'] == 'coal' else r for r, d in zip(resps, docs)]\n",
    )
    pipeline = (
        "filter_list:\n  - name: odd\n    filter:\n      - function: !function own.Odd\n"
        "      - function: take_first\n"
    )
    change(colours, "metric_list:", f"{pipeline}metric_list:")
    told = "'colours', document 3: scoring it failed: an answer is not a pair"
    with pytest.raises(DataError, match=told):
        row(colours)
