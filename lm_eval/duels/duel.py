"""Asks two models the same documents in a random order until it is known which one is better."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from lm_eval.config.run import RunConfig, absolute_path
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.duels.contestant import Contestant
from lm_eval.duels.decisions import Decision, Outcome, decide, outcome_of
from lm_eval.duels.paired_scores import PairedScores, check_metric
from lm_eval.duels.schedule import Place, by_task, next_portion, random_order
from lm_eval.errors import ConfigError, DataError
from lm_eval.launch import launched_count
from lm_eval.results.names import file_name
from lm_eval.results.provenance import model_name
from lm_eval.stats.confidence_sequence import ConfidenceSequence

logger = logging.getLogger(__name__)

#: Settings that may differ between the two runs of a duel; all others must be equal.
_OF_THE_MODEL = {
    *("model", "model_args", "batch_size", "max_batch_size", "device", "trust_remote_code"),
    *("apply_chat_template", "fewshot_as_multiturn", "output_path", "use_cache"),
}


@dataclass(frozen=True)
class DuelSettings:
    """How a duel is fought.

    Attributes:
        metric: the metric to decide by: its name, or `metric,filter`; None for the first metric of
            each task with scores between 0 and 1.
        alpha: the probability of a wrong decision that is allowed, for each decision.
        seed: the seed of the order of documents.
        each: whether to go on until every task is decided; otherwise until all tasks together are.
        one_at_a_time: whether only one model is loaded at a time. Portions are then larger.
    """

    metric: str | None = None
    alpha: float = 0.05
    seed: int = DEFAULT_OTHER_SEED
    each: bool = True
    one_at_a_time: bool = False

    @property
    def growth(self) -> float:
        """The size of a portion as a share of the documents asked before."""
        return 1.0 if self.one_at_a_time else 0.25


@dataclass(frozen=True)
class Duel:
    """What a duel has found out.

    Attributes:
        labels: the names of the two models.
        alpha: the probability of a wrong decision that was allowed.
        tasks: one decision per task.
        pooled: the decision about all documents of all tasks; None for a single task.
    """

    labels: tuple[str, str]
    alpha: float
    tasks: Sequence[Decision]
    pooled: Decision | None

    @property
    def asked(self) -> int:
        """The number of documents that both models were asked."""
        return sum(decision.asked for decision in self.tasks)

    @property
    def documents(self) -> int:
        """The number of documents that there are."""
        return sum(decision.documents for decision in self.tasks)


def duel(
    first: RunConfig,
    second: RunConfig,
    settings: DuelSettings | None = None,
    on_portion: Callable[[Duel], None] | None = None,
) -> Duel:
    """Asks two models until it is known which is better, and returns what was found.

    Both runs are on the same tasks with the same settings; only the models differ. With an
    `output_path`, the answers of each model are stored in its run folder, and a duel that was
    interrupted asks only for what is missing when it is started again.

    Args:
        first: the settings of the first model's run on all documents.
        second: those of the second model's.
        settings: how the duel is fought.
        on_portion: called after every portion with what is known.

    Raises:
        ConfigError: the runs differ in more than the model, or a setting is invalid.
        DataError: a task cannot be decided: it has a single document, or no metric with scores
            between 0 and 1.
        ModelError: a request failed. The other answers are stored.
    """
    settings = settings or DuelSettings()
    _check(first, second, settings)
    labels = _labels(first, second)
    runs = _with_folders(first, second)
    pair = Contestant(runs[0], labels[0]), Contestant(runs[1], labels[1])
    for one in pair:
        one.load_tasks()
    for name, task in pair[0].tasks.items():
        check_metric(name, task, settings.metric)
    try:
        with ExitStack() as folders:
            for one in pair:
                folders.enter_context(one.in_folder())
            return _Contest(pair, settings, on_portion).fight()
    except KeyboardInterrupt as stop:
        if first.output_path is None:
            raise
        hint = "The answers so far are stored; the same command continues the duel."
        raise KeyboardInterrupt(hint) from stop


class _Contest:
    """A duel in progress: the scores so far, and a confidence sequence for each decision."""

    def __init__(
        self,
        pair: tuple[Contestant, Contestant],
        settings: DuelSettings,
        on_portion: Callable[[Duel], None] | None,
    ) -> None:
        self._pair, self._settings, self._on_portion = pair, settings, on_portion
        counts = pair[0].populations()
        _check_populations(counts, pair[1].populations())
        self._scores = {n: PairedScores(n, count, settings.metric) for n, count in counts.items()}
        self._sequences = {n: ConfidenceSequence(c, settings.alpha) for n, c in counts.items()}
        self._advantages: dict[str, list[float]] = {name: [] for name in counts}
        self._order = random_order(counts, settings.seed)
        self._pooled = ConfidenceSequence(len(self._order), settings.alpha)
        self._pooled_advantages: list[float] = []
        self._checked = False

    def fight(self) -> Duel:
        """Asks portions until all decisions are made, and returns them.

        First in the common order of all documents, until all tasks together are decided; then, if
        every task is to be decided, in the order of each task that is not.
        """
        while self._pooled.sign is None:
            seen = self._pooled.seen
            places = self._order[seen : seen + next_portion(seen, self._settings.growth)]
            self._ask(places)
            for name, number in places:
                self._pooled_advantages += self._scores[name].advantages([number])
            self._pooled.add(self._pooled_advantages[seen:])
            self._report()
        rest = by_task(self._order[self._pooled.seen :])
        while self._settings.each and (undecided := self._undecided()):
            portion: list[Place] = []
            for name in undecided:
                size = next_portion(self._sequences[name].seen, self._settings.growth)
                portion += [(name, number) for number in rest[name][:size]]
                rest[name] = rest[name][size:]
            self._ask(portion)
            self._report()
        if all(len(one.first) == one.documents for one in self._scores.values()):
            for contestant in self._pair:
                contestant.save_results()
                self._make_room(contestant)
        return self._state()

    def _undecided(self) -> list[str]:
        return [name for name, one in self._sequences.items() if outcome_of(one) is Outcome.OPEN]

    def _ask(self, places: Sequence[Place]) -> None:
        """Asks both models some documents and adds their scores."""
        documents = by_task(places)
        answers = []
        for contestant in self._pair:
            answers.append(contestant.ask(documents))
            self._make_room(contestant)
        if not self._checked:
            _check_same_requests(*self._pair)
            self._checked = True
        for name, numbers in documents.items():
            self._scores[name].add(numbers, answers[0][name], answers[1][name])
            new = self._scores[name].advantages(numbers)
            self._advantages[name] += new
            self._sequences[name].add(new)

    def _make_room(self, contestant: Contestant) -> None:
        if self._settings.one_at_a_time:
            contestant.unload()

    def _report(self) -> None:
        if self._on_portion is not None:
            self._on_portion(self._state())

    def _state(self) -> Duel:
        """Returns what is known now."""
        labels = self._pair[0].label, self._pair[1].label
        tasks = [
            decide(
                self._sequences[name],
                self._advantages[name],
                labels,
                name,
                one.key,
                one.means(),
            )
            for name, one in self._scores.items()
        ]
        pooled = None
        if len(tasks) > 1:
            pooled = decide(self._pooled, self._pooled_advantages, labels)
        return Duel(labels, self._settings.alpha, tasks, pooled)


def _check(first: RunConfig, second: RunConfig, settings: DuelSettings) -> None:
    """Raises `ConfigError` for a duel that cannot work, before anything is loaded."""
    if not 0 < settings.alpha < 1:
        raise ConfigError(f"alpha must be between 0 and 1, such as 0.05, not {settings.alpha:g}.")
    if launched_count() > 1:
        raise ConfigError(
            "a duel runs in a single process: start it without accelerate launch or torchrun."
        )
    if first.task_list != second.task_list:
        listed = " and ".join(
            ",".join(map(str, run.task_list)) or "none" for run in (first, second)
        )
        raise ConfigError(
            f"both models must be asked the same tasks, but these are {listed}. Give --tasks, "
            "which replaces the tasks of both configurations."
        )
    for run in (first, second):
        for name in ("samples", "sample"):
            if getattr(run, name) is not None:
                raise ConfigError(
                    f"{name} cannot be used in a duel, which draws documents at random itself; "
                    "limit restricts it to the first documents of each task."
                )
        if run.predict_only:
            raise ConfigError("predict_only cannot be used in a duel, which needs scores.")
        if run.output_path is not None and Path(run.output_path).suffix == ".json":
            raise ConfigError("the output path of a duel must be a folder, not a .json file.")
    one, two = first.settings(), second.settings()
    if unequal := sorted(
        key for key in {*one, *two} - _OF_THE_MODEL if one.get(key) != two.get(key)
    ):
        raise ConfigError(
            f"the settings of a duel must be the same for both models, but these differ: "
            f"{', '.join(unequal)}. Give them as options, which replace those of both "
            "configurations."
        )


def _check_populations(first: Mapping[str, int], second: Mapping[str, int]) -> None:
    """Raises `DataError` for a task with fewer than two documents, or not the same number."""
    for name, count in first.items():
        if count < 2:
            raise DataError(
                f"task {name!r} has only {count} document{'s'[: count != 1]} to ask, so there is "
                "nothing to decide from a part of them. Raise --limit, or leave the task out."
            )
    if first != second:
        names = sorted(n for n in {*first, *second} if first.get(n) != second.get(n))
        raise DataError(
            f"{', '.join(names)}: the tasks have different documents for the two models, so they "
            "cannot be compared."
        )


def _check_same_requests(first: Contestant, second: Contestant) -> None:
    """Raises `DataError` if the models get different documents, or different prompts.

    Prompts are not compared if a chat template is applied.
    """
    templates = first.run.apply_chat_template or second.run.apply_chat_template
    for name, one in first.hashes.items():
        two = second.hashes[name]
        for key, word in (("data", "documents"), ("prompts", "prompts")):
            if one[key] != two[key] and not (key == "prompts" and templates):
                raise DataError(
                    f"task {name!r}: its {word} depend on the model and differ between the two, so "
                    "the models cannot be compared document by document."
                )


def _labels(first: RunConfig, second: RunConfig) -> tuple[str, str]:
    """Returns the names of the models in reports; equal ones get a number."""
    names = [Path(model_name(run)).name or model_name(run) for run in (first, second)]
    if names[0] == names[1]:
        return f"{names[0]} (A)", f"{names[1]} (B)"
    return names[0], names[1]


def _with_folders(first: RunConfig, second: RunConfig) -> list[RunConfig]:
    """Returns the runs with output paths that lead to different folders.

    Models of the same name get the subfolders `a` and `b`.
    """
    if None in (first.output_path, second.output_path):
        return [first, second]
    folders = [
        (absolute_path(run.output_path), file_name(model_name(run))) for run in (first, second)
    ]
    if folders[0] != folders[1]:
        return [first, second]
    return [
        replace(run, output_path=str(Path(str(run.output_path)) / letter))
        for run, letter in ((first, "a"), (second, "b"))
    ]
