"""Tests the findings file: written and read back, merged, and refused if something is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lm_eval.contamination.findings import (
    BrokenPlace,
    Corpus,
    CorpusFile,
    DocumentFinding,
    Findings,
    Header,
    Match,
    Overlap,
    SearchedTask,
    merge_findings,
    read_findings,
    write_findings,
)
from lm_eval.errors import DataError, OutputError

TASK = SearchedTask(
    version=1.0,
    split="test",
    documents=10,
    short_documents=2,
    too_short_documents=1,
    ngrams=80,
    fingerprint="rows",
    query_hash="texts",
)


def found(doc_id: int, *runs: tuple[int, int], file: str = "a.txt") -> DocumentFinding:
    """Returns a document of 20 n-grams, 12 of them of the question, with these runs found."""
    count = sum(length for _, length in runs)
    asked = [min(first + length, 12) - first for first, length in runs if first < 12]
    match = Match("some words …", 13, runs[0][0], "question", file, 3, 99, "Some words, \ud800…")
    return DocumentFinding(
        task="colors",
        doc_id=doc_id,
        doc_hash=f"hash {doc_id}",
        contaminated=True,
        question=Overlap(12, sum(asked), max(asked) + 12 if asked else 0),
        with_answer=Overlap(20, count, max(length for _, length in runs) + 12),
        short=False,
        runs=runs,
        matches=(match,),
    )


def findings(*documents: DocumentFinding, file: str = "a.txt") -> Findings:
    corpus = Corpus(f"corpus {file}", (CorpusFile(file, 100, 4, f"text of {file}"),))
    header = Header(13, "ascii", 0.0, 5, corpus, {"colors": TASK}, "0.5.0")
    return Findings(header, {"colors": {each.doc_id: each for each in documents}})


def test_findings_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    written = findings(found(7, (0, 3)), found(2, (5, 1), (9, 4)))
    broken = BrokenPlace("b.jsonl", "line 3", "not JSON", 2)
    corpus = replace(written.header.corpus, broken=(broken,))
    written = replace(written, header=replace(written.header, corpus=corpus))
    write_findings(tmp_path / "f.jsonl", written)
    assert read_findings(tmp_path / "f.jsonl") == written
    assert [path.name for path in tmp_path.iterdir()] == ["f.jsonl"]


def test_the_file_does_not_depend_on_the_order_in_which_documents_were_found(
    tmp_path: Path,
) -> None:
    write_findings(tmp_path / "a", findings(found(7, (0, 3)), found(2, (5, 1))))
    write_findings(tmp_path / "b", findings(found(2, (5, 1)), found(7, (0, 3))))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_one_ngram_contaminates_unless_a_threshold_asks_for_more() -> None:
    some = findings(found(1, (0, 1)), found(2, (0, 10)), found(3, (0, 20)))
    assert some.contaminated("colors") == {1, 2, 3}
    assert some.contaminated("colors", threshold=0.5) == {2, 3}
    assert some.contaminated("colors", threshold=1.0) == {3}


def test_findings_of_a_task_cover_its_prompt_formats() -> None:
    some = findings(found(1, (0, 1)))
    assert some.covers("colors@mcqa")
    assert some.contaminated("colors@mcqa") == {1}
    assert not some.covers("colours")
    with pytest.raises(DataError, match="do not cover the task 'colours'; they cover: colors"):
        some.contaminated("colours")


def test_merged_counts_are_those_of_one_scan_over_both_corpora() -> None:
    one = findings(found(1, (0, 4), (8, 2)), found(2, (0, 1)))
    two = findings(found(1, (2, 4), (15, 5), file="b.txt"), file="b.txt")
    merged = merge_findings([one, two])
    document = merged.documents["colors"][1]
    assert document.runs == ((0, 6), (8, 2), (15, 5))
    assert document.with_answer == Overlap(20, 13, 18)
    assert document.question == Overlap(12, 8, 18)
    assert [file.name for file in merged.header.corpus.files] == ["a.txt", "b.txt"]
    assert merged.documents["colors"][2] == one.documents["colors"][2]
    assert merge_findings([two, one]) == merged


def test_a_file_that_was_scanned_twice_counts_once() -> None:
    one = findings(found(1, (0, 4)))
    merged = merge_findings([one, one])
    assert merged.documents == one.documents
    assert merged.header.corpus.files == one.header.corpus.files


def test_findings_of_other_rows_are_not_merged() -> None:
    one, other = findings(), findings()
    other.header.tasks["colors"] = replace(TASK, fingerprint="other rows")
    with pytest.raises(DataError, match=r"'colors' is not the same.*the rows of its dataset"):
        merge_findings([one, other])


def test_findings_of_other_ngrams_are_not_merged() -> None:
    one = findings()
    with pytest.raises(DataError, match=r"their ngram differs \(13, 8\)"):
        merge_findings([one, replace(one, header=replace(one.header, ngram=8))])


def test_findings_of_other_tasks_in_another_corpus_are_not_merged() -> None:
    one, other = findings(), findings(file="b.txt")
    other.header.tasks["shapes"] = TASK
    with pytest.raises(DataError, match="neither their tasks nor their corpora"):
        merge_findings([one, other])
    same = replace(other, header=replace(other.header, corpus=one.header.corpus))
    assert list(merge_findings([one, same]).header.tasks) == ["colors", "shapes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], ":1: this line of the findings cannot be read"),
        (lambda lines: ["{}"], ":1: this is not a findings file"),
        (lambda lines: [lines[0].replace('"format": 1', '"format": 2')], ":1: .*format 2"),
        (lambda lines: [lines[0].replace('"tasks"', '"task"')], ":1: .*'tasks' is missing"),
        (lambda lines: [lines[0], lines[1][:-9]], ":2: this line of the findings"),
        (lambda lines: ["[" * 100_000], ":1: this line of the findings cannot be read"),
        (lambda lines: [lines[0].replace('"ngram": 13', '"ngram": Infinity')], ":1: .*infinity"),
        (lambda lines: [lines[0].replace('"documents": 10', '"documents": "x"')], "documents is"),
        (lambda lines: [*lines, lines[1]], ":3: document 1 of 'colors' is in the file twice"),
        (lambda lines: [lines[0], lines[1].replace("colors", "shapes")], ":2: .*no task 'shapes'"),
        (
            lambda lines: [lines[0], lines[1].replace('"doc_id": 1', '"doc_id": 10')],
            ":2: .*10 documents, so there is no document 10",
        ),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(change, message, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "f.jsonl"
    write_findings(path, findings(found(1, (0, 1))))
    path.write_text("\n".join(change(path.read_text().splitlines())))
    with pytest.raises(DataError, match=message):
        read_findings(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl cannot be read: No such file"):
        read_findings(tmp_path / "none.jsonl")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"f\.jsonl: No such file"):
        write_findings(tmp_path / "none" / "f.jsonl", findings())


def test_keys_of_later_versions_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    written = findings(found(1, (0, 1)))
    write_findings(path, written)
    header, *rest = path.read_text().splitlines()
    values = json.loads(header)
    values["new"] = values["tasks"]["colors"]["new"] = 1
    path.write_text("\n".join([json.dumps(values), *rest]))
    assert read_findings(path) == written
