"""Tests that documents are the same from the hub, a mirror, files or a saved dataset."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.data import Rows, TableRows, as_dataset, load_splits, mirror_at
from lm_eval.data import hub as hub_room
from lm_eval.data.fetch import copy_to_mirror
from lm_eval.data.fingerprint import fingerprint
from lm_eval.data.load import Loaded, recorded_loads
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Command, Folder
from tests.fake_hub import COMMIT, fake_hub
from tests.test_bad_input import refused

SHARED = Path(__file__).parents[2] / "shared" / "data"
shared_mirror = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")

ROWS: list[dict[str, Any]] = [
    {"question": "Grass?", "choices": ["green", "red"], "answer": 0, "n": {"a": 1.5, "b": None}},
    {"question": "Blood, ü?", "choices": ["red", "x", "–"], "answer": 1, "n": {"a": 2.0, "b": "y"}},
    {"question": "", "choices": [], "answer": None, "n": {"a": None, "b": "z"}},
]
SHORTEST = ScriptedLM(loglikelihood=lambda context, continuation: (-len(continuation), False))
TASK = """\
task: things
dataset_path: {path}
dataset_name: {name}
test_split: test
fewshot_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""


def dataset(rows: list[dict[str, Any]]) -> Any:
    import datasets

    return datasets.Dataset.from_list(rows)


def write_mirror(root: Path, name: str = "org/things", config: str = "default") -> Path:
    folder = root / name / config
    folder.mkdir(parents=True)
    dataset(ROWS[:2]).to_parquet(folder / "test.parquet")
    dataset(ROWS).to_parquet(folder / "train.parquet")
    return folder


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    root = tmp_path / "mirror"
    write_mirror(root)
    return root


@pytest.fixture
def things(folder: Folder) -> Path:
    """Writes a task whose dataset has a hub name."""
    return folder.write("things.yaml", TASK.format(path="org/things", name="null"))


# -- files ------------------------------------------------------------------------------------


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def zipped(content: bytes, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.jsonl", content)


def zst(content: bytes, path: Path) -> None:
    import pyarrow

    with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(content)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "x.json": lambda p: p.write_text(json.dumps(ROWS, indent=1)),
    "x.jsonl": lambda p: p.write_bytes(lines(ROWS)),
    "x.jsonl.gz": lambda p: p.write_bytes(gzip.compress(lines(ROWS))),
    "x.jsonl.bz2": lambda p: p.write_bytes(bz2.compress(lines(ROWS))),
    "x.jsonl.xz": lambda p: p.write_bytes(lzma.compress(lines(ROWS))),
    "x.jsonl.zst": lambda p: zst(lines(ROWS), p),
    "x.jsonl.zip": lambda p: zipped(lines(ROWS), p),
    "x.parquet": lambda p: dataset(ROWS).to_parquet(p),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_rows_come_from_every_kind_of_file(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    builder = "parquet" if name == "x.parquet" else "json"
    splits = load_splits(builder, data_files={"test": name}, folder=tmp_path)
    assert list(splits["test"]) == ROWS
    assert fingerprint(splits["test"]) == fingerprint(dataset(ROWS))


def test_tables_of_text_and_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("question,answer\nGrass?,0\nBlood?,1\n")
    (tmp_path / "x.tsv").write_text("question\tanswer\nGrass?\t0\n")
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    csv = load_splits("csv", data_files={"test": "x.csv"}, folder=tmp_path)
    tsv = load_splits("csv", data_files={"test": "x.tsv"}, sep="\t", folder=tmp_path)
    text = load_splits("text", data_files="x.txt", folder=tmp_path)
    assert list(csv["test"])[1] == {"question": "Blood?", "answer": 1}
    assert list(tsv["test"]) == [{"question": "Grass?", "answer": 0}]
    assert list(text["train"]) == [{"text": "one"}, {"text": "two"}]
    assert csv.origin == Origin("files", "csv")


def test_several_files_and_patterns_make_one_split(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"part{number}.jsonl").write_bytes(lines([{"number": number}]))
    listed = [f"part{number}.jsonl" for number in range(3)]
    for files in ({"test": listed}, {"test": "part*.jsonl"}):
        splits = load_splits("json", data_files=files, folder=tmp_path)
        assert [row["number"] for row in splits["test"]] == [0, 1, 2]


def test_jsonl_is_another_word_for_json(tmp_path: Path) -> None:
    (tmp_path / "x.data").write_bytes(lines(ROWS))  # a suffix that says nothing
    splits = load_splits("jsonl", data_files={"test": "x.data"}, folder=tmp_path)
    assert [row["answer"] for row in splits["test"]] == [0, 1, None]


def test_plain_files_are_read_without_the_library(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines(ROWS))
    dataset(ROWS).to_parquet(tmp_path / "x.parquet")
    code = (
        "import sys; from pathlib import Path; from lm_eval.data import load_splits\n"
        "for kind, file in (('json', 'x.jsonl'), ('parquet', 'x.parquet')):\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    list(load_splits(kind, data_files=dict(t=file), folder=folder)['t'])\n"
        "print('datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "rows",
    [
        [{"when": "2020-01-01"}, {"when": "2021-02-03"}],
        [{"n": 1}, {"n": 2.5}],
        [{"n": 3}, {"n": "three"}],
        [{"m": {"a": 1}}, {"m": {"b": 2}}],
        [{"l": [1, 2.5]}, {"l": []}],
        [{"a": 1}, {"b": "x"}],
    ],
)
def test_columns_the_library_reads_otherwise_are_left_to_it(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """`datasets` reads dates as timestamps and 1 among floats as 1.0; prompts must be the same."""
    import datasets

    (tmp_path / "x.jsonl").write_bytes(lines(rows))
    files = {"test": str(tmp_path / "x.jsonl")}
    theirs = list(datasets.load_dataset("json", data_files=files)["test"])
    assert repr(list(load_splits("json", data_files=files)["test"])) == repr(theirs)


def test_what_a_row_lacks_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"b": "x"}\n')
    rows = load_splits("json", data_files={"test": "x.jsonl"}, folder=tmp_path)["test"]
    assert list(rows) == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    assert isinstance(rows, Rows)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.jsonl", b"", "the file is empty"),
        ("x.jsonl", b'{"a": 1}\n{"a": \n', "x.jsonl:2: not valid JSON"),
        ("x.jsonl", b"[1, 2]", r"document 0 \(counted from 0\) must be a JSON object, not 1"),
        ("x.jsonl", b"\xff\xfe", "cannot be read as text"),
        ("x.jsonl.gz", b"not gzip", "cannot be read as text"),
        ("x.jsonl.zst", b"not zst", "cannot be read as text"),
        ("x.parquet", b"", "empty"),
        ("x.parquet", b"PAR1 and then nothing", "not a readable Parquet file"),
        ("x.csv", b"", "cannot be read as csv"),
    ],
)
def test_a_bad_file_is_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    builder = {"x.parquet": "parquet", "x.csv": "csv"}.get(name, "json")
    with pytest.raises(DataError, match=said) as raised:
        load_splits(builder, data_files={"test": name}, folder=tmp_path)["test"]
    assert name in str(raised.value)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="may read everything")
@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_file_that_may_not_be_read_is_named(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    (tmp_path / name).chmod(0)
    builder = "parquet" if name == "x.parquet" else "json"
    with pytest.raises(DataError, match="permission denied"):
        load_splits(builder, data_files={"test": name}, folder=tmp_path)["test"]


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_no_permission_is_said_as_such(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like the test above, if the tests run as root, who may read everything."""
    WRITERS[name](tmp_path / name)

    def denied(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", denied)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", denied)
    builder = "parquet" if name == "x.parquet" else "json"
    with pytest.raises(DataError, match=rf"{name}: the file cannot be read \(permission denied\)"):
        load_splits(builder, data_files={"test": name}, folder=tmp_path)["test"]


@pytest.mark.parametrize(
    ("path", "kwargs", "said"),
    [
        ("json", {}, "is a file format, but the task names no files"),
        ("json", {"data_files": {"test": "gone.jsonl"}}, "there is no data file gone.jsonl"),
        ("csv", {"data_files": {"test": "gone.csv"}}, "gone.csv"),
        ("script.py", {}, "do not run"),
        ("./gone", {}, "there is no folder ./gone"),
        ("org/things", {"split": "test"}, "dataset_kwargs must not contain `split`"),
        (None, {}, "names no dataset"),
    ],
)
def test_what_cannot_be_loaded_is_explained(
    path: str | None, kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        load_splits(path, **kwargs)


@pytest.mark.parametrize(
    ("path", "file"),
    [("json", "gone.jsonl"), ("parquet", "gone.parquet"), ("csv", "gone.csv"), ("csv", "g*.csv")],
)
def test_a_missing_data_file_is_told_with_the_folders_searched(
    path: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "beside", tmp_path / "here"
    beside.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(DataError) as caught:
        load_splits(path, data_files={"test": file}, folder=beside)["test"]
    assert "there is no data file" in str(caught.value)
    assert str(caught.value).endswith(f" Searched: {beside}, {here}.")


def test_a_missing_folder_is_told_with_the_folders_searched(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"no folder \./gone.* Searched: {tmp_path}, {Path.cwd()}\."
    ):
        load_splits("./gone", folder=tmp_path)


def test_a_quick_map_leaves_the_data_set_as_it_is() -> None:
    from lm_eval.data.quick_map import QuickDataset, quick

    given = dataset(ROWS)
    made = quick(given)
    assert (type(given).__name__, type(made)) == ("Dataset", QuickDataset)
    assert made.to_list() == given.to_list()


def test_a_data_set_script_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "old.py").write_text("raise SystemExit('was run')")
    with pytest.raises(DataError, match=r"`datasets` 4 and later do not run"):
        load_splits("old", folder=tmp_path, trust_remote_code=True)


# -- folders and functions --------------------------------------------------------------------


def test_a_saved_data_set_is_a_data_set(tmp_path: Path) -> None:
    import datasets

    both = datasets.DatasetDict({"test": dataset(ROWS[:2]), "train": dataset(ROWS)})
    both.save_to_disk(tmp_path / "saved")
    dataset(ROWS).save_to_disk(tmp_path / "single")
    splits = load_splits("saved", folder=tmp_path)
    assert splits.origin.source == "saved"
    assert list(splits) == ["test", "train"]
    assert list(splits["test"]) == ROWS[:2]
    assert list(load_splits(str(tmp_path / "single"))["train"]) == ROWS


def test_a_folder_of_files_is_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.jsonl").write_bytes(lines(ROWS[:2]))
    (tmp_path / "data" / "train.jsonl").write_bytes(lines(ROWS))
    splits = load_splits("./data", folder=tmp_path)
    assert {split: len(splits[split]) for split in splits} == {"train": 3, "test": 2}
    assert splits.origin.source == "files"


def test_process_docs_is_given_a_real_dataset(folder: Folder, mirror: Path) -> None:
    import datasets

    folder.write(
        "code.py",
        "import datasets\n"
        "def process(docs):\n"
        "    assert isinstance(docs, datasets.Dataset), type(docs)\n"
        "    return docs.map(lambda doc: {'question': doc['question'].upper()})\n",
    )
    text = TASK.format(path="org/things", name="null") + "process_docs: !function code.process\n"
    with mirror_at(mirror):
        task = TaskManager().load(str(folder.write("t.yaml", text)))["tasks"]["things"]
    assert [doc["question"] for doc in task.eval_docs] == ["GRASS?", "BLOOD, Ü?"]
    assert isinstance(as_dataset(task.eval_docs), datasets.Dataset)


def test_a_task_written_in_python_is_given_a_real_dataset_dict(
    folder: Folder, mirror: Path
) -> None:
    import datasets

    folder.write(
        "code.py",
        "from lm_eval.api.task import ConfigurableTask\n"
        "class Own(ConfigurableTask):\n"
        "    def __init__(self, config):\n"
        "        config = {k: v for k, v in config.items() if k != 'class'}\n"
        "        super().__init__(config=config)\n",
    )
    text = TASK.format(path="org/things", name="null") + "class: !function code.Own\n"
    with mirror_at(mirror):
        task = TaskManager().load(str(folder.write("t.yaml", text)))["tasks"]["things"]
    assert isinstance(task.dataset, datasets.DatasetDict)
    assert isinstance(task.eval_docs, datasets.Dataset)
    assert task.describe_data()["splits"]["test"]["fingerprint"] == fingerprint(dataset(ROWS[:2]))


def test_a_function_may_give_the_documents(folder: Folder) -> None:
    folder.write(
        "code.py",
        "import datasets\n"
        "def load(rows=1, **metadata):\n"
        "    row = {'question': 'q', 'choices': ['a', 'b'], 'answer': 0}\n"
        "    return {'test': datasets.Dataset.from_list([row] * rows), 'train': [row]}\n",
    )
    text = TASK.format(path="null", name="null") + "custom_dataset: !function code.load\n"
    file = folder.write("t.yaml", text + "metadata: {rows: 4}\n")
    results = lm_eval.simple_evaluate(SHORTEST, tasks=[str(file)], num_fewshot=1)
    assert results is not None
    described = results["datasets"]["things"]
    assert described["source"] == "function"
    assert {name: split["rows"] for name, split in described["splits"].items()} == {
        "test": 4,
        "train": 1,
    }


# -- the mirror -------------------------------------------------------------------------------


def test_a_mirror_answers_for_the_hub(things: Path, mirror: Path) -> None:
    results = lm_eval.simple_evaluate(
        SHORTEST, tasks=[str(things)], num_fewshot=1, limit=1, data_dir=str(mirror)
    )
    assert results is not None
    assert results["datasets"]["things"] == {
        "source": "mirror",
        "path": "org/things",
        "name": None,
        "revision": None,
        "splits": {
            "test": {"rows": 2, "fingerprint": fingerprint(dataset(ROWS[:2]))},
            "train": {"rows": 3, "fingerprint": fingerprint(dataset(ROWS))},
        },
    }


def test_splits_that_no_document_came_from_are_not_listed(things: Path, mirror: Path) -> None:
    results = lm_eval.simple_evaluate(SHORTEST, tasks=[str(things)], data_dir=str(mirror))
    assert results is not None
    assert list(results["datasets"]["things"]["splits"]) == ["test"]


def test_the_environment_may_name_the_mirror(
    things: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMEVAL_DATA_DIR", str(mirror))
    assert len(TaskManager().load(str(things))["tasks"]["things"].eval_docs) == 2


def test_a_split_nobody_asks_for_is_not_read(mirror: Path) -> None:
    (mirror / "org/things/default/train.parquet").write_bytes(b"broken")
    with mirror_at(mirror):
        splits = load_splits("org/things")
    assert len(splits["test"]) == 2
    with pytest.raises(DataError, match=r"train\.parquet: not a readable Parquet file"):
        splits["train"]


def test_a_name_without_its_owner_is_found(mirror: Path) -> None:
    with mirror_at(mirror):
        assert load_splits("things").origin.path == "org/things"
    write_mirror(mirror, "other/things")
    message = r"is ambiguous: .* org/things, other/things"
    with mirror_at(mirror), pytest.raises(DataError, match=message):
        load_splits("things")


def test_the_only_config_is_meant_where_none_is_named(mirror: Path) -> None:
    write_mirror(mirror, "org/one", "main")
    with mirror_at(mirror):
        assert list(load_splits("org/one")) == ["test", "train"]
        assert list(load_splits("org/one", "main")) == ["test", "train"]


def test_a_missing_config_lists_what_is_there(mirror: Path) -> None:
    for config in ("easy", "hard"):
        write_mirror(mirror, "org/two", config)
    with mirror_at(mirror):
        with pytest.raises(DataError, match=r"no config 'hrad'. Did you mean 'hard'.* easy, hard"):
            load_splits("org/two", "hrad")
        with pytest.raises(DataError, match=r"the task sets no dataset_name\. It has: easy, hard"):
            load_splits("org/two")


def test_tasks_that_share_a_split_share_its_rows(mirror: Path) -> None:
    with mirror_at(mirror):
        first, second = load_splits("org/things")["test"], load_splits("org/things")["test"]
        assert first is second
        dataset(ROWS).to_parquet(mirror / "org/things/default/test.parquet")
        assert len(load_splits("org/things")["test"]) == 3


def test_validate_reads_the_mirror_too(
    lm_eval_command: Command, things: Path, mirror: Path
) -> None:
    done = lm_eval_command("validate", "--tasks", things, "--data_dir", mirror)
    assert (done.returncode, "no problem found" in done.stdout) == (0, True), done.stdout


def test_parts_of_a_split_are_joined(tmp_path: Path) -> None:
    folder = tmp_path / "org" / "things" / "default"
    folder.mkdir(parents=True)
    for number in range(3):
        part = folder / f"test-0000{number}-of-00003.parquet"
        dataset([{"number": number}]).to_parquet(part)
    dataset([{"other": 1}]).to_parquet(folder / "odd-00000-of-00002.parquet")
    dataset([{"column": 1}]).to_parquet(folder / "odd-00001-of-00002.parquet")
    with mirror_at(tmp_path):
        splits = load_splits("org/things")
    with pytest.raises(DataError, match="parts of one split"):
        splits["odd"]
    assert [row["number"] for row in splits["test"]] == [0, 1, 2]


def test_files_picked_from_a_data_set_are_not_taken_for_the_whole(mirror: Path) -> None:
    with mirror_at(mirror), pytest.raises(DataError, match=r"The mirror .* does not contain it"):
        load_splits("org/things", data_files="other.jsonl")
    with mirror_at(mirror), pytest.raises(DataError, match=r"The mirror .* does not contain it"):
        load_splits("org/things", data_dir="french")


@pytest.mark.parametrize("path", ["../things", "org/../../things", "/etc/things", "org/.."])
def test_no_name_leads_out_of_the_mirror(path: str, mirror: Path) -> None:
    write_mirror(mirror.parent, "things")
    with mirror_at(mirror), pytest.raises(DataError, match="there is no folder"):
        load_splits(path)


def test_values_that_need_decoding_are_decoded(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features(
        {"when": datasets.Value("timestamp[s]"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    made = datasets.Dataset.from_dict({"when": [0], "label": [1]}, features=features)
    folder = tmp_path / "org" / "dates" / "default"
    folder.mkdir(parents=True)
    made.to_parquet(folder / "test.parquet")
    with mirror_at(tmp_path):
        rows = load_splits("org/dates")["test"]
    assert list(rows) == list(made)
    assert rows.features["label"].names == ["no", "yes"]


def test_rows_of_a_table_are_a_sequence() -> None:
    rows = TableRows(dataset(ROWS).with_format("arrow")[:])
    assert (rows[0], rows[-1], rows[1:], len(rows)) == (ROWS[0], ROWS[2], ROWS[1:], 3)
    with pytest.raises(IndexError):
        rows[3]


@shared_mirror
def test_every_file_of_the_shared_mirror_gives_the_rows_of_datasets() -> None:
    from lm_eval.data.parquet import read_parquet, to_dataset

    files = sorted(SHARED.glob("*/*/*/*.parquet"), key=lambda file: file.stat().st_size)
    for file in files[:: max(1, len(files) // 60)]:
        rows = read_parquet([file])
        assert isinstance(rows, TableRows), file
        theirs = to_dataset(rows.table)
        assert list(rows) == list(theirs), file
        assert fingerprint(rows) == fingerprint(Rows(list(rows))), file


# -- fingerprints -----------------------------------------------------------------------------


def test_a_fingerprint_is_of_the_rows_alone() -> None:
    import datasets

    plain, whole = fingerprint(Rows(ROWS)), dataset(ROWS)
    two = datasets.concatenate_datasets([dataset(ROWS[:1]).cast(whole.features), dataset(ROWS[1:])])
    shuffled = dataset([ROWS[2], ROWS[0], ROWS[1]]).select([1, 2, 0])
    turned = dataset([dict(reversed(row.items())) for row in ROWS])
    for same in (ROWS, whole, two, shuffled, turned):
        assert fingerprint(same) == plain
    changed = json.loads(json.dumps(ROWS).replace("green", "grean", 1))
    moved = [{**ROWS[0], "choices": ["gree", "nred"]}, *ROWS[1:]]
    for other in (ROWS[:2], ROWS[::-1], changed, moved):
        assert fingerprint(Rows(other)) != plain
        assert fingerprint(dataset(other)) == fingerprint(Rows(other))


# -- the hub ----------------------------------------------------------------------------------


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the code believe that the hub is reachable."""
    monkeypatch.setattr(hub_room, "unreachable", lambda url: None)


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("datasets.load_dataset", fail)


def hub_error(kind: str) -> Exception:
    """Returns an error of the hub library, without the HTTP response that it usually needs."""
    import huggingface_hub.errors

    made = getattr(huggingface_hub.errors, kind)
    error: Exception = made.__new__(made)
    error.args = (f"{kind} told by the hub",)
    return error


def not_found(cause: str, message: str) -> Exception:
    from datasets.exceptions import DatasetNotFoundError

    error = DatasetNotFoundError(message)
    error.__cause__ = hub_error(cause)
    return error


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: not_found("GatedRepoError", "cannot be accessed"), "is gated: .*accept a license"),
        (lambda: not_found("RepositoryNotFoundError", "no such thing"), "there is no dataset org"),
        (lambda: not_found("RevisionNotFoundError", "none"), "has no revision 'v9'"),
        (lambda: ConnectionError("Couldn't reach it"), "the hub cannot be reached.*--data_dir DIR"),
        (lambda: hub_error("LocalEntryNotFoundError"), "cannot be reached.*lm-eval fetch"),
        (lambda: ValueError("BuilderConfig 'x' not found. Available: ['y']"), "Available: .'y'"),
        (lambda: RuntimeError("Dataset scripts are no longer supported, but found x.py"), "script"),
    ],
)
def test_what_the_hub_refuses_is_told_apart(
    make: Callable[[], Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, make())
    with pytest.raises(DataError, match=said) as raised:
        load_splits("org/things", "config", revision="v9")
    assert "org/things (config)" in str(raised.value)


@pytest.mark.usefixtures("online")
def test_the_revision_and_all_arguments_reach_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    commit = "0123456789abcdef0123456789abcdef01234567"
    asked: dict[str, Any] = {}

    def load(**given: Any) -> Any:
        asked.update(given)
        made = dataset(ROWS)
        made.info.download_checksums = {f"hf://datasets/org/things@{commit}/test.parquet": {}}
        return datasets.DatasetDict({"test": made})

    monkeypatch.setattr("datasets.load_dataset", load)
    splits = load_splits("org/things", "c", revision="v1", data_dir="d", trust_remote_code=True)
    assert asked == {"path": "org/things", "name": "c", "revision": "v1", "data_dir": "d"}
    assert splits.origin == Origin("hub", "org/things", "c", commit)
    assert list(splits["test"]) == ROWS


def command_without_network(*words: str, **environment: str) -> tuple[str, float]:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()  # no retries are told of, because there are none
    return line, time.monotonic() - started


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_no_network_is_said_at_once(things: Path, tmp_path: Path, endpoint: str) -> None:
    offline = {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf")}
    line, took = command_without_network(
        *("run", "--model", "dummy", "--tasks", str(things)), HF_ENDPOINT=endpoint, **offline
    )
    assert "task 'things': the dataset org/things is not on this machine" in line
    assert "cannot be reached" in line
    assert "lm-eval fetch" in line
    assert "--data_dir DIR" in line
    assert took < 20  # the library alone takes 25 seconds; the 3 promised are for a quiet machine


def test_a_silent_name_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    release = threading.Event()
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(variable)
    monkeypatch.setattr(hub_room, "CONNECT_TIMEOUT", 0.05)

    def wait(*_: Any) -> Any:
        release.wait(30)
        raise OSError("too late")

    monkeypatch.setattr("socket.create_connection", wait)
    try:
        assert "no response within 0.05 seconds" in str(
            hub_room.unreachable("https://silent.invalid")
        )
    finally:
        release.set()


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_offline_variables_are_respected(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr("socket.create_connection", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(DataError, match=f"{variable} forbids downloads"):
        load_splits("org/no-such-things-at-all")


def test_without_a_network_the_librarys_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache folder is as `load_dataset` leaves it after a download."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    home = tmp_path / "org___things" / "default" / "0.0.0" / commit
    home.mkdir(parents=True)
    made = dataset(ROWS)
    made.save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "data-00000-of-00001.arrow").rename(home / "things-test.arrow")
    info = {
        "builder_name": "parquet",
        "dataset_name": "things",
        "config_name": "default",
        "version": {"version_str": "0.0.0", "major": 0, "minor": 0, "patch": 0},
        "splits": {"test": {"name": "test", "num_examples": 3, "dataset_name": "things"}},
    }
    (home / "dataset_info.json").write_text(json.dumps(info))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    splits = load_splits("org/things", cache_dir=str(tmp_path))
    assert list(splits["test"]) == ROWS
    assert splits.origin.revision == commit


@pytest.mark.slow
def test_the_library_and_a_hub_work_together(things: Path, mirror: Path, tmp_path: Path) -> None:
    """Downloads from a local hub with `datasets`, then reads without it, from cache and mirror."""
    text = things.read_text().replace("fewshot_split: train\n", "")
    things.write_text(text + "dataset_kwargs: {revision: v1}\n")
    home = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}

    def command(*words: str | Path, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", *map(str, words)],
            env={**os.environ, **home, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    run = ("run", "--model", "dummy", "--tasks", things, "--output_path")
    wrong = things.with_name("wrong.yaml")
    with fake_hub(mirror / "org/things/default/test.parquet") as address:
        online = {"HF_ENDPOINT": address}
        told = command("fetch", "--tasks", things, "--to", tmp_path / "made", **online)
        assert "org/things/default: test 2 (written)" in told
        assert "written to" in command(*run, tmp_path / "out" / "1", **online)
        for task, said in (
            (text.replace("org/things", "org/gated"), "the dataset org/gated is gated"),
            (text.replace("org/things", "org/gone"), "there is no dataset org/gone on the hub"),
            (text + "dataset_kwargs: {revision: v9}\n", "has no revision 'v9'"),
        ):
            wrong.write_text(task)
            assert said in command("run", "--model", "dummy", "--tasks", wrong, **online)
    offline = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    assert "written to" in command(*run, tmp_path / "out" / "2", **offline)
    empty = {**offline, "HF_HOME": str(tmp_path / "empty")}
    mirrored = command(*run, tmp_path / "out" / "3", "--data_dir", tmp_path / "made", **empty)
    assert "written to" in mirrored
    files = sorted(tmp_path.glob("out/*/*/results_*.json"))
    seen = [json.loads(file.read_text())["datasets"]["things"] for file in files]
    assert [data["source"] for data in seen] == ["hub", "hub", "mirror"]
    assert [data["revision"] for data in seen] == [COMMIT] * 3
    assert [data["splits"] for data in seen] == [seen[0]["splits"]] * 3


# -- fetch ------------------------------------------------------------------------------------


def test_fetch_makes_a_mirror_that_works(
    lm_eval_command: Command, things: Path, mirror: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    words = ("fetch", "--tasks", str(things), "--data_dir", str(mirror), "--to", str(made))
    done = lm_eval_command(*words)
    assert done.returncode == 0, done.stderr
    assert "org/things/default: test 2, train 3 (written)" in done.stdout
    assert f"--data_dir {made}" in done.stdout
    files = sorted(file.name for file in made.rglob("*") if file.is_file())
    assert files == ["source.json", "test.parquet", "train.parquet"]
    assert "(already present)" in lm_eval_command(*words).stdout
    for root in (mirror, made):
        out = tmp_path / f"out_{root.name}"
        run = ("run", "--model", "dummy", "--tasks", things, "--num_fewshot", "1")
        done = lm_eval_command(*run, "--data_dir", root, "--output_path", out)
        assert done.returncode == 0, done.stderr
    results = [
        json.loads(file.read_text()) for file in sorted(tmp_path.glob("out_*/*/results_*.json"))
    ]
    assert results[0]["datasets"] == results[1]["datasets"]
    assert results[0]["results"] == results[1]["results"]


def test_fetch_replaces_other_rows_only_when_told_to(mirror: Path, tmp_path: Path) -> None:
    def fetched(**options: Any) -> Any:
        with mirror_at(mirror), recorded_loads() as loads:
            load_splits("org/things")
        return copy_to_mirror(loads[0], tmp_path / "made", **options)

    fetched()
    dataset(ROWS[:1]).to_parquet(mirror / "org/things/default/test.parquet")
    with pytest.raises(DataError, match=r"with other rows .* Use --force"):
        fetched()
    assert fetched(force=True).rows == {"test": 1, "train": 3}
    assert [path.name for path in (tmp_path / "made/org/things").iterdir()] == ["default"]


def test_fetch_leaves_nothing_half_written(
    lm_eval_command: Command, things: Path, mirror: Path, tmp_path: Path
) -> None:
    (mirror / "org/things/default/train.parquet").write_bytes(b"broken")
    words = ("--tasks", str(things), "--data_dir", str(mirror), "--to", str(tmp_path / "made"))
    done = lm_eval_command("fetch", *words)
    assert done.returncode == 2
    assert "train.parquet: not a readable Parquet file" in done.stderr
    assert not list(tmp_path.glob("made/**/*.parquet"))


def test_a_write_that_fails_midway_is_undone(tmp_path: Path) -> None:
    class Breaking(list[Any]):
        def to_parquet(self, path: str) -> None:
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")

    splits = Splits.of(Origin("hub", "org/things"), {"test": Breaking(ROWS)})
    with pytest.raises(lm_eval.errors.OutputError, match="No space left"):
        copy_to_mirror(Loaded("org/things", None, {}, splits), tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_fetch_says_what_needs_no_fetching(lm_eval_command: Command, tmp_path: Path) -> None:
    done = lm_eval_command("fetch", "--tasks", "demo_choice", "--to", tmp_path / "made")
    assert (done.returncode, "nothing to fetch" in done.stdout) == (0, True)


def test_what_can_be_fetched_is_fetched(
    lm_eval_command: Command, things: Path, mirror: Path, folder: Folder
) -> None:
    text = TASK.format(path="org/gone", name="null").replace("task: things", "task: gone")
    other = folder.write("other.yaml", text)
    done = lm_eval_command(
        *("fetch", "--tasks", other, things, "--data_dir", mirror, "--to", folder.path / "made")
    )
    assert done.returncode == 2
    assert "task 'gone': the dataset org/gone is not on this machine" in done.stderr
    assert "1 problem, listed above; 1 dataset is complete" in done.stderr
    assert (folder.path / "made/org/things/default/test.parquet").is_file()


def test_a_mirror_keeps_revisions_and_picks_apart(tmp_path: Path) -> None:
    origin = Origin("hub", "org/things", None, "a" * 40)
    splits = Splits.of(origin, {"test": dataset(ROWS)})
    for kwargs in ({"revision": "v1"}, {"data_files": "some.jsonl"}):
        copy_to_mirror(Loaded("org/things", None, kwargs, splits), tmp_path)
    with mirror_at(tmp_path):
        assert load_splits("org/things").origin.revision == "a" * 40
        assert load_splits("org/things", revision="v1").origin.revision == "a" * 40
        assert load_splits("org/things", revision="aaaaaaa").origin.revision == "a" * 40
        assert list(load_splits("org/things", data_files="some.jsonl")["test"]) == ROWS
        with pytest.raises(DataError, match=r"contains revision aaaa.*the task requires v2"):
            load_splits("org/things", revision="v2")


@pytest.mark.parametrize("address", ["https://example.invalid/x.csv", "hf://datasets/org/x/x.csv"])
def test_files_behind_addresses_are_mirrored_too(tmp_path: Path, address: str) -> None:
    files = {"test": address}
    splits = Splits.of(Origin("files", "csv"), {"test": dataset(ROWS)})
    copy_to_mirror(Loaded("csv", None, {"data_files": files}, splits), tmp_path)
    with mirror_at(tmp_path):
        assert list(load_splits("csv", data_files=files)["test"]) == ROWS
    with pytest.raises(DataError, match=rf"{address} is not on this machine, and.*`lm-eval fetch"):
        load_splits("csv", data_files=files)


def test_a_stream_has_the_same_documents(mirror: Path) -> None:
    with mirror_at(mirror):
        streamed = load_splits("org/things", streaming=True)
        assert list(streamed["test"]) == list(load_splits("org/things")["test"])


# -- mistakes, as the command line tells them -------------------------------------------------


def test_a_corrupt_file_in_the_mirror_is_named(
    lm_eval_command: Command, things: Path, mirror: Path
) -> None:
    file = mirror / "org/things/default/test.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    words = ("run", "--model", "dummy", "--tasks", things, "--data_dir", mirror)
    message = refused(lm_eval_command, *words)
    assert f"task 'things': {file}: not a readable Parquet file" in message


def test_a_missing_split_lists_what_is_there(
    lm_eval_command: Command, things: Path, mirror: Path
) -> None:
    (mirror / "org/things/default/test.parquet").unlink()
    words = ("run", "--model", "dummy", "--tasks", things, "--data_dir", mirror)
    assert "has no split 'test'. It has: train" in refused(lm_eval_command, *words)


def test_a_folder_that_is_no_mirror_is_refused(
    lm_eval_command: Command, things: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for place, said in (("nowhere", "does not exist"), ("empty", "this folder is not a mirror")):
        words = ("run", "--model", "dummy", "--tasks", things, "--data_dir", tmp_path / place)
        assert said in refused(lm_eval_command, *words)
    words = ("run", "--model", "dummy", "--tasks", things, "--data_dir", things)
    assert "a mirror must be a folder, but this path is a file" in refused(lm_eval_command, *words)


def test_columns_the_task_does_not_find_are_said(
    lm_eval_command: Command, things: Path, mirror: Path
) -> None:
    dataset([{"query": "x"}]).to_parquet(mirror / "org/things/default/test.parquet")
    words = ("run", "--model", "dummy", "--tasks", things, "--data_dir", mirror)
    message = refused(lm_eval_command, *words)
    assert "task 'things', document 0" in message
    assert "question" in message


# -- process_docs by a loop -------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda doc: {"q": doc["q"].upper(), "n": len(doc["q"])},
        lambda doc: {**doc, "choices": [doc["q"], "x"], "more": {"a": 1}},
        lambda doc: doc.update(q=doc["q"] + "!") or doc,
        lambda doc: {"half": doc["n"] / 2, "none": None},
        lambda doc: {"n": str(doc["n"])},
        lambda doc: {"was": doc.pop("tags")},
        lambda doc: {"mixed": 1 if doc["n"] else 0.5},
        lambda doc: None,
        lambda doc: {"drawn": random.random(), "n": str(doc["n"])},
        lambda doc: {"drawn": random.random()},
    ],
)
def test_a_mapped_data_set_is_what_the_library_makes_of_it(function: Any) -> None:
    import datasets

    from lm_eval.data.quick_map import quick

    rows = [{"q": f"q{i}", "n": i, "tags": ["a"] * i} for i in range(5)]
    random.seed(1)
    theirs = datasets.Dataset.from_list(rows).map(function)
    random.seed(1)
    ours = quick(datasets.Dataset.from_list(rows)).map(function)
    assert isinstance(ours, datasets.Dataset)
    assert ours.to_list() == theirs.to_list()
    assert ours.column_names == theirs.column_names
    again = ours.map(lambda doc: {"q": doc["q"] * 2}).filter(lambda doc: doc["n"] != "3")
    assert (
        again.to_list()
        == theirs.map(lambda doc: {"q": doc["q"] * 2}).filter(lambda doc: doc["n"] != "3").to_list()
    )
