"""Finds the stored answers that a path means: a run, a results file, or sample logs."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from lm_eval.errors import ConfigError, OutputError
from lm_eval.logged_tasks import logs_of_tasks
from lm_eval.rescore import Source, find_sources
from lm_eval.results.find_logs import find_logs
from lm_eval.results.reader import read_results
from lm_eval.runs.stored import only_run
from lm_eval.stored_requests import Changes


def find_source(path: str | Path, wanted: Changes) -> Source:
    """Returns the one run or set of logs at a path; `PATH#ID` selects a run by its id.

    A results file stands for the run that wrote it.
    """
    text, run_id = str(path), ""
    if "#" in text and not Path(path).exists():
        text, _, run_id = text.rpartition("#")
    if Path(text).is_file() and Path(text).suffix == ".json":
        return _of_results_file(Path(text).absolute(), wanted)
    sources = find_sources(text, wanted, run_id or None)
    if len(sources) > 1:
        runs = [source.run for source in sources if source.run is not None]
        found = only_run(runs, text, f"{text}#ID")
        return next(source for source in sources if source.run is found)
    return sources[0]


def _of_results_file(file: Path, wanted: Changes) -> Source:
    """Returns the run that wrote a results file, or the sample logs beside it."""
    try:
        find_logs(file)
        return Source(file, wanted)  # a sample log that is called .json
    except OutputError:
        read_results(file)  # raises if it is something else
    for source in find_sources(file.parent, wanted):
        if source.run is None or source.run.record.results == file.name:
            return source
    raise OutputError(
        f"{file}: the run that wrote this file is not in its folder. Give a folder with the run, "
        "or with its sample logs."
    )


def check_different(sources: Sequence[Source], paths: Sequence[str | Path]) -> None:
    """Raises `ConfigError` if two paths lead to the same run or the same logs."""
    seen: dict[tuple[Path, str | None], str | Path] = {}
    for source, path in zip(sources, paths, strict=True):
        if source.run is None:
            key: tuple[Path, str | None] = source.path.resolve(), None
        else:
            key = source.run.folder.path.resolve(), source.run.record.id
        if key in seen:
            raise ConfigError(
                f"{seen[key]} and {path} are the same run, so there is nothing to compare. Give "
                "two different runs."
            )
        seen[key] = path


def task_names(source: Source) -> set[str]:
    """Returns the tasks that a source contains, of those that `source.wanted` names.

    Raises `OutputError` if there are neither a run nor sample logs.
    """
    wanted = source.wanted.tasks
    if source.run is not None:
        record = source.run.record
        names = set(record.tasks)
        if wanted is None:
            return names
        chosen = {name for one in wanted for name in record.tasks_matching(one)}
        return names & chosen or set(wanted)
    names = set(logs_of_tasks(source.path, source.wanted.include_path))
    if not names:
        raise OutputError(
            f"{source.path}: contains neither a run nor sample logs (samples_<task>_<time>.jsonl). "
            "Give the --output_path of a run."
        )
    if wanted is None:
        return names
    return {name for name in names if any(fnmatchcase(name, one) for one in wanted)}


def with_tasks(source: Source, tasks: Sequence[str]) -> Source:
    """Returns the source restricted to some tasks."""
    wanted = Changes(
        tasks=tasks,
        include_path=source.wanted.include_path,
        settings=source.wanted.settings,
        unfinished=source.wanted.unfinished,
    )
    return Source(source.path, wanted, source.run)
