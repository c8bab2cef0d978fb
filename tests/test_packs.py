"""What others have published is one command away, and runs nothing before it is asked to."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from lm_eval.tasks import TaskManager, packs
from tests.conftest import Command, Folder


@pytest.fixture(autouse=True)
def _own_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMEVAL_PACKS_DIR", str(tmp_path / "packs"))
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def published(tmp_path: Path, colours: Folder) -> Path:
    """A project with task files in `lm_eval/tasks`, code beside them, and other files."""
    project = Folder(tmp_path / "theirs")
    tasks = "lm_eval/tasks/colours"
    text = (colours.path / "colours.yaml").read_text()
    code = f"open({str(tmp_path / 'witness')!r}, 'w')\ndef text(doc):\n    return doc['thing']\n"
    project.write(f"{tasks}/colours.jsonl", (colours.path / "colours.jsonl").read_text())
    project.write(f"{tasks}/utils.py", code)
    asked = 'doc_to_text: "Of what colour is {{thing}}?"'
    project.write(f"{tasks}/colours.yaml", text.replace(asked, "doc_to_text: !function utils.text"))
    project.write(f"{tasks}/again.yaml", "include: colours.yaml\ntask: demo_choice\n")
    project.write("lm_eval/models/big.py", "raise SystemExit\n")
    return project.path


def test_a_folder_is_added_listed_used_and_removed(
    lm_eval_command: Command, published: Path, tmp_path: Path
) -> None:
    added = lm_eval_command("packs", "add", published)
    assert added.returncode == 0, added.stderr
    assert "theirs: 2 tasks and groups" in added.stdout
    assert "theirs:demo_choice is this pack's" in added.stdout
    assert not (tmp_path / "packs" / "theirs" / "tasks" / "big.py").exists()
    assert "theirs" in lm_eval_command("packs", "ls").stdout
    (listed,) = json.loads(lm_eval_command("packs", "ls", "--json").stdout)
    assert (listed["name"], listed["files"]) == ("theirs", 4)
    assert "colours" in lm_eval_command("ls", "subtasks", "colours").stdout
    assert not (tmp_path / "witness").exists()

    run = ("run", "--model", "dummy", "--tasks")
    first = lm_eval_command(*run, "colours")
    assert first.returncode == 0, first.stderr
    assert "the first task from the pack theirs" in first.stderr
    assert (tmp_path / "witness").exists()
    again = lm_eval_command(*run, "theirs:demo_choice")
    assert again.returncode == 0, again.stderr
    assert "first task" not in again.stderr
    assert "|demo_choice|" in again.stdout

    assert lm_eval_command("packs", "remove", "theirs").returncode == 0
    assert "No packs" in lm_eval_command("packs", "ls").stdout
    assert lm_eval_command(*run, "colours").returncode == 2


def test_ours_go_first_and_a_packs_name_leads_to_its_own(published: Path) -> None:
    packs.add(str(published))
    manager = TaskManager()
    (ours,) = manager.load("demo_choice")["tasks"].values()
    (theirs,) = manager.load("theirs:demo_choice")["tasks"].values()
    assert len(ours.eval_docs) == 240
    assert len(theirs.eval_docs) == 6


def test_archives_and_repositories_are_packs_too(published: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "zipped"), "zip", published)
    assert packs.add(archive).name == "zipped"
    tarred = shutil.make_archive(str(tmp_path / "tarred"), "gztar", published)
    assert packs.add(tarred, "other").name == "other"
    for words in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *words], cwd=published, check=True, capture_output=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=published, check=True, capture_output=True, text=True
    ).stdout.strip()
    cloned = packs.add(f"git+file://{published}@{head}")
    assert (cloned.name, cloned.record()["version"]) == ("theirs", head)
    hashes = {pack.record()["hash"] for pack in packs.installed()}
    assert len(hashes) == 1


def test_a_pack_is_fetched_anew(published: Path) -> None:
    pack = packs.add(str(published))
    assert packs.update("theirs")[1] is False
    file = published / "lm_eval" / "tasks" / "colours" / "colours.yaml"
    file.write_text(file.read_text() + "num_fewshot: 1\n")
    assert packs.update("theirs")[1] is True
    assert "num_fewshot" in (pack.tasks / "colours" / "colours.yaml").read_text()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere", "there is no such file or folder. Give pypi:"),
        ("{tmp}/theirs/lm_eval/models", "there are no task files"),
        ("{tmp}/theirs/lm_eval/models/big.py", "neither a folder nor a zip"),
        ("{tmp}/theirs --name theirs2 --hash sha256:0", "was expected. Nothing was added"),
        ("{tmp}/theirs --name a/b", "cannot be called"),
        ("git+file:///nowhere@x", "git"),
    ],
)
def test_what_is_no_pack_is_refused_and_leaves_nothing(
    lm_eval_command: Command, published: Path, tmp_path: Path, source: str, said: str
) -> None:
    done = lm_eval_command("packs", "add", *source.format(tmp=tmp_path).split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not packs.installed()
    assert not list((tmp_path / "packs").glob("*")) if (tmp_path / "packs").exists() else True


def test_a_pack_does_not_overwrite_another(published: Path) -> None:
    packs.add(str(published))
    with pytest.raises(ValueError, match="there is a pack 'theirs' already"):
        packs.add(str(published))


def test_a_file_changed_since_is_refused_before_it_runs(
    lm_eval_command: Command, published: Path, tmp_path: Path
) -> None:
    pack = packs.add(str(published))
    code = pack.tasks / "colours" / "utils.py"
    code.write_text(code.read_text() + "# more\n")
    done = lm_eval_command("run", "--model", "dummy", "--tasks", "colours")
    assert done.returncode == 2
    assert "was changed after the pack 'theirs' was added" in done.stderr
    assert not (tmp_path / "witness").exists()
