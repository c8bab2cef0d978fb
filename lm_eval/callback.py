"""Callbacks that evaluate a model while transformers' `Trainer` or Lightning trains it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.errors import ConfigError, OutputError
from lm_eval.live import LiveTasks, evaluate_live, flat_scores
from lm_eval.results.files import check_writable, save
from lm_eval.results.names import file_name
from lm_eval.results.samples import without_samples
from lm_eval.results.schema import EvalResults
from lm_eval.sweeps.record import FINISHED, RecordedRun, SweepRecord, is_sweep, read_sweep

if TYPE_CHECKING:
    TrainerBase: Any = object
else:
    try:
        from transformers import TrainerCallback as TrainerBase
    except ImportError:
        from lm_eval.extras import install_command

        class TrainerBase:
            """Stands in for the base class of transformers; no instance can be created."""

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                raise ImportError(f"{cls.__name__} needs transformers: {install_command('hf')}.")


logger = logging.getLogger(__name__)


class TrainingCurve:
    """Evaluates a model at steps of its training, and keeps and saves the results.

    The callbacks below use it. Another training loop can, too: call `evaluate` in all processes.

    Args:
        tasks: names of tasks, or a `LiveTasks` object.
        every: the number of steps between two evaluations.
        output_path: folder in which the results of each step are saved; None to save nothing.
            `lm-eval report` plots it.
        settings: settings of the evaluation (`LiveTasks`).
    """

    def __init__(
        self,
        tasks: LiveTasks | Sequence[Any] | str,
        every: int,
        output_path: str | Path | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError(f"every must be a number of steps of at least 1, not {every!r}.")
        if isinstance(tasks, LiveTasks) and settings:
            raise ConfigError(f"{', '.join(settings)}: pass settings to LiveTasks.")
        self.tasks = tasks if isinstance(tasks, LiveTasks) else LiveTasks(tasks, **settings)
        self.every = every
        self.output_path = None if output_path is None else Path(output_path).absolute()
        if self.output_path is not None:
            check_writable(self.output_path)
            if is_sweep(self.output_path):
                read_sweep(self.output_path)  # raises now if its file is damaged
        self.history: list[tuple[int, EvalResults]] = []
        """The step and the results of each evaluation, in the first process."""
        self._last: int | None = None

    def begin(self) -> None:
        """Forgets which step was evaluated last, since training begins anew."""
        self._last = None

    def is_due(self, step: int) -> bool:
        """Returns whether the model is to be evaluated after this step."""
        return step % self.every == 0 and step != self._last

    def evaluate(self, step: int, model: Any, tokenizer: Any) -> dict[str, float] | None:
        """Evaluates the model and returns its scores by name (`flat_scores`).

        Returns None in processes other than the first. A step is evaluated once: a second call for
        the same step returns an empty dictionary. If the results cannot be saved, an error is
        logged and training continues; they are in `history`.
        """
        if step == self._last:
            return {}
        self._last = step
        results = evaluate_live(model, tokenizer, self.tasks)
        if results is None:
            return None
        self.history.append((step, results))
        if self.output_path is not None:
            try:
                self._save(step, results, self.output_path)
            except OutputError as error:
                logger.error("step %d: the results were not saved: %s", step, error)
        return flat_scores(results)

    def _save(self, step: int, results: EvalResults, folder: Path) -> None:
        """Writes the results of a step, and adds it to the record of the training run.

        Later steps in the record are removed: they are of an earlier training run, which did not
        continue from here.
        """
        name, model = f"step{step}", str(results.get("model_name") or "model")
        file = save(
            without_samples(results),
            str(folder / name),
            model,
            results.get("samples"),
            self.tasks.run.samples_format,
        )
        before = read_sweep(folder).runs if is_sweep(folder) else []
        curve = file_name(Path(model).name or model)
        run = RecordedRun(
            name, curve, {"checkpoint": name}, step, FINISHED, file.relative_to(folder).as_posix()
        )
        others = [one for one in before if one.name != name]
        kept = [one for one in others if one.step is None or one.step < step]
        if removed := [one.name for one in others if one not in kept]:
            logger.warning(
                "%s: %s of an earlier training run are removed from the curve. Give each training "
                "run its own output_path to keep them.",
                folder,
                ", ".join(removed[:5]) + (" …" if len(removed) > 5 else ""),
            )
        runs = sorted([*kept, run], key=lambda one: (one.step is None, one.step or 0))
        SweepRecord(folder, runs).write()


class TrainerCallback(TrainerBase):  # type: ignore[misc]
    """Evaluates the model of a transformers `Trainer` every N steps, on all processes.

    Scores are logged where the trainer logs its loss (`report_to`), if the callback knows the
    trainer; otherwise they are added to `state.log_history` and to the log messages. As the
    trainer's own, they are named `eval_…` there, and `eval/…` in its loggers.

    Example::

        trainer = Trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer)
        trainer.add_callback(TrainerCallback(["arc_easy"], every=500, trainer=trainer, limit=200))
        trainer.train()

    Args:
        tasks: names of tasks, or a `LiveTasks` object.
        every: the number of optimizer steps between two evaluations.
        trainer: the trainer, whose loggers get the scores.
        tokenizer: the tokenizer, if the trainer has none (`processing_class`).
        at_start: whether to evaluate before the first step.
        at_end: whether to evaluate after the last step, if it was not evaluated then.
        output_path: folder in which the results of each step are saved; None to save nothing.
        settings: settings of the evaluation: `limit`, `num_fewshot`, … (`LiveTasks`).
    """

    def __init__(
        self,
        tasks: LiveTasks | Sequence[Any] | str,
        every: int,
        *,
        trainer: Any = None,
        tokenizer: Any = None,
        at_start: bool = False,
        at_end: bool = True,
        output_path: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self.curve = TrainingCurve(tasks, every, output_path, **settings)
        self._trainer, self._tokenizer = trainer, tokenizer
        self._at_start, self._at_end = at_start, at_end

    @property
    def history(self) -> list[tuple[int, EvalResults]]:
        """The step and the results of each evaluation, in the first process."""
        return self.curve.history

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Evaluates the model before the first step, if `at_start` is set.

        Raises `ConfigError` if there is no tokenizer.
        """
        self._tokenizer_of(kwargs)
        self.curve.begin()
        return self._evaluate(state, control, kwargs) if self._at_start else control

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Evaluates the model if this step is due."""
        is_due = self.curve.is_due(state.global_step)
        return self._evaluate(state, control, kwargs) if is_due else control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Evaluates the model after the last step, if `at_end` is set."""
        return self._evaluate(state, control, kwargs) if self._at_end else control

    def _evaluate(self, state: Any, control: Any, given: Mapping[str, Any]) -> Any:
        """Evaluates the model and logs its scores; returns the `control` to go on with.

        `given` is what the trainer passes.
        """
        scores = self.curve.evaluate(state.global_step, given["model"], self._tokenizer_of(given))
        if not scores:
            return control
        logger.info("step %d: %s", state.global_step, scores)
        # Trainers log a name as `eval/…` only if it begins with `eval_`; others as `train/…`.
        scores = {f"eval_{name.removeprefix('eval/')}": one for name, one in scores.items()}
        if self._trainer is None:
            state.log_history.append({**scores, "epoch": state.epoch, "step": state.global_step})
            return control
        kept = copy.copy(control)  # logging resets `should_log`; the loss would not be logged
        self._trainer.log(dict(scores))
        return kept

    def _tokenizer_of(self, given: Mapping[str, Any]) -> Any:
        found = self._tokenizer or given.get("processing_class") or given.get("tokenizer")
        if found is None:
            raise ConfigError(
                "TrainerCallback: the trainer has no tokenizer. Pass it: Trainer(…, "
                "processing_class=tokenizer), or TrainerCallback(…, tokenizer=tokenizer)."
            )
        return getattr(found, "tokenizer", found)  # of a processor of several kinds of input


def lightning_callback(
    tasks: LiveTasks | Sequence[Any] | str,
    every: int,
    *,
    model: Callable[[Any], Any] = attrgetter("model"),
    tokenizer: Any = None,
    output_path: str | Path | None = None,
    **settings: Any,
) -> Any:
    """Returns a Lightning `Callback` that evaluates the model every N optimizer steps.

    Scores go to the loggers of the Lightning trainer.

    Args:
        tasks: names of tasks, or a `LiveTasks` object.
        every: the number of optimizer steps between two evaluations.
        model: returns the transformers model of a Lightning module; by default its `model`.
        tokenizer: the tokenizer; by default the attribute `tokenizer` of the module.
        output_path: folder in which the results of each step are saved; None to save nothing.
        settings: settings of the evaluation: `limit`, `num_fewshot`, … (`LiveTasks`).
    """
    try:
        from lightning.pytorch import Callback as LightningBase
    except ImportError:
        from pytorch_lightning import Callback as LightningBase

    curve = TrainingCurve(tasks, every, output_path, **settings)

    def parts_of(module: Any) -> tuple[Any, Any]:
        """Returns the model and the tokenizer of a Lightning module."""
        try:
            return model(module), module.tokenizer if tokenizer is None else tokenizer
        except AttributeError as error:
            raise ConfigError(
                f"lightning_callback: {error}. Pass model=lambda module: …, which returns the "
                "transformers model, and tokenizer=…"
            ) from error

    class LightningCallback(LightningBase):  # type: ignore[misc, unused-ignore]
        """Evaluates the model when an optimizer step is due."""

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            """Raises `ConfigError` if the module has no model or tokenizer."""
            parts_of(pl_module)
            curve.begin()

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            """Evaluates the model and logs its scores, if this step is due."""
            step = trainer.global_step
            if step == 0 or not curve.is_due(step):
                return
            if scores := curve.evaluate(step, *parts_of(pl_module)):
                for one in trainer.loggers:
                    one.log_metrics(scores, step)

    return LightningCallback()
