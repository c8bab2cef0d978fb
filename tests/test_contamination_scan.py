"""Tests scans of corpora: formats, shards, resuming, broken files, and the command line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from lm_eval.cli import main
from lm_eval.contamination import corpus, readers, streams, workers
from lm_eval.contamination import scan as scanning
from lm_eval.contamination.corpus import find_files, shards_of
from lm_eval.contamination.findings import Findings, merge_findings, read_findings
from lm_eval.contamination.matcher import Hits
from lm_eval.contamination.places import Places
from lm_eval.contamination.queries import queries_of
from lm_eval.contamination.scan import ScanOptions, scan
from lm_eval.contamination.search import TaskSelection
from lm_eval.contamination.self_overlap import self_overlap
from lm_eval.errors import ConfigError, DataError, EvalError, OutputError
from lm_eval.results.samples import document_hash
from lm_eval.tasks import TaskManager
from tests.conftest import Folder

QUESTIONS = [
    "Which river flows through the old town of Varnholt before it reaches the grey northern sea",
    "How many apples did the baker of Low Street sell on the first Monday of the cold month",
    "Why did the keeper of the lighthouse paint every second step of the long stair bright red",
    "What did the youngest of the seven sisters find under the roots of the fallen oak tree",
]
ANSWERS = ["the quiet Lemmer", "forty two of them", "to count them at night", "a small tin box"]


@dataclass(frozen=True)
class Printed:
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Printed]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Returns a function that runs `lm-eval contamination …` in this process."""

    def run_command(*words: str | Path) -> Printed:
        code = main(["contamination", *map(str, words)])
        out = capsys.readouterr()
        return Printed(code, out.out, out.err)

    return run_command


@pytest.fixture
def quiz(folder: Folder) -> Folder:
    """Returns a folder with the task `quiz`, whose training split repeats a test question."""
    rows = [{"q": q, "a": a} for q, a in zip(QUESTIONS, ANSWERS, strict=True)]
    folder.rows("test.jsonl", rows)
    folder.rows("train.jsonl", [{"q": "Something else, quite short", "a": "yes"}, rows[3]])
    folder.write(
        "quiz.yaml",
        """\
task: quiz
dataset_path: json
dataset_kwargs:
  data_files: {test: test.jsonl, train: train.jsonl}
test_split: test
training_split: train
output_type: generate_until
doc_to_text: "Question: {{q}}?\\nAnswer:"
doc_to_decontamination_query: q
doc_to_target: a
metadata: {version: 2.0}
""",
    )
    return folder


def tasks(folder: Folder) -> dict[str, Any]:
    return dict(TaskManager(include_path=str(folder.path)).load(["quiz"])["tasks"])


def run(folder: Folder, *given: str, fresh: bool = True, **options: Any) -> Findings:
    names = [str(folder.path / name) if name != "-" else name for name in given]
    output = folder.path / "findings.jsonl"
    return scan(
        TaskSelection(("quiz",), (str(folder.path),)), names, output, ScanOptions(**options), fresh
    )


def found(findings: Findings) -> dict[int, tuple[str, int]]:
    """Returns the name of the file and the record of the first match, by document."""
    return {
        number: (Path(doc.matches[0].file).name, doc.matches[0].record)
        for number, doc in findings.documents["quiz"].items()
    }


NOISE = "The weather stayed fine, and nobody spoke of it. " * 3
RECORDS = [
    NOISE,
    f"{NOISE}{QUESTIONS[1].upper()}?! Nobody knows.",
    "",
    f"a {QUESTIONS[2]}\n{NOISE}",
]


def json_lines(field: str = "text") -> bytes:
    return "".join(json.dumps({field: text, "n": 1}) + "\n" for text in RECORDS).encode()


def write_parquet(path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": [*RECORDS, None]}), path, row_group_size=2)


def write_arrow(path: Path, stream: bool) -> None:
    table = pyarrow.table({"text": RECORDS})
    opened = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with opened(str(path), table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[Path], object]] = {
    "c.jsonl": lambda path: path.write_bytes(json_lines()),
    "c.json.gz": lambda path: path.write_bytes(gzip.compress(json_lines())),
    "c.jsonl.bz2": lambda path: path.write_bytes(bz2.compress(json_lines())),
    "c.jsonl.xz": lambda path: path.write_bytes(lzma.compress(json_lines())),
    "c.jsonl.zst": lambda path: path.write_bytes(
        pyarrow.compress(json_lines(), codec="zstd", asbytes=True)
    ),
    "c.parquet": write_parquet,
    "c.arrow": lambda path: write_arrow(path, stream=True),
    "c.feather": lambda path: write_arrow(path, stream=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_findings(name: str, quiz: Folder) -> None:
    WRITERS[name](quiz.path / name)
    findings = run(quiz, name)
    assert found(findings) == {1: (name, 1), 2: (name, 3)}
    [file] = findings.header.corpus.files
    assert file.records == 3
    assert file.bytes == sum(len(text.encode()) for text in RECORDS)


def test_the_fingerprint_of_a_file_does_not_depend_on_its_compression(quiz: Folder) -> None:
    for name in ("c.jsonl", "c.json.gz", "c.parquet"):
        WRITERS[name](quiz.path / name)
    files = run(quiz, "c.*").header.corpus.files
    assert len({file.fingerprint for file in files}) == 1


def test_a_text_file_is_one_record_and_ngrams_cross_its_line_breaks(quiz: Folder) -> None:
    words = QUESTIONS[0].split()
    quiz.write("c.txt", "\n".join([*words[:5], "", *words[5:]]))
    document = run(quiz, "c.txt").documents["quiz"][0]
    assert document.question.overlap == 1.0
    assert document.matches[0].record == 0
    assert document.doc_hash == document_hash({"q": QUESTIONS[0], "a": ANSWERS[0]})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["c.txt", "c.jsonl"])
def test_ranges_of_a_file_lose_and_invent_nothing(
    name: str, seed: int, quiz: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    texts = [*QUESTIONS[:3], "- - -", "naïve\u3000words", "漢字" * 30, NOISE, NOISE, "\n\n"]
    draw.shuffle(texts)
    if name == "c.txt":
        quiz.write(name, " ".join(texts))
    else:
        quiz.rows(name, [{"text": text} for text in texts])
    whole = run(quiz, name)
    monkeypatch.setattr(corpus, "SHARD", draw.randrange(20, 200))
    for module in (readers, streams):
        monkeypatch.setattr(module, "READ", draw.randrange(1, 50))
    parts = run(quiz, name)
    assert len(shards_of(find_files([str(quiz.path / name)]))) > 3
    assert sorted(whole.documents["quiz"]) == [0, 1, 2]
    for number, document in whole.documents["quiz"].items():
        other = parts.documents["quiz"][number]
        assert other.runs == document.runs
        assert {m.record for m in other.matches} == {m.record for m in document.matches}
    [one], [other_file] = whole.header.corpus.files, parts.header.corpus.files
    assert (one.bytes, one.records) == (other_file.bytes, other_file.records)


def test_a_run_without_whitespace_is_cut_without_inventing_words(
    quiz: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LONGEST_RUN", 64)
    for module in (readers, streams):
        monkeypatch.setattr(module, "READ", 16)
    first, rest = QUESTIONS[0].split(" ", 1)
    quiz.write("c.txt", "x" * 128 + first + " " + rest)  # cut right before the first word
    assert run(quiz, "c.txt").documents["quiz"][0].runs == ((1, 3),)
    quiz.write("d.txt", "x" * 200 + "\u3000" + "\u3000".join(QUESTIONS[0].split()))
    assert run(quiz, "d.txt").documents["quiz"][0].runs[0][0] == 0


def test_findings_do_not_depend_on_the_number_of_processes(
    quiz: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_PER_WORKER", 1)
    for number in range(4):
        quiz.rows(f"c/{number}.jsonl", [{"text": text} for text in [*RECORDS, *QUESTIONS]])
    written = []
    for count in (1, 3):
        run(quiz, "c", workers=count)
        written.append((quiz.path / "findings.jsonl").read_bytes())
    assert written[0] == written[1]
    assert not (quiz.path / "findings.jsonl.partial").exists()


def test_an_interrupted_scan_goes_on_and_reads_no_finished_shard_again(
    quiz: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        quiz.rows(f"c/{number}.jsonl", [{"text": text} for text in [*RECORDS, *QUESTIONS]])
    run(quiz, "c")
    whole = (quiz.path / "findings.jsonl").read_bytes()
    (quiz.path / "findings.jsonl").unlink()
    read: list[str] = []
    original = workers.scan_shard

    def interrupted(index: Any, shard: Any, *rest: Any) -> Any:
        read.append(Path(shard.path.name).name)
        if len(read) in (3, 5):
            raise KeyboardInterrupt
        return original(index, shard, *rest)

    monkeypatch.setattr(workers, "scan_shard", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(quiz, "c", fresh=False)
    journal = quiz.path / "findings.jsonl.partial" / "journal.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"shard": "torn')  # as after a power failure
    run(quiz, "c", fresh=False)
    assert (quiz.path / "findings.jsonl").read_bytes() == whole
    assert read == [f"{n}.jsonl" for n in (0, 1, 2, 2, 3, 3, 4, 5)]
    assert not journal.parent.exists()


def test_a_shard_that_changed_is_read_again(quiz: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    quiz.write("c/a.txt", QUESTIONS[0])
    quiz.write("c/b.txt", "nothing")
    original = workers.scan_shard
    monkeypatch.setattr(
        workers, "scan_shard", lambda i, s, *r: _stop_at(original, "b.txt", i, s, *r)
    )
    with pytest.raises(KeyboardInterrupt):
        run(quiz, "c")
    monkeypatch.setattr(workers, "scan_shard", original)
    quiz.write("c/a.txt", f"{QUESTIONS[1]} changed")
    assert list(run(quiz, "c", fresh=False).documents["quiz"]) == [1]


def _stop_at(original: Any, name: str, index: Any, shard: Any, *rest: Any) -> Any:
    if shard.path.name.endswith(name):
        raise KeyboardInterrupt
    return original(index, shard, *rest)


def test_kill_9_loses_one_shard_at_most(quiz: Folder) -> None:
    for number in range(40):
        text = f"{NOISE * 2000}{QUESTIONS[number % 4]} {NOISE}"
        quiz.write(f"c/{number:02}.txt", text)
    scan_all = [sys.executable, "-m", "lm_eval", "contamination", "scan", "c", "--tasks", "quiz"]
    scan_all += ["--include_path", ".", "--workers", "1"]
    subprocess.run([*scan_all, "-o", "whole"], cwd=quiz.path, capture_output=True, check=True)
    journal = quiz.path / "killed.partial" / "journal.jsonl"
    process = subprocess.Popen(
        [*scan_all, "-o", "killed"], cwd=quiz.path, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not (
        journal.exists() and journal.read_bytes().count(b"\n") > 3
    ):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = journal.read_bytes().count(b"\n") - 1
    done = subprocess.run(
        [*scan_all, "-o", "killed"], cwd=quiz.path, capture_output=True, text=True, check=True
    )
    assert f"{before} of 40 shards were scanned before" in done.stderr
    assert (quiz.path / "killed").read_bytes() == (quiz.path / "whole").read_bytes()


def test_an_index_from_another_process_gives_the_same_findings(
    quiz: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiz.rows("c.jsonl", [{"text": text} for text in [*RECORDS, *QUESTIONS]])
    written = []
    for smallest in (1 << 30, 1):
        monkeypatch.setattr(scanning, "_PER_WORKER", smallest)
        run(quiz, "c.jsonl", workers=1)
        written.append((quiz.path / "findings.jsonl").read_bytes())
    assert written[0] == written[1]
    quiz.write("test.jsonl", "{")
    with pytest.raises(EvalError, match=r"test\.jsonl"):
        run(quiz, "c.jsonl")
    assert not (quiz.path / "findings.jsonl.partial").exists()


def test_the_first_place_of_a_unit_counts_in_whatever_order_shards_are_added() -> None:
    shards = [
        Hits([4, 2], [0, 0], [7, 8], [(0, 5, "zero")]),
        Hits([2, 1, 0], [3, 3, 6], [1, 2, 9], [(0, 0, "one"), (2, 9, "two")]),
        Hits([0, 3], [0, 1], [0, 0], [(0, 1, "three"), (1, 2, "four")]),
    ]
    for order in permutations(range(3)):
        places = Places(6)
        for number in order:
            places.add(number, shards[number])
        assert places.found(np.arange(6)).tolist() == [True] * 5 + [False]
        assert [places.place(unit) for unit in range(5)] == [
            *((1, 6, 9), (1, 3, 2), (0, 0, 8), (2, 1, 0), (0, 0, 7))
        ]
        assert [places.passage(unit)[1] for unit in range(5)] == [
            *("two", "one", "zero", "four", "zero")
        ]


def test_the_findings_of_parts_of_a_corpus_merge_to_those_of_the_whole(quiz: Folder) -> None:
    words = QUESTIONS[0].split()
    quiz.write("c/a.txt", " ".join(words[:14]))
    quiz.write("c/b.txt", f"{' '.join(words[1:])} {ANSWERS[0]}. {QUESTIONS[1]}")
    quiz.write("c/c.txt", QUESTIONS[2])
    whole = run(quiz, "c")
    parts = [run(quiz, f"c/{name}.txt") for name in "cab"]
    merged = merge_findings(parts)
    assert merged.header == whole.header
    for number, document in whole.documents["quiz"].items():
        other = merged.documents["quiz"][number]
        assert replace(other, matches=()) == replace(document, matches=())


def test_the_standard_input_is_scanned(quiz: Folder) -> None:
    words = ["scan", "-", "--tasks", "quiz", "--include_path", str(quiz.path)]
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "contamination", *words, "-o", quiz.path / "f.jsonl"],
        input=f"{NOISE} {QUESTIONS[3]}",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "|quiz|        4|           1|25.00%|" in done.stdout
    assert found(read_findings(quiz.path / "f.jsonl")) == {3: ("-", 0)}


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [True, False])
def test_findings_never_replace_a_file_of_the_corpus(fresh: bool, quiz: Folder) -> None:
    quiz.write("findings.jsonl", "precious")
    with pytest.raises(ConfigError, match="both a file of the corpus and the file for"):
        run(quiz, "findings.jsonl", fresh=fresh)
    assert (quiz.path / "findings.jsonl").read_text() == "precious"


def test_the_files_of_the_scan_itself_are_not_scanned(quiz: Folder) -> None:
    quiz.write("c/a.txt", "nothing")
    quiz.write("c/f.partial/journal.jsonl", "")
    quiz.write("c/f", "old findings")
    for corpus_name in ("c", "c/**/*"):
        findings = scan(
            TaskSelection(("quiz",), (str(quiz.path),)),
            [str(quiz.path / corpus_name)],
            quiz.path / "c" / "f",
            ScanOptions(format="text"),
            fresh=True,
        )
        assert [Path(file.name).name for file in findings.header.corpus.files] == ["a.txt"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("c", "is a folder"),
        ("no/such/f", "there is no folder"),
        ("taken", "taken.partial is a file"),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error_before_the_tasks_are_loaded(
    output: str, message: str, quiz: Folder, command: Command
) -> None:
    quiz.write("c/a.txt", "nothing")
    quiz.write("taken.partial", "")
    words = ("scan", quiz.path / "c", "--tasks", "gone", "-o", quiz.path / output)
    done = command(*words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_scan_that_did_not_begin_leaves_nothing_behind(quiz: Folder, command: Command) -> None:
    quiz.write("a.txt", "nothing")
    words = ("scan", quiz.path / "a.txt", "-o", quiz.path / "f", "--tasks")
    assert "there is no task" in command(*words, "gone").stderr
    assert "no task is named" in command(*words, ",").stderr
    assert not list(quiz.path.glob("f*"))


def test_names_that_are_no_files_are_errors(quiz: Folder) -> None:
    (quiz.path / "link.txt").symlink_to("nowhere")
    with pytest.raises(DataError, match="a link to a file that does not exist"):
        run(quiz, "link.txt")
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        run(quiz, "x" * 5000)
    with pytest.raises(ConfigError, match="is empty"):
        find_files([""])


def _noise_lines(count: int) -> bytes:
    draw = random.Random(1)
    return b"".join(
        json.dumps({"text": f"{draw.random()} {NOISE}"}).encode() + b"\n" for _ in range(count)
    )


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("c.jsonl.gz", gzip.compress),
        ("c.jsonl.bz2", bz2.compress),
        ("c.jsonl.xz", lzma.compress),
        ("c.jsonl.zst", lambda data: pyarrow.compress(data, codec="zstd", asbytes=True)),
    ],
)
def test_what_was_read_before_an_archive_breaks_counts(
    name: str, pack: Callable[[bytes], bytes], quiz: Folder
) -> None:
    # bz2 and xz decompress in blocks, so the data is larger than several of them.
    packed = pack(json_lines() + _noise_lines(12_000))
    (quiz.path / name).write_bytes(packed[: len(packed) * 3 // 4])
    quiz.write("later.txt", QUESTIONS[3])
    findings = run(quiz, name, "later.txt")
    assert found(findings) == {1: (name, 1), 2: (name, 3), 3: ("later.txt", 0)}
    [broken] = findings.header.corpus.broken
    assert broken.name.endswith(name)
    assert broken.count == 1
    assert broken.place.startswith("byte ")


def test_files_that_are_not_what_their_names_say_are_named_and_the_rest_is_scanned(
    quiz: Folder,
) -> None:
    for name in ("a.jsonl", "b.parquet", "c.arrow", "d.txt.gz", "e.jsonl.zst"):
        quiz.write(f"bad/{name}", "this is plain text\n")
    quiz.write("bad/good.txt", QUESTIONS[0])
    findings = run(quiz, "bad")
    assert found(findings) == {0: ("good.txt", 0)}
    broken = {Path(place.name).name: place for place in findings.header.corpus.broken}
    assert sorted(broken) == ["a.jsonl", "b.parquet", "c.arrow", "d.txt.gz", "e.jsonl.zst"]
    assert broken["a.jsonl"].place == "line 1"
    assert "not a JSON object" in broken["a.jsonl"].error


def test_broken_lines_are_counted_and_the_others_read(quiz: Folder) -> None:
    lines = ['{"text": "fine"}', "{", '{"body": 1}', '{"text": 5}', "", '{"text": null}', "[1]"]
    quiz.write("c.jsonl", "\n".join([*lines, json.dumps({"text": QUESTIONS[0]})]))
    findings = run(quiz, "c.jsonl")
    [broken] = findings.header.corpus.broken
    assert (broken.place, broken.count) == ("line 2", 4)
    assert found(findings) == {0: ("c.jsonl", 7)}


def test_bytes_that_are_not_utf8_do_not_stop_a_scan(quiz: Folder) -> None:
    data = b"\xff\xfe caf\xe9 " + QUESTIONS[0].encode() + b" \xe2\x80"
    (quiz.path / "c.txt").write_bytes(data)
    (quiz.path / "d.jsonl").write_bytes(b'{"text": "\xff ' + QUESTIONS[1].encode() + b'"}\n')
    findings = run(quiz, "c.txt", "d.jsonl")
    assert sorted(findings.documents["quiz"]) == [0, 1]
    assert findings.header.corpus.broken == ()


def test_a_missing_column_is_named(quiz: Folder) -> None:
    write_parquet(quiz.path / "c.parquet")
    findings = run(quiz, "c.parquet", field="body")
    assert "no column 'body'; it has 'text'" in findings.header.corpus.broken[0].error


def test_the_exit_code_tells_of_broken_files_unless_they_are_skipped(
    quiz: Folder, command: Command
) -> None:
    quiz.write("c.jsonl", f"{{\n{json.dumps({'text': QUESTIONS[0]})}")
    words = ["scan", quiz.path / "c.jsonl", "--tasks", "quiz"]
    words += ["--include_path", quiz.path, "-o", quiz.path / "f"]
    done = command(*words)
    assert done.returncode == 1
    assert f"not read: {quiz.path / 'c.jsonl'}, line 1: not a JSON object" in done.stderr
    assert found(read_findings(quiz.path / "f")) == {0: ("c.jsonl", 1)}
    assert command(*words, "--fresh", "--skip_broken").returncode == 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["none.txt"], DataError, r"none\.txt does not exist"),
        (["none/*.txt"], DataError, "no file matches the pattern"),
        (["quiz.yaml"], DataError, "the format of this file is not known"),
        (["empty"], DataError, "has no files with a known suffix"),
        (["-", "test.jsonl"], ConfigError, "cannot be scanned together"),
        (["x.parquet.gz"], DataError, "compressed inside"),
    ],
)
def test_a_corpus_that_cannot_be_found_is_refused_before_anything_is_read(
    given: list[str], error: type[Exception], message: str, quiz: Folder
) -> None:
    (quiz.path / "empty").mkdir()
    quiz.write("x.parquet.gz", "")
    with pytest.raises(error, match=message):
        run(quiz, *given)


def test_findings_are_not_overwritten_by_accident(quiz: Folder) -> None:
    quiz.write("c.txt", QUESTIONS[0])
    run(quiz, "c.txt")
    with pytest.raises(OutputError, match="exists"):
        run(quiz, "c.txt", fresh=False)


def test_an_unfinished_scan_of_other_tasks_is_not_continued(
    quiz: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiz.write("c.txt", QUESTIONS[0])
    original = workers.scan_shard
    monkeypatch.setattr(workers, "scan_shard", lambda i, s, *r: _stop_at(original, "c.txt", i, s))
    with pytest.raises(KeyboardInterrupt):
        run(quiz, "c.txt")
    with pytest.raises(OutputError, match=r"other settings \(tasks\)"):
        run(quiz, "c.txt", fresh=False, ngram=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ngram": 0}, "--ngram"), ({"threshold": 1.5}, "--threshold"), ({"workers": 0}, "--workers")],
)
def test_impossible_settings_are_refused(
    options: dict[str, Any], message: str, quiz: Folder
) -> None:
    quiz.write("c.txt", "x")
    with pytest.raises(ConfigError, match=message):
        run(quiz, "c.txt", **options)


# -- what is searched for ------------------------------------------------------------------------


def test_the_header_describes_the_task_as_results_files_do(quiz: Folder) -> None:
    quiz.write("c.txt", "x")
    [(_, task)] = tasks(quiz).items()
    searched = run(quiz, "c.txt").header.tasks["quiz"]
    assert (searched.version, searched.split, searched.documents) == (2.0, "test", 4)
    assert len(task.eval_docs) == 4
    assert searched.fingerprint == task.describe_data()["splits"]["test"]["fingerprint"]


@pytest.mark.parametrize(
    ("task", "question", "answer"),
    [
        ("demo_choice", "Question", None),  # doc_to_text
        ("demo_lastword", "", None),
        ("demo_stories", "", ""),  # perplexity: the text alone
    ],
)
def test_question_and_gold_answer_are_taken_from_any_kind_of_task(
    task: str, question: str, answer: str | None
) -> None:
    [loaded] = TaskManager().load([task])["tasks"].values()
    queries = list(queries_of(loaded))
    doc = loaded.eval_docs[0]
    assert len(queries) == len(loaded.eval_docs)
    assert question.lower().encode() in queries[0].question
    if task == "demo_choice":
        gold = doc["choices"][doc["answer"]].lower().encode()
        assert queries[0].answer == gold.replace(b",", b"")
    elif answer is not None:
        assert queries[0].answer == answer.encode()
    else:
        assert queries[0].answer == doc["word"].lower().encode()


def test_an_answer_that_ends_the_question_is_not_repeated(folder: Folder) -> None:
    folder.rows("t.jsonl", [{"text": "The whole text ends here", "last": "here"}])
    folder.write(
        "whole.yaml",
        "task: whole\ndataset_path: json\ndataset_kwargs: {data_files: {test: t.jsonl}}\n"
        "test_split: test\noutput_type: loglikelihood\ndoc_to_text: text\n"
        'doc_to_target: " {{last}}"\n',
    )
    [task] = TaskManager(include_path=str(folder.path)).load(["whole"])["tasks"].values()
    [query] = queries_of(task)
    assert query.whole == b"the whole text ends here"


# -- show, merge and self ------------------------------------------------------------------------


def test_show_prints_tasks_documents_and_passages(quiz: Folder, command: Command) -> None:
    quiz.write("c.txt", f"Before that. {QUESTIONS[0].upper()}! {ANSWERS[0]}. After that.")
    run(quiz, "c.txt")
    file = quiz.path / "findings.jsonl"
    show = ["show", file]
    assert "|quiz|        4|           1|25.00%|" in command(*show).stdout
    assert "|  0|" in command(*show, "--task", "quiz").stdout
    page = command(*show, "--task", "quiz", "--doc", "0", "--include_path", quiz.path)
    assert "«Which river flows" in page.stdout
    assert "WHICH RIVER FLOWS" in page.stdout
    without = command(*show, "--task", "quiz", "--doc", "0")
    assert "shown without their document" in without.stderr
    assert "which river flows" in without.stdout
    clean = command(*show, "--task", "quiz", "--doc", "1")
    assert clean.stdout == "quiz, document 1: nothing of it was found.\n"
    as_json = json.loads(command(*show, "--task", "quiz", "--json").stdout)
    assert [document["doc_id"] for document in as_json] == [0]
    wrong = command(*show, "--task", "quiz", "--doc", "9")
    assert (wrong.returncode, "between 0 and 3" in wrong.stderr) == (2, True)


def test_merge_writes_one_file(quiz: Folder, command: Command) -> None:
    for name, question in zip("ab", QUESTIONS, strict=False):
        quiz.write(f"{name}.txt", question)
        run(quiz, f"{name}.txt")
        (quiz.path / "findings.jsonl").rename(quiz.path / name)
    done = command("merge", quiz.path / "a", quiz.path / "b", "-o", quiz.path / "all")
    assert "|quiz|        4|           2|50.00%|" in done.stdout
    assert read_findings(quiz.path / "all").contaminated("quiz") == {0, 1}


def test_self_finds_test_documents_in_the_training_split(quiz: Folder, command: Command) -> None:
    [overlap], findings = self_overlap(tasks(quiz), None, 13, 0.0)
    assert (overlap.against, overlap.split) == ("quiz", "train")
    assert [doc.doc_id for doc in overlap.found] == [3]
    assert findings.contaminated("quiz") == {3}
    assert findings.documents["quiz"][3].matches[0].file == "quiz/train"
    done = command("self", "--tasks", "quiz", "--include_path", quiz.path)
    assert "|quiz|        4|quiz/train|    1|25.00%|" in done.stdout


def test_self_compares_benchmarks_but_no_split_with_itself(quiz: Folder) -> None:
    text = (quiz.path / "quiz.yaml").read_text()
    quiz.write("copy.yaml", text.replace("task: quiz", "task: copy"))
    manager = TaskManager(include_path=str(quiz.path))
    loaded = manager.load(["quiz", "copy"])["tasks"]
    overlaps, _ = self_overlap(loaded, loaded, 13, 0.0)
    counts = {(o.task, o.against, o.split): len(o.found) for o in overlaps}
    assert counts == {
        ("quiz", "copy", "test"): 4,
        ("quiz", "copy", "train"): 1,
        ("quiz", "quiz", "train"): 1,
        ("copy", "quiz", "test"): 4,
        ("copy", "quiz", "train"): 1,
        ("copy", "copy", "train"): 1,
    }
