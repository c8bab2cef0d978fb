"""Tests that run folders and results files of other people run nothing that was not asked for."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.caching.cache import load_from_cache, save_to_cache
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.decontamination.janitor import Janitor
from lm_eval.errors import DataError, ForeignRunError
from lm_eval.signing import is_signed, sign
from tests.conftest import Folder

Captured = pytest.CaptureFixture[str]

#: Code that leaves a file when it is run.
CODE = """\
from pathlib import Path

Path({mark!r}).write_text("was here")

from lm_eval.models.dummy import DummyLM


class Evil(DummyLM):
    pass


def process_docs(docs):
    return docs
"""

TASK = """\
task: evil
dataset_path: json
dataset_kwargs:
  data_files:
    test: evil.jsonl
test_split: test
process_docs: !function evil.process_docs
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: ["a", "b"]
doc_to_target: 0
"""


class Stranger:
    """A run folder that someone else has made, and code that must not run."""

    def __init__(self, path: Path) -> None:
        self.path, self.evil = path, Folder(path / "evil")
        self.mark = path / "was_run"
        self.evil.write("evil.py", CODE.format(mark=str(self.mark)))
        self.evil.write("evil.yaml", TASK)
        self.evil.rows("evil.jsonl", [{"question": "Which?"}])
        self.record_file = path / "out" / "dummy" / "run.json"
        (self.results_file,) = (path / "out" / "dummy").glob("results_2*.json")
        self.change({}, signature=None)

    def change(self, settings: dict[str, Any], **others: Any) -> None:
        """Changes the settings, and other fields, of the record and of the results file."""
        record = json.loads(self.record_file.read_text())
        results = json.loads(self.results_file.read_text())
        (run,) = record["runs"]
        for content in (run, results):
            content["settings"] |= settings
            content |= others
            content.pop("checksum", None)  # whoever changes a file can compute another one
        self.record_file.write_text(json.dumps(record))
        self.results_file.write_text(json.dumps(results))

    def repeat(self, command: str, *words: str) -> int:
        place = self.results_file if command == "reproduce" else self.path / "out"
        return main([command, str(place), *words])

    @property
    def files(self) -> dict[Path, bytes]:
        found = [file for file in self.path.rglob("*") if file.is_file()]
        return {file: file.read_bytes() for file in found if file.name != "run.lock"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the output folder of a run of the dummy model."""
    out = tmp_path_factory.mktemp("finished") / "out"
    run = ["run", "--model", "dummy", "--model_args", "dtype=float32,size=3"]
    run += ["--tasks", "demo_choice", "--limit", "1", "--log_samples", "--output_path", str(out)]
    assert main(run) == 0
    return out


@pytest.fixture
def stranger(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> Stranger:
    """Returns a stranger's run of the dummy model; the working directory is another one."""
    shutil.copytree(finished, tmp_path / "theirs" / "out")
    made = Stranger(tmp_path / "theirs")
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    capsys.readouterr()
    return made


Changed = Callable[[Path], dict[str, Any]]

#: Settings that run code of the record while tasks are loaded, and the option that allows each.
TASK_SETTINGS: dict[str, tuple[Changed, str]] = {
    "folder of tasks": (lambda evil: {"include_path": [str(evil)]}, "--include_path {evil}"),
    "folder of tasks as text": (lambda evil: {"include_path": str(evil)}, "--include_path {evil}"),
    "relative folder of tasks": (
        lambda evil: {"include_path": ["../theirs/evil"]},
        "--include_path ../theirs/evil",
    ),
    "task file": (lambda evil: {"tasks": [str(evil / "evil.yaml")]}, "--include_path {evil}"),
    "relative task file": (
        lambda evil: {"tasks": ["../theirs/evil/evil.yaml"]},
        "--include_path ../theirs/evil",
    ),
    "task file in the working directory": (lambda evil: {"tasks": ["evil.yaml"]}, "--include_path"),
    "task file in a list": (
        lambda evil: {"tasks": [f"demo_choice,{evil / 'evil.yaml'}"]},
        "--include_path {evil}",
    ),
    "task file with a format": (
        lambda evil: {"tasks": [f"{evil / 'evil.yaml'}@mcqa"]},
        "--include_path {evil}",
    ),
    "task folder": (lambda evil: {"tasks": [str(evil)]}, "--include_path"),
    "pattern of task files": (lambda evil: {"tasks": [f"{evil}/*.yaml"]}, "--include_path"),
    "file without an ending": (lambda evil: {"tasks": ["harmless"]}, "--include_path ."),
    "folder without a slash": (lambda evil: {"tasks": ["nested"]}, "--include_path"),
    "task file in the home folder": (lambda evil: {"tasks": ["~/evil.yaml"]}, "--include_path"),
    "confirmation of unsafe code": (
        lambda evil: {"confirm_run_unsafe_code": True},
        "--confirm_run_unsafe_code",
    ),
    "metric of the hub": (
        lambda evil: {
            "tasks": [{"task": "demo_choice", "metric_list": [{"metric": "x/y", "hf_evaluate": 1}]}]
        },
        "a metric from the hub",
    ),
}

#: Settings that run code, contact a server or write files while the model is loaded.
MODEL_SETTINGS: dict[str, tuple[Changed, str]] = {
    "trust_remote_code": (lambda evil: {"trust_remote_code": True}, "--trust_remote_code"),
    "trust_remote_code as an argument": (
        lambda evil: {"model_args": {"trust_remote_code": True}},
        "--trust_remote_code",
    ),
    "trust_remote_code as text": (
        lambda evil: {"model_args": {"trust_remote_code": "yes"}},
        "--trust_remote_code",
    ),
    "trust_remote_code in the metadata": (
        lambda evil: {"metadata": {"trust_remote_code": True}},
        "--trust_remote_code",
    ),
    "trust_remote_code of a generation": (
        lambda evil: {"gen_kwargs": {"trust_remote_code": True}},
        "--trust_remote_code",
    ),
    "a backend that trusts by default": (lambda evil: {"model": "sglang"}, "--trust_remote_code"),
    "model class in a file": (
        lambda evil: {"model": f"{evil / 'evil.py'}:Evil"},
        "--model {evil}/evil.py:Evil",
    ),
    "model class in a relative file": (
        lambda evil: {"model": "../theirs/evil/evil.py:Evil"},
        "--model ../theirs/evil/evil.py:Evil",
    ),
    "model class in a module": (lambda evil: {"model": "evil:Evil"}, "--model evil:Evil"),
    "server": (lambda evil: {"model_args": {"base_url": "http://evil"}}, "base_url=http://evil"),
    "variable of a key": (
        lambda evil: {"model_args": {"api_key_env": "HF_TOKEN"}},
        "--model_args api_key_env=HF_TOKEN",
    ),
    "class of a worker": (
        lambda evil: {"model_args": {"worker_cls": "evil.Worker"}},
        "--model_args worker_cls=evil.Worker",
    ),
    "kernel of the hub": (
        lambda evil: {"model_args": {"attn_implementation": "evil/kernel"}},
        "--model_args attn_implementation=evil/kernel",
    ),
    "kernels": (lambda evil: {"model_args": {"use_kernels": True}}, "use_kernels=True"),
    "pickled weights": (lambda evil: {"model_args": {"weights_only": False}}, "weights_only=False"),
    "folder that is written": (
        lambda evil: {"model_args": {"offload_folder": "/etc"}},
        "offload_folder=/etc",
    ),
    "nested argument": (
        lambda evil: {"model_args": {"hf_overrides": {"auto_map": "evil"}}},
        "hf_overrides=",
    ),
    "plain name with a nested value": (
        lambda evil: {"model_args": {"quantization": {"load": "evil.py"}}},
        "quantization=",
    ),
    "generation code": (lambda evil: {"gen_kwargs": {"custom_generate": "evil/x"}}, "generates"),
}

CASES = [
    *[(command, name) for name in TASK_SETTINGS for command in ("resume", "reproduce", "score")],
    *[(command, name) for name in MODEL_SETTINGS for command in ("resume", "reproduce")],
]


@pytest.mark.parametrize(("command", "name"), CASES, ids=lambda part: part)
def test_what_a_strangers_run_would_use_is_listed_and_not_used(
    command: str, name: str, stranger: Stranger, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, option = {**TASK_SETTINGS, **MODEL_SETTINGS}[name]
    for target in ("evil.yaml", "harmless", "nested/evil.yaml"):
        Path(target).parent.mkdir(exist_ok=True)
        shutil.copy(stranger.evil.path / "evil.yaml", target)
    shutil.copy(stranger.evil.path / "evil.py", "evil.py")
    monkeypatch.syspath_prepend(str(stranger.evil.path))
    stranger.change(changed(stranger.evil.path))
    before = stranger.files
    assert stranger.repeat(command) == 2
    said = capsys.readouterr().err
    assert "this run was not made here, and it would use:" in said
    assert option.format(evil=stranger.evil.path) in said
    assert stranger.files == before
    assert not stranger.mark.exists()


@pytest.mark.parametrize("command", ["resume", "reproduce", "score"])
def test_a_strangers_run_without_code_is_repeated(command: str, stranger: Stranger) -> None:
    assert stranger.repeat(command) == 0


@pytest.mark.parametrize("command", ["resume", "reproduce", "score"])
def test_the_directory_and_the_variables_of_a_stranger_are_not_used(
    command: str, stranger: Stranger, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    there = str(stranger.evil.path)
    packs = stranger.evil.path / "packs"
    stranger.change(
        {"environment": {"LMEVAL_PACKS_DIR": str(packs), "PATH": there}}, directory=there
    )
    monkeypatch.setattr(os, "chdir", lambda folder: pytest.fail(f"changed to {folder}"))
    monkeypatch.delenv("LMEVAL_PACKS_DIR")
    assert stranger.repeat(command) == 0
    assert f"its packs in {packs} are not used" in capsys.readouterr().err


def test_a_record_sets_no_variables_but_those_of_this_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONSTARTUP", raising=False)
    with RunConfig(environment={"PYTHONSTARTUP": "evil.py"}).in_environment():
        assert "PYTHONSTARTUP" not in os.environ


def test_a_stranger_does_not_choose_where_answers_and_results_go(
    stranger: Stranger, tmp_path: Path, capsys: Captured
) -> None:
    target = tmp_path / "elsewhere.sqlite"
    stranger.change({"use_cache": str(target)})
    assert stranger.repeat("resume") == 2
    assert f"--use_cache {target}" in capsys.readouterr().err
    stranger.change({"use_cache": None, "wandb_args": {"project": "theirs"}})
    assert stranger.repeat("resume") == 0
    assert "its wandb_args are not used" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize("command", ["resume", "reproduce", "score"])
def test_what_the_command_names_is_used_and_listed(
    command: str, stranger: Stranger, capsys: Captured
) -> None:
    evil = stranger.evil.path
    model = f"{evil / 'evil.py'}:Evil"
    words = ["--include_path", str(evil), "--confirm_run_unsafe_code"]
    words += ["--model", model] if command != "score" else []
    settings = {"include_path": [str(evil)], "confirm_run_unsafe_code": True}
    stranger.change({**settings, "model": model} if command != "score" else settings)
    if command != "score":
        stranger.record_file.parent.rename(stranger.path / "out" / "evil.py__Evil")
        stranger.results_file = stranger.path / "out" / "evil.py__Evil" / stranger.results_file.name
    assert stranger.repeat(command, *words) in (0, 1)
    said = capsys.readouterr().err
    assert "this command allows code that the model writes" in said
    assert "this command allows the tasks in a folder, and their code" in said
    assert stranger.mark.exists() == (command != "score")


def test_a_task_file_is_allowed_by_its_folder(stranger: Stranger) -> None:
    evil = stranger.evil.path
    stranger.change({"tasks": [str(evil / "evil.yaml")]})
    with pytest.raises(ForeignRunError, match="a task file, and its code"):
        lm_eval.resume(stranger.path / "out", include_path=str(stranger.path / "out"))
    assert lm_eval.resume(stranger.path / "out", include_path=str(evil)) is not None
    assert stranger.mark.exists()


def test_a_link_does_not_lead_out_of_an_allowed_folder(stranger: Stranger, tmp_path: Path) -> None:
    (tmp_path / "mine" / "link.yaml").symlink_to(stranger.evil.path / "evil.yaml")
    stranger.change({"tasks": [str(tmp_path / "mine" / "link.yaml")]})
    with pytest.raises(ForeignRunError):
        lm_eval.resume(stranger.path / "out", include_path=str(tmp_path / "mine"))


def test_control_characters_of_a_record_do_not_reach_the_terminal(
    stranger: Stranger, capsys: Captured
) -> None:
    stranger.change({"include_path": ["/tmp/\x1b]0;owned\x07\n  nothing: --verbosity INFO"]})
    assert stranger.repeat("resume") == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\\x1b]0;owned\\x07\\n  nothing" in said


@pytest.mark.parametrize(
    "damaged",
    [
        {"data_dir": True},
        {"data_dir": "a" * 5000},
        {"include_path": {}},
        {"include_path": ["\0"]},
        {"use_cache": ["x"]},
        {"decontaminate": "\ud800"},
        {"cluster": 10**400},
        {"seed": float("inf")},
        {"seed": "x"},
        {"tasks": 0},
        {"model_args": ["x"]},
        {"model_args": {"attn_implementation": [[]]}},
        {"environment": "x"},
        {"samples": "a" * 5000},
        {"new_thing": 1},
    ],
    ids=lambda damaged: f"{next(iter(damaged))}={str(next(iter(damaged.values())))[:9]!r}",
)
def test_damaged_settings_are_one_plain_error(
    damaged: dict[str, Any], stranger: Stranger, capsys: Captured
) -> None:
    stranger.change(damaged)
    for command in ("resume", "score", "reproduce"):
        code = stranger.repeat(command)
        said = capsys.readouterr().err
        if command == "score" and "model_args" in damaged and "x" not in damaged["model_args"]:
            assert code == 0  # the model is not needed
            continue
        if command == "reproduce" and "use_cache" in damaged:
            assert code == 0  # it is given on the command line alone
            continue
        assert code == 2, command
        assert said.startswith("lm-eval: error: ")
        assert "--debug" not in said


@pytest.mark.parametrize(
    "damaged",
    [{"left_out": 3}, {"left_out": True}, {"answer_index": "../x"}, {"answer_index": "a" * 5000}],
    ids=str,
)
def test_a_damaged_record_is_one_plain_error(
    damaged: dict[str, Any], stranger: Stranger, capsys: Captured
) -> None:
    stranger.change({}, **damaged)
    for command in ("resume", "score"):
        assert stranger.repeat(command) == 2
        assert "is not a complete record of a run" in capsys.readouterr().err


# -- runs that were made here -----------------------------------------------------------------


def own_run(colours: Folder) -> Path:
    out = colours.path / "out"
    run = ["run", "--model", "dummy", "--tasks", "colours", "--include_path", str(colours.path)]
    assert main([*run, "--output_path", str(out)]) == 0
    return out


@pytest.mark.parametrize("command", ["resume", "reproduce", "score"])
def test_a_run_that_was_made_here_needs_no_option(command: str, colours: Folder) -> None:
    assert main([command, str(own_run(colours))]) == 0


@pytest.mark.parametrize("command", ["resume", "reproduce", "score"])
def test_a_run_that_was_changed_is_no_longer_ours(
    command: str, colours: Folder, capsys: Captured
) -> None:
    out = own_run(colours)
    for file in (*out.rglob("run.json"), *out.rglob("results_2*.json")):
        content = json.loads(file.read_text())
        changed = content["runs"][0] if "runs" in content else content
        changed["settings"]["device"] = "cpu"
        del changed["checksum"]
        file.write_text(json.dumps(content))
    assert main([command, str(out)]) == 2
    assert "this run was not made here" in capsys.readouterr().err


def test_the_run_of_another_user_is_not_ours(
    colours: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = own_run(colours)
    monkeypatch.setenv("LMEVAL_STATE_DIR", str(tmp_path / "other"))
    with pytest.raises(ForeignRunError):
        lm_eval.resume(out)
    assert lm_eval.resume(out, include_path=str(colours.path)) is not None
    assert lm_eval.resume(out) is not None  # the user has repeated it here


def test_the_key_can_be_read_by_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LMEVAL_STATE_DIR", str(tmp_path / "state"))
    assert not is_signed(b"x", None)
    signature = sign(b"x")
    (key,) = (tmp_path / "state").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    assert is_signed(b"x", signature)
    assert not is_signed(b"y", signature)
    key.chmod(0o644)
    assert not is_signed(b"x", signature)
    assert "that only you may read" in caplog.text


def test_without_a_state_folder_runs_are_made_but_not_marked(
    colours: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LMEVAL_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(ForeignRunError):
        lm_eval.resume(own_run(colours))


# -- sample logs ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["configs", "group_subtasks"])
def test_a_path_in_a_results_file_is_no_task(
    place: str, stranger: Stranger, capsys: Captured
) -> None:
    path = str(stranger.evil.path / "evil.yaml")
    results = json.loads(stranger.results_file.read_text())
    (log,) = stranger.results_file.parent.glob("samples_*")
    if place == "configs":
        results["configs"] = {path: {}}
        name = path.replace("/", "__")
        log.rename(log.with_name(log.name.replace("demo_choice", name)))
    else:
        results["group_subtasks"] = {path: ["demo_choice"]}
    results.pop("checksum", None)
    stranger.results_file.write_text(json.dumps(results))
    stranger.record_file.unlink()
    (stranger.record_file.parent / "answers.sqlite").unlink()
    assert stranger.repeat("score") == 2
    assert f"{path!r} is a path, not the name of a task" in capsys.readouterr().err
    assert not stranger.mark.exists()


# -- pickles ----------------------------------------------------------------------------------


class Code:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize(
    "content",
    [
        lambda mark: pickle.dumps(Code(mark)),
        lambda mark: pickle.dumps({"text", Code(mark)}),
        lambda mark: pickle.dumps(eval),
        lambda mark: pickle.dumps(["a list"]),
        lambda mark: pickle.dumps({1, 2}),
        lambda mark: pickle.dumps({"cut off"})[:-3],
        lambda mark: b"no pickle",
        lambda mark: b"",
    ],
)
def test_a_file_of_ngrams_runs_no_code(content: Any, tmp_path: Path) -> None:
    file, mark = tmp_path / "ngrams", tmp_path / "mark"
    file.write_bytes(content(mark))
    with pytest.raises(DataError, match=r"ngrams: cannot be read as n-grams \("):
        Janitor().load_contamination_ngrams(str(file))
    assert not mark.exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_ngrams_of_any_version_are_read(protocol: int, tmp_path: Path) -> None:
    (tmp_path / "ngrams").write_bytes(pickle.dumps({"a b", "c d"}, protocol))
    janitor = Janitor()
    janitor.load_contamination_ngrams(str(tmp_path / "ngrams"))
    assert janitor.dirt_ngrams == {"a b", "c d"}


def test_an_object_in_the_cache_is_read_only_if_this_user_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lm_eval.caching.cache.PATH", str(tmp_path))
    save_to_cache("mine", {"a": [1, 2]})
    assert load_from_cache("mine", cache=True) == {"a": [1, 2]}
    (file,) = tmp_path.iterdir()
    assert pickle.loads(file.read_bytes()) == {"a": [1, 2]}  # others can read it as before
    signature = file.read_bytes()[-64:]
    for content in (pickle.dumps(Code(tmp_path / "mark")), b""):
        for end in (b"", signature):
            file.write_bytes(content + end)
            assert load_from_cache("mine", cache=True) is None
    assert not (tmp_path / "mark").exists()
