"""Tests that packs, task folders and mirrors of strangers run and read only what they may."""

from __future__ import annotations

import importlib._bootstrap_external
import json
import marshal
import pickle
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval.cli import main
from lm_eval.data.fetch import copy_to_mirror
from lm_eval.data.load import Loaded, load_splits
from lm_eval.data.mirror import Mirror, mirror_at
from lm_eval.data.parquet import read_parquet
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import ConfigError, DataError, EvalError
from lm_eval.tasks import TaskManager, packs
from tests.conftest import Folder

Output = pytest.CaptureFixture[str]

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: {function}
doc_to_target: x
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lm_eval.tasks

    monkeypatch.setenv("LMEVAL_PACKS_DIR", str(tmp_path / "packs"))
    monkeypatch.setattr(lm_eval.tasks, "__path__", list(lm_eval.tasks.__path__))


@pytest.fixture
def theirs(tmp_path: Path) -> Folder:
    """Returns a task folder with one document, to which tasks are added by `add`."""
    made = Folder(tmp_path / "theirs")
    made.rows("family/rows.jsonl", [{"q": "a"}])
    return made


def add(folder: Folder, function: str, name: str = "t") -> None:
    folder.write(
        f"family/{name}.yaml", TASK.format(name=name, function=function, data="rows.jsonl")
    )


def built(name: str, include_path: Path | None = None) -> Any:
    (task,) = TaskManager(include_path=include_path).load([name])["tasks"].values()
    return task.config.doc_to_text({})  # type: ignore[attr-defined]


# -- code -------------------------------------------------------------------------------------


def planted_bytecode(source: Path, code: str) -> Path:
    """Writes compiled `code` that Python takes for that of the file `source`."""
    status = source.stat()
    content = importlib._bootstrap_external._code_to_timestamp_pyc(
        compile(code, str(source), "exec"), int(status.st_mtime), status.st_size
    )
    cached = Path(importlib._bootstrap_external.cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(content)
    return cached


@pytest.mark.parametrize("imported", ["utils", "other"])
def test_code_is_compiled_from_its_source(theirs: Folder, imported: str) -> None:
    theirs.write("family/utils.py", "from .other import g\ndef f(doc):\n    return g()\n")
    theirs.write("family/other.py", "def g():\n    return 'read'\n")
    add(theirs, "!function utils.f")
    names = "def g():\n    return 'planted'\ndef f(doc):\n    return 'planted'\n"
    planted_bytecode(theirs.path / "family" / f"{imported}.py", names)
    assert built("t", theirs.path) == "read"


def test_a_pack_is_compiled_from_its_verified_source(theirs: Folder) -> None:
    theirs.write("family/utils.py", "def f(doc):\n    return 'read'\n")
    add(theirs, "!function utils.f")
    pack = packs.add(str(theirs.path), "strange")
    planted_bytecode(pack.tasks / "family/utils.py", "def f(doc):\n    return 'planted'\n")
    assert built("strange:t") == "read"


def test_compiled_code_without_source_is_no_module(theirs: Folder) -> None:
    theirs.write("family/utils.py", "from .secret import f\n")
    magic = importlib._bootstrap_external.MAGIC_NUMBER + b"\0" * 12
    code = marshal.dumps(compile("f = print", "secret.py", "exec"))
    (theirs.path / "family/secret.pyc").write_bytes(magic + code)
    add(theirs, "!function utils.f")
    with pytest.raises(ConfigError, match="compiled code without its source"):
        built("t", theirs.path)


def test_compiled_code_that_was_added_to_a_pack_is_noticed(theirs: Folder) -> None:
    theirs.write("family/utils.py", "def f(doc):\n    return 'read'\n")
    add(theirs, "!function utils.f")
    pack = packs.add(str(theirs.path), "strange")
    (pack.tasks / "helper.pyc").write_bytes(b"anything")
    with pytest.raises(ConfigError, match=r"helper\.pyc: was changed after the pack"):
        built("strange:t")


def test_importing_writes_nothing_into_the_folder(theirs: Folder) -> None:
    theirs.write("family/utils.py", "from .other import f\n")
    theirs.write("family/other.py", "def f(doc):\n    return 'read'\n")
    add(theirs, "!function utils.f")
    assert built("t", theirs.path) == "read"
    assert not list(theirs.path.rglob("__pycache__"))


@pytest.mark.parametrize(
    "reference",
    ["a..b.f", "utils..f", "..f", "...f", "a//utils.f", "/utils..f", "./a//b.f", "a/.../b.f", ".f"],
)
def test_a_reference_with_an_empty_part_is_explained(
    theirs: Folder, reference: str, capsys: Output
) -> None:
    theirs.write("family/utils.py", "raise SystemExit\n")
    theirs.write("family/a/utils.py", "raise SystemExit\n")
    theirs.write("family/a/b.py", "raise SystemExit\n")
    add(theirs, f"!function {reference}")
    with pytest.raises(ConfigError, match=r"write it as file\.name"):
        built("t", theirs.path)
    assert main(["validate", "t", "--include_path", str(theirs.path), "--no-build"]) == 1
    assert "write it as file.name" in capsys.readouterr().out


@pytest.mark.parametrize("as_pack", [False, True])
def test_an_absolute_path_outside_the_folder_is_refused(
    theirs: Folder, tmp_path: Path, as_pack: bool
) -> None:
    outside = Folder(tmp_path / "mine").write("own.py", "raise SystemExit\n")
    add(theirs, f"!function {outside.with_suffix('')}.f")
    if as_pack:
        packs.add(str(theirs.path), "strange")
    with pytest.raises(ConfigError, match=r"own\.py is outside .*, the folder of task files"):
        built(*(["strange:t"] if as_pack else ["t", theirs.path]))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"own\.py is outside"):
        built(str(theirs.path / "family" / "t.yaml"))


def test_an_absolute_path_inside_the_folder_is_found(theirs: Folder) -> None:
    file = theirs.write("family/utils.py", "def f(doc):\n    return 'read'\n")
    add(theirs, f"!function {file.with_suffix('')}.f")
    assert built("t", theirs.path) == "read"


@pytest.mark.parametrize("first", ["", "."])
def test_a_module_of_the_current_folder_is_not_run(
    theirs: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    mine = Folder(tmp_path / "mine")
    mine.write("mine_of_here.py", "raise SystemExit\n")
    monkeypatch.chdir(mine.path)
    monkeypatch.setattr(sys, "path", [first and str(mine.path), *sys.path])
    add(theirs, "!function mine_of_here.f")
    with pytest.raises(ConfigError, match="no module 'mine_of_here' can be imported"):
        built("t", theirs.path)


def test_a_module_of_an_installed_package_is_still_found(theirs: Folder) -> None:
    add(theirs, "!function json.encoder.json.dumps")
    with pytest.raises(ConfigError, match=r"no module 'json\.encoder\.json' can be imported"):
        built("t", theirs.path)
    add(theirs, "!function json.dumps")
    assert built("t", theirs.path) == "{}"


def test_a_pack_includes_no_file_outside(theirs: Folder, tmp_path: Path) -> None:
    outside = Folder(tmp_path / "mine")
    outside.write("own.py", "raise SystemExit\n")
    outside.write("own.yaml", "doc_to_text: !function own.f\n")
    add(theirs, "x")
    text = (theirs.path / "family/t.yaml").read_text().replace("doc_to_text: x\n", "")
    theirs.write("family/t.yaml", f"include: {outside.path / 'own.yaml'}\n{text}")
    packs.add(str(theirs.path), "strange")
    with pytest.raises(ConfigError, match=r"own\.yaml: a task of the pack 'strange' includes this"):
        built("strange:t")


# -- archives ---------------------------------------------------------------------------------


def tarred(change: Callable[[tarfile.TarInfo], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with tarfile.open(folder / "evil.tar.gz", "w:gz") as archive:
            archive.add(folder / "theirs" / "family" / "t.yaml", "tasks/t.yaml")
            member = tarfile.TarInfo("tasks/more.yaml")
            change(member)
            archive.addfile(member)
        return folder / "evil.tar.gz"

    return make


def zipped(name: str, mode: int = 0) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "evil.zip", "w") as archive:
            archive.write(folder / "theirs" / "family" / "t.yaml", "tasks/t.yaml")
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            archive.writestr(member, "/etc/hostname")
        return folder / "evil.zip"

    return make


def set_to(**values: Any) -> Callable[[tarfile.TarInfo], None]:
    def change(member: tarfile.TarInfo) -> None:
        for name, value in values.items():
            setattr(member, name, value)

    return change


EVIL_ARCHIVES = {
    "a tar with ..": tarred(set_to(name="../escaped.yaml")),
    "a tar with .. inside": tarred(set_to(name="tasks/../../escaped.yaml")),
    "a tar with an absolute path": tarred(set_to(name="/escaped.yaml")),
    "a tar with a symbolic link": tarred(set_to(type=tarfile.SYMTYPE, linkname="t.yaml")),
    "a tar with a hard link": tarred(set_to(type=tarfile.LNKTYPE, linkname="tasks/t.yaml")),
    "a tar with a named pipe": tarred(set_to(type=tarfile.FIFOTYPE)),
    "a tar with a device": tarred(set_to(type=tarfile.CHRTYPE)),
    "a zip with ..": zipped("../escaped.yaml"),
    "a zip with .. inside": zipped("tasks/../../escaped.yaml"),
    "a zip with backslashes": zipped("tasks\\..\\..\\escaped.yaml"),
    "a zip with an absolute path": zipped("/escaped.yaml"),
    "a zip with a drive": zipped("C:/escaped.yaml"),
    "a zip with a link": zipped("tasks/link.yaml", stat.S_IFLNK | 0o777),
    "a zip with a named pipe": zipped("tasks/pipe.yaml", stat.S_IFIFO | 0o666),
}


@pytest.mark.parametrize("name", EVIL_ARCHIVES)
def test_an_archive_that_leaves_its_folder_is_refused(
    name: str, theirs: Folder, tmp_path: Path, capsys: Output
) -> None:
    add(theirs, "x")
    archive = EVIL_ARCHIVES[name](tmp_path)
    assert main(["packs", "add", str(archive)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"lm-eval: error: {archive}: ")
    assert "leads out of the archive" in error or "is a link or a device" in error
    assert not list(tmp_path.rglob("escaped.yaml"))
    assert not packs.installed()


def test_an_archive_of_very_many_files_is_refused(
    theirs: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lm_eval.tasks.pack_sources.MOST_FILES", 3)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(4):
            archive.writestr(f"tasks/{number}.yaml", "")
    with pytest.raises(ConfigError, match="contains more than 3 files"):
        packs.add(str(tmp_path / "many.zip"))


# -- data -------------------------------------------------------------------------------------


class _Witness:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("path", ["pandas", "pickle"])
def test_pickles_are_not_read(path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.pkl"
    file.write_bytes(pickle.dumps(_Witness(tmp_path / "witness")))
    with pytest.raises(DataError, match=r"pickle files are not read.*Parquet"):
        load_splits(path, data_files={"test": str(file)})
    with pytest.raises(DataError):
        load_splits(path, data_files={"test": "https://example.org/rows.pkl"})
    assert not (tmp_path / "witness").exists()


def test_the_installed_datasets_library_refuses_pickles_and_scripts(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    file = tmp_path / "rows.pkl"
    file.write_bytes(pickle.dumps(_Witness(tmp_path / "witness")))
    with pytest.raises(Exception):  # noqa: B017, PT011 (of the library)
        datasets.load_dataset("pandas", data_files=str(file), cache_dir=str(tmp_path / "cache"))
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "scripted.py").write_text(f"open({str(tmp_path / 'witness')!r}, 'w')\n")
    with pytest.raises(DataError):
        load_splits(str(folder), trust_remote_code=True)
    assert not (tmp_path / "witness").exists()


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """Returns a mirror with `org/things`: a test split of 4 rows and a train split of 2."""
    pyarrow = pytest.importorskip("pyarrow")
    from lm_eval.data.rows import TableRows

    rows = {"test": ["a", "b", "c", "d"], "train": ["e", "f"]}
    tables = {split: TableRows(pyarrow.table({"q": texts})) for split, texts in rows.items()}
    loaded = Loaded("org/things", None, {}, Splits.of(Origin("hub", "org/things"), tables))
    copy_to_mirror(loaded, tmp_path / "mirror")
    return tmp_path / "mirror"


def source_of(mirror: Path) -> tuple[Path, dict[str, Any]]:
    file = mirror / "org/things/default/source.json"
    return file, json.loads(file.read_text())


def read(mirror: Path) -> int:
    splits = Mirror(mirror).find("org/things", None, {})
    assert splits is not None
    return sum(len(splits[split]) for split in splits)


def test_a_sound_mirror_is_read(mirror: Path) -> None:
    assert read(mirror) == 6


def write(mirror: Path, name: str, texts: list[str]) -> Path:
    import pyarrow
    import pyarrow.parquet

    file = mirror / "org/things/default" / name
    pyarrow.parquet.write_table(pyarrow.table({"q": texts}), file)
    return file


def _fewer_rows(mirror: Path) -> None:
    write(mirror, "test.parquet", ["a", "b", "c"])


def _other_rows(mirror: Path) -> None:
    write(mirror, "test.parquet", ["a", "b", "c", "D"])


def _no_file(mirror: Path) -> None:
    (mirror / "org/things/default/train.parquet").unlink()


def _changed(**values: Any) -> Callable[[Path], None]:
    def change(mirror: Path) -> None:
        file, source = source_of(mirror)
        file.write_text(json.dumps({**source, **values}))

    return change


def _text(text: str) -> Callable[[Path], None]:
    return lambda mirror: source_of(mirror)[0].write_text(text) and None


def _shards(*names: str) -> Callable[[Path], None]:
    def change(mirror: Path) -> None:
        source_of(mirror)[0].unlink()
        (mirror / "org/things/default/test.parquet").unlink()
        for name in names:
            write(mirror, f"{name}.parquet", ["a"])

    return change


def _with_whole(mirror: Path) -> None:
    source_of(mirror)[0].unlink()
    write(mirror, "test-00000-of-00001.parquet", ["a"])


BAD_MIRRORS: dict[str, tuple[Callable[[Path], None], str]] = {
    "fewer rows": (_fewer_rows, "has 3 rows instead of 4"),
    "other rows": (_other_rows, "has other rows"),
    "a missing file": (_no_file, "train.parquet is missing, which source.json lists"),
    "splits that are a list": (_changed(splits=["test"]), "`splits` must be an object"),
    "splits of numbers": (_changed(splits={"test": 4}), "`splits` must be an object"),
    "rows that are text": (_changed(splits={"test": {"rows": "4"}}), "4 rows instead of 4"),
    "a source that is no JSON": (_text("{"), "cannot be read as JSON"),
    "a source that is a list": (_text("[]"), "must contain a JSON object"),
    "a missing first part": (_shards("test-00001-of-00002"), "test-00000-of-00002.parquet is miss"),
    "a missing last part": (_shards("test-00000-of-00003", "test-00001-of-00003"), "2 of 3 files"),
    "a part too many": (_shards("test-00000-of-00001", "test-00001-of-00001"), "2 of 1 files"),
    "parts of two copies": (
        _shards("test-00000-of-00001", "test-00001-of-00002"),
        "do not belong together",
    ),
    "a whole and its parts": (_with_whole, "do not belong together"),
}


@pytest.mark.parametrize("name", BAD_MIRRORS)
def test_a_mirror_that_is_not_what_was_fetched_is_an_error(name: str, mirror: Path) -> None:
    change, said = BAD_MIRRORS[name]
    change(mirror)
    with pytest.raises(EvalError) as caught:
        read(mirror)
    assert said in str(caught.value)
    assert str(mirror / "org/things/default") in str(caught.value)
    with mirror_at(mirror), pytest.raises(EvalError):
        dict(load_splits("org/things"))


def test_complete_parts_are_one_split(mirror: Path) -> None:
    _shards("test-00000-of-00002", "test-00001-of-00002")(mirror)
    assert read(mirror) == 4
    assert len(read_parquet([write(mirror, "x.parquet", ["a"])])) == 1
