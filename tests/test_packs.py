"""Tests task packs: installing them, and that none of their code runs before it is used."""

from __future__ import annotations

import importlib
import importlib.abc
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from lm_eval import simple_evaluate
from lm_eval.errors import ConfigError, EvalError, UnknownNameError
from lm_eval.tasks import TaskManager, pack_imports, pack_sources, packs
from tests.conftest import Command, Folder


@pytest.fixture(autouse=True)
def _own_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMEVAL_PACKS_DIR", str(tmp_path / "packs"))
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def published(tmp_path: Path, colours: Folder) -> Path:
    """Writes a project with task files and code in `lm_eval/tasks`, and other files."""
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
    assert "use theirs:demo_choice for the task of this pack" in added.stdout
    assert not (tmp_path / "packs" / "theirs" / "tasks" / "big.py").exists()
    assert "theirs" in lm_eval_command("packs", "ls").stdout
    (listed,) = json.loads(lm_eval_command("packs", "ls", "--json").stdout)
    assert (listed["name"], listed["files"]) == ("theirs", 4)
    assert "colours" in lm_eval_command("ls", "subtasks", "colours").stdout
    inside = lm_eval_command("ls", "subtasks", "theirs").stdout  # no task is called like that
    assert inside == lm_eval_command("ls", "subtasks", "theirs:").stdout
    assert "|colours" in inside
    assert not (tmp_path / "witness").exists()

    run = ("run", "--model", "dummy", "--tasks")
    first = lm_eval_command(*run, "colours")
    assert first.returncode == 0, first.stderr
    assert "code from the pack theirs" in first.stderr
    assert "is run for the first time" in first.stderr
    assert (tmp_path / "witness").exists()
    again = lm_eval_command(*run, "theirs:demo_choice")
    assert again.returncode == 0, again.stderr
    assert "first time" not in again.stderr
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


def test_a_tag_that_the_library_has_too_gets_all_tasks_of_a_pack(tmp_path: Path) -> None:
    """A task that comes after the tag is added to it; one with a name of the library is not."""
    ours, theirs = Folder(tmp_path / "ours"), Folder(tmp_path / "theirs")
    ours.write("own.yaml", "task: own\ntag: shared\n")
    for name in ("first", "own", "second"):
        theirs.write(f"tasks/{name}.yaml", f"task: {name}\ntag: shared\n")
    packs.add(str(theirs.path))
    index = TaskManager(include_path=ours.path).task_index
    assert index["shared"].tags == {"own", "first", "second"}
    assert index["own"].path == str(ours.path / "own.yaml")


def _commit(folder: Path) -> str:
    for words in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    )
    return head.stdout.strip()


def test_archives_and_repositories_are_packs_too(published: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "zipped"), "zip", published)
    assert packs.add(archive).name == "zipped"
    tarred = shutil.make_archive(str(tmp_path / "tarred"), "gztar", published)
    assert packs.add(tarred, "other").name == "other"
    head = _commit(published)
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
        ("{tmp}/theirs --name ..", "cannot be called"),
        ("{tmp}/theirs --name .hidden", "cannot be called"),
        ("{tmp}/theirs --name a:b", "cannot be called"),
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
    with pytest.raises(ValueError, match="there is already a pack 'theirs'"):
        packs.add(str(published))


@pytest.mark.parametrize("other", ["utils.py", "colours.jsonl", "new.py"])
def test_a_file_changed_since_is_refused_before_it_runs(
    lm_eval_command: Command, published: Path, tmp_path: Path, other: str
) -> None:
    pack = packs.add(str(published))
    with (pack.tasks / "colours" / other).open("a") as file:
        file.write("\n")
    done = lm_eval_command("run", "--model", "dummy", "--tasks", "colours")
    assert done.returncode == 2
    assert f"{other}: was changed after the pack 'theirs' was added" in done.stderr
    assert not (tmp_path / "witness").exists()


def test_what_a_task_includes_or_imports_from_elsewhere_is_checked_too(published: Path) -> None:
    project = Folder(published / "lm_eval" / "tasks")
    project.write("shared/part_yaml", "num_fewshot: 0\n")
    project.write("far/code.py", "")
    project.write("colours/more.yaml", "include: [colours.yaml, ../shared/part_yaml]\ntask: more\n")
    pack = packs.add(str(published))
    for changed in ("far/code.py", "shared/part_yaml"):
        text = (pack.tasks / changed).read_text()
        (pack.tasks / changed).write_text(text + "# changed\n")
        with pytest.raises(ConfigError, match=f"{changed}: was changed"):
            TaskManager().load("more")
        (pack.tasks / changed).write_text(text)
    assert TaskManager().load("more")["tasks"]


def test_a_groups_functions_are_checked_before_they_run(published: Path, tmp_path: Path) -> None:
    project = Folder(published / "lm_eval" / "tasks")
    metric = "{metric: acc, aggregation: !function utils.text}"
    project.write(
        "colours/all.yaml", f"group: all\ntask: [colours]\naggregate_metric_list: [{metric}]\n"
    )
    pack = packs.add(str(published))
    (pack.tasks / "colours" / "utils.py").write_text("raise SystemExit\n")
    with pytest.raises(ConfigError, match=r"utils.py: was changed"):
        TaskManager().load("all")


@pytest.mark.parametrize("file", [packs.RECORD, packs.HASHES])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"colours/colours.yaml": "0"}'])
def test_a_damaged_record_is_told_and_can_be_removed(
    lm_eval_command: Command, published: Path, file: str, text: str
) -> None:
    pack = packs.add(str(published))
    (pack.path / file).write_text(text)
    with pytest.raises(
        ConfigError, match=f"{file}: the file is damaged; run `lm-eval packs remove theirs`"
    ):
        TaskManager().load("colours")
    packs.remove("theirs")
    assert not list(packs.packs_folder().iterdir())


# -- names ------------------------------------------------------------------------------------


def test_an_older_pack_keeps_its_names(lm_eval_command: Command, published: Path) -> None:
    packs.add(str(published), "zebra")
    file = published / "lm_eval" / "tasks" / "colours" / "colours.yaml"
    file.write_text(file.read_text() + "num_fewshot: 1\n")
    added = lm_eval_command("packs", "add", published, "--name", "ape")
    assert (
        "the pack zebra also has 2 of these names and takes precedence; use ape:colours"
        in added.stdout
    )
    packs.update("zebra")
    packs.update("ape")
    assert [pack.name for pack in packs.installed()] == ["zebra", "ape"]
    (found,) = TaskManager().load("colours")["tasks"].values()
    assert "zebra" in found.config.metadata["config_source"]


def test_a_prefix_reaches_members_patterns_overrides_and_lists(published: Path) -> None:
    project = Folder(published / "lm_eval" / "tasks")
    project.write("colours/both.yaml", "group: both\ntask: [demo_choice, colours]\n")
    packs.add(str(published))
    manager = TaskManager()
    for asked in ("theirs:demo_*", "theirs:both::demo_choice", {"task": "theirs:demo_choice"}):
        (found,) = manager.load([asked])["tasks"].values()
        assert len(found.eval_docs) == 6, asked
    assert len(manager.load("theirs:both")["tasks"]["demo_choice"].eval_docs) == 6
    assert [entry.name for entry in manager.entries("theirs:demo_*")] == ["demo_choice"]
    assert "demo_choice" in manager.list_all_tasks(search="theirs:demo")
    assert "demo_choice" not in manager.list_all_tasks(search="theirs:colour")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("theirs:demo_pairs", "theirs has no task, group or tag 'demo_pairs'"),
        ("theirs:colour", "Did you mean 'colours'"),
        (
            "thiers:colours",
            "there is no plug-in or pack 'thiers', so 'thiers:colours' cannot be found. Did",
        ),
    ],
)
def test_a_name_that_a_pack_does_not_have_is_not_looked_for_elsewhere(
    published: Path, asked: str, said: str
) -> None:
    packs.add(str(published))
    with pytest.raises(UnknownNameError, match=said):
        TaskManager().load(asked)


def test_stored_answers_of_a_packs_task_are_scored_again(
    lm_eval_command: Command, published: Path, tmp_path: Path
) -> None:
    packs.add(str(published))
    asked = ("--tasks", "theirs:demo_choice")
    words = ("--model", "dummy", *asked, "--output_path", tmp_path / "out", "--log_samples")
    assert lm_eval_command("run", *words).returncode == 0
    (run,) = (tmp_path / "out").iterdir()
    (log,) = run.glob("samples_*.jsonl")
    for stored in ((run,), (log, *asked)):
        again = lm_eval_command("score", *stored)
        assert again.returncode == 0, again.stderr
        assert "|demo_choice|" in again.stdout
        # A log has the documents in it.
        (packs.find("theirs").tasks / "colours" / "colours.jsonl").unlink(missing_ok=True)
    packs.remove("theirs")
    gone = lm_eval_command("score", run)
    assert (gone.returncode, "no plug-in or pack 'theirs'" in gone.stderr) == (2, True)


# -- what comes from strangers ----------------------------------------------------------------


def test_an_archive_writes_nothing_outside_its_folder(published: Path, tmp_path: Path) -> None:
    tarred = tmp_path / "evil.tar"
    with tarfile.open(tarred, "w") as archive:
        archive.add(published / "lm_eval", "lm_eval")
        archive.add(published / "lm_eval" / "models" / "big.py", "../../escaped.py")
    with pytest.raises(ConfigError, match=r"evil.tar: '../../escaped.py' leads out of the"):
        packs.add(str(tarred))
    linked = tmp_path / "linked.tar"
    with tarfile.open(linked, "w") as archive:
        archive.add(published / "lm_eval", "lm_eval")
        member = tarfile.TarInfo("lm_eval/tasks/host.yaml")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(member)
    with pytest.raises(ConfigError, match=r"linked.tar: .*host.yaml' is a link or a device"):
        packs.add(str(linked))
    zipped = tmp_path / "zipped.zip"
    with zipfile.ZipFile(zipped, "w") as other:
        other.write(published / "lm_eval/tasks/colours/colours.yaml", "tasks/colours.yaml")
        other.writestr("../escaped.py", "")
    with pytest.raises(ConfigError, match=r"zipped.zip: '../escaped.py' leads out of the archive"):
        packs.add(str(zipped))
    assert not list(tmp_path.rglob("escaped.py"))
    assert not packs.installed()


def test_a_repository_has_no_links_to_this_machines_files(published: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("task: secret\n")
    (published / "lm_eval" / "tasks" / "own.yaml").symlink_to(tmp_path / "secret.yaml")
    _commit(published)
    with pytest.raises(
        ConfigError, match=r"own.yaml is a symbolic link that leads out of the repository"
    ):
        packs.add(f"git+file://{published}")
    assert not packs.installed()


def test_what_is_too_large_to_be_task_files_is_refused(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_sources, "LARGEST", 2000)
    (published / "lm_eval" / "tasks" / "weights.bin").write_bytes(bytes(3000))
    archives = [
        shutil.make_archive(str(tmp_path / "a"), kind, published) for kind in ("zip", "tar")
    ]
    for source in (str(published), *archives):
        with pytest.raises(ConfigError, match="give a folder that contains only the task files"):
            packs.add(source)
    assert not packs.installed()


@pytest.mark.parametrize(
    "source", ["", "pypi:", "pypi:--help", "pypi:-rx", "git+", "git+-x", "git+a/b@-x"]
)
def test_a_source_is_never_an_option_of_another_program(
    monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(
        ConfigError, match=r"the source of the pack is empty|not a valid (package|repository)"
    ):
        packs.add(source)


def test_a_package_is_fetched_without_building_it(
    tmp_path: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip downloads a wheel, because building a source archive would run its code."""
    asked: list[list[str]] = []

    def pip(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        made = shutil.make_archive(str(tmp_path / "wheel"), "zip", published)
        shutil.copy(made, Path(cwd) / "theirs-1.2-py3-none-any.whl")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    pack = packs.add("pypi:theirs==1.2")
    assert (pack.name, pack.record()["version"]) == ("theirs", "1.2")
    assert "--only-binary=:all:" in asked[0]
    assert asked[0][-2:] == ["--", "theirs==1.2"]


def test_why_a_package_cannot_be_had_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "WARNING: x\nERROR: Could not find it\nERROR: No matching distribution found for x==9\n"
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", said)
    )
    with pytest.raises(
        ConfigError, match=r"^pypi:x==9: .*: No matching distribution found for x==9\.$"
    ):
        packs.add("pypi:x==9")


def test_code_of_a_pack_does_not_take_the_place_of_ours(
    lm_eval_command: Command, published: Path
) -> None:
    project = Folder(published / "lm_eval" / "tasks")
    project.write("check.py", "raise SystemExit\n")
    project.write("colours/near.py", "WORD = 'near'\n")
    project.write(
        "colours/utils.py",
        "import lm_eval.tasks.check\n"
        "from lm_eval.tasks.colours.near import WORD\n"
        "def text(doc):\n    return WORD\n",
    )
    packs.add(str(published))
    done = lm_eval_command("run", "--model", "dummy", "--tasks", "colours")
    assert done.returncode == 0, done.stderr


IMPORTS = """
import lm_eval.tasks.colours.utils as own
from lm_eval.tasks.hellaswag.utils import preprocess
from lm_eval.tasks.hellaswag.more import WORD
import lm_eval.tasks.check
print(own.text({"thing": "sky"}), WORD, preprocess.__module__, hasattr(lm_eval.tasks, "nothing"))
from lm_eval.tasks import TaskManager
print(TaskManager().load("colours")["tasks"]["colours"].config.doc_to_text({"thing": "sea"}))
import lm_eval.tasks.nothing
"""


def test_code_of_a_pack_can_be_imported_before_any_task_is_built(
    published: Path, tmp_path: Path
) -> None:
    project = Folder(published / "lm_eval" / "tasks")
    project.write("check.py", "raise SystemExit\n")
    project.write("hellaswag/utils.py", "raise SystemExit\n")
    project.write("hellaswag/more.py", "WORD = 'more'\n")
    pack = packs.add(str(published))
    run = (sys.executable, "-c", IMPORTS)
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["sky more lm_eval.tasks.hellaswag.utils False", "sea"]
    assert "code from the pack theirs" in done.stderr
    assert "ModuleNotFoundError: No module named 'lm_eval.tasks.nothing'" in done.stderr

    (tmp_path / "witness").unlink()
    with (pack.tasks / "colours" / "utils.py").open("a") as file:
        file.write("\n")
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "utils.py: was changed after the pack 'theirs' was added" in done.stderr
    assert not (tmp_path / "witness").exists()


def test_importing_the_tasks_reads_no_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError("packs were read")

    monkeypatch.setattr(packs, "installed", fail)
    pack_imports.install()  # as `lm_eval.tasks` does when it is imported
    importlib.import_module("lm_eval.tasks.hellaswag.utils")
    finders = [one for one in sys.meta_path if type(one).__name__ == "_PackFinder"]
    assert len(finders) == 1
    with pytest.raises(AssertionError, match="packs were read"):
        importlib.import_module("lm_eval.tasks.nothing")


# -- accidents --------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", [False, True])
def test_an_add_that_breaks_off_leaves_what_was_there(
    published: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    before = packs.add(str(published)).record() if replace else None

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        packs.add(str(published), replace=replace)
    assert [pack.record() for pack in packs.installed()] == ([before] if before else [])
    assert len(list(packs.packs_folder().iterdir())) == (1 if replace else 0)


def test_of_two_that_add_at_once_one_is_told(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copyfile = shutil.copyfile

    def meanwhile(*words: object) -> None:
        monkeypatch.setattr(shutil, "copyfile", copyfile)
        packs.add(str(published))
        copyfile(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(shutil, "copyfile", meanwhile)
    with pytest.raises(ConfigError, match="there is already a pack 'theirs'"):
        packs.add(str(published))
    assert [path.name for path in packs.packs_folder().iterdir()] == ["theirs"]


def test_what_a_killed_command_left_is_swept_up(published: Path) -> None:
    left = packs.packs_folder() / ".adding-old"
    (left / "new").mkdir(parents=True)
    os.utime(left, (0, 0))
    packs.add(str(published))
    assert [path.name for path in packs.packs_folder().iterdir()] == ["theirs"]


def test_a_folder_that_cannot_hold_packs_is_named(
    lm_eval_command: Command, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LMEVAL_PACKS_DIR", str(tmp_path / "file" / "packs"))
    done = lm_eval_command("packs", "add", published)
    assert done.returncode == 2
    assert "packs cannot be stored there" in done.stderr
    assert "set LMEVAL_PACKS_DIR to another" in done.stderr


def test_a_pack_is_found_again_from_another_folder(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LMEVAL_PACKS_DIR", "relative/packs")
    pack = packs.add("theirs")
    assert pack.path == tmp_path / "relative" / "packs" / "theirs"
    monkeypatch.chdir("/")
    monkeypatch.setenv("LMEVAL_PACKS_DIR", str(tmp_path / "relative" / "packs"))
    assert packs.update("theirs")[1] is False


# -- what a task misses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sympy", r"pip install -e '\.\[math\]' in the checkout"),
        ("import word2number.w2n", "pip install word2number"),
        ("import json.gone", "the installed version of json has no json.gone"),
        ("import no_such_module_x", "install the package that has the module 'no_such_module_x'"),
        (
            "try:\n    import jieba\nexcept ImportError:\n    raise ImportError('install it all')",
            r"install it all.*: pip install jieba",
        ),
    ],
)
def test_a_missing_module_is_told_with_what_to_install(
    published: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    for name in ("sympy", "word2number", "word2number.w2n", "jieba"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Absent(), *sys.meta_path])
    code_file = published / "lm_eval" / "tasks" / "colours" / "utils.py"
    for text in (code, f"def text(doc):\n    {code.replace(chr(10), chr(10) + '    ')}\n"):
        code_file.write_text(f"{text}\ndef other(doc): pass\n")
        packs.add(str(published), "missing", replace=True)
        with pytest.raises(EvalError, match=said):
            simple_evaluate(model="dummy", tasks=["missing:colours"])


class _Absent(importlib.abc.MetaPathFinder):
    """An import hook that makes some packages appear as not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in ("sympy", "word2number", "jieba"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_measures_that_transformers_has_lost_are_stood_in_for(
    lm_eval_command: Command, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Folder(tmp_path / "lost")
    lost.write("transformers/__init__.py", "")
    lost.write("transformers/data/__init__.py", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(lost.path), *sys.path]))
    code = published / "lm_eval" / "tasks" / "colours" / "utils.py"
    code.write_text(
        "import transformers.data.metrics.squad_metrics as squad\n"
        "from transformers.data.metrics import squad_metrics\n"
        "assert squad is squad_metrics\n"
        "def text(doc):\n"
        "    assert squad.compute_exact('The cat.', 'cat') == 1\n"
        "    assert squad.compute_f1('a red cat', 'Cat!') == 2 / 3\n"
        "    return squad.normalize_answer(doc['thing'])\n"
    )
    packs.add(str(published))
    done = lm_eval_command("run", "--model", "dummy", "--tasks", "colours")
    assert done.returncode == 0, done.stderr
