"""Fixtures that many tests share: small task folders, and calls of the command line."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Tests assert behavior, not times: on a busy machine an example may take longer than the default.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")
# Tests never contact the hub, whatever the name of a dataset.
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
# Tests do not see the packs that the user of this machine has added.
os.environ["LMEVAL_PACKS_DIR"] = os.devnull
# Tests send these signals to themselves and to their children, which inherit it if a shell started
# the tests in the background (`nohup … &`) and so let them ignore both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

#: A key that every test has in its environment. No test may leave it in a file or an output.
PLANTED_KEY = "planted-Qv81-suite-key-0246897531"
os.environ["OPENAI_API_KEY"] = os.environ["LMEVAL_TESTS_SECRET_TOKEN"] = PLANTED_KEY


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Lets a test fail whose output contains the planted key."""
    report = yield
    if any(PLANTED_KEY in content for _, content in report.sections):
        report.outcome, report.longrepr = "failed", "the planted key is in the output of the test"
    return report


@pytest.fixture(autouse=True, scope="session")
def _no_planted_key_in_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Searches all files that the tests have left for the planted key."""
    yield
    found = [file for file in tmp_path_factory.getbasetemp().rglob("*") if _contains_key(file)]
    assert not found, f"the planted key is in {found}"


def _contains_key(file: Path) -> bool:
    if file.is_symlink() or not file.is_file() or not os.access(file, os.R_OK):
        return False
    if not file.stat().st_size:
        return False
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(PLANTED_KEY.encode()) >= 0


@pytest.fixture(autouse=True, scope="session")
def _folders_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Replaces the key that marks runs, and the caches, of the user of this machine."""
    os.environ["LMEVAL_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    os.environ["LMEVAL_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _reset_logging() -> None:
    """Removes the logging handlers that the command line may have installed in an earlier test."""
    logger = logging.getLogger("lm_eval")
    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)


class Folder:
    """A task folder that a test fills with files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def rows(self, name: str, rows: Iterable[dict[str, Any]]) -> Path:
        return self.write(name, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def colours(folder: Folder) -> Folder:
    """Returns a folder with one multiple-choice task, `colours`, of six documents."""
    folder.rows(
        "colours.jsonl",
        [
            {"thing": "grass", "colours": ["green", "red"], "answer": 0},
            {"thing": "blood", "colours": ["green", "red"], "answer": 1},
            {"thing": "snow", "colours": ["white", "black"], "answer": 0},
            {"thing": "coal", "colours": ["white", "black"], "answer": 1},
            {"thing": "the sea", "colours": ["blue", "pink"], "answer": 0},
            {"thing": "a pig", "colours": ["blue", "pink"], "answer": 1},
        ],
    )
    folder.write(
        "colours.yaml",
        """\
task: colours
dataset_path: json
dataset_kwargs:
  data_files:
    test: colours.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "Of what colour is {{thing}}?"
doc_to_choice: colours
doc_to_target: answer
metric_list:
  - metric: acc
metadata:
  version: 1.0
""",
    )
    return folder


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def lm_eval_command(tmp_path: Path) -> Command:
    """Returns a function that runs `python -m lm_eval …` in an empty folder."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lm_eval", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=work,
            check=False,
        )

    return run
