"""`lm-eval contamination`: finds test documents in training corpora and in other benchmarks."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.cli.options import add_data_dir, add_include_path, include_paths

if TYPE_CHECKING:
    from lm_eval.api.task import Task
    from lm_eval.contamination.findings import DocumentFinding
    from lm_eval.contamination.search import TaskSelection

HELP = "find test documents in training corpora, or in other benchmarks"
#: The width of pages that are not printed to a terminal.
_WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `lm-eval contamination` (`scan`, `merge`, `show`, `self`)."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    scan = commands.add_parser("scan", help="search a corpus for the documents of tasks")
    scan.add_argument(
        "corpus",
        nargs="+",
        metavar="CORPUS",
        help="files, folders or patterns: text, JSON lines (each also as .gz, .zst, .bz2 or .xz), "
        "Parquet, Arrow; - for the standard input",
    )
    _add_tasks(scan)
    scan.add_argument(
        "--output", "-o", required=True, metavar="FINDINGS", help="file for the findings"
    )
    _add_definition(scan)
    scan.add_argument(
        "--field",
        default="text",
        help="field of JSON objects, or column of tables, with the text (default: text)",
    )
    scan.add_argument(
        "--format",
        choices=("text", "jsonl", "parquet", "arrow"),
        help="format of all files (default: by their names; text for the standard input)",
    )
    scan.add_argument(
        "--workers", type=int, metavar="N", help="number of processes (default: one per core)"
    )
    scan.add_argument(
        "--skip_broken",
        action="store_true",
        help="exit with 0 even if a file could not be read completely",
    )
    scan.add_argument(
        "--fresh",
        action="store_true",
        help="discard the findings and the unfinished scan at --output",
    )
    merge = commands.add_parser("merge", help="combine the findings of several scans")
    merge.add_argument("findings", nargs="+", metavar="FINDINGS", help="files to combine")
    merge.add_argument("--output", "-o", required=True, metavar="FILE", help="file for the result")
    show = commands.add_parser("show", help="print findings")
    show.add_argument("findings", metavar="FINDINGS", help="file of a scan")
    show.add_argument("--task", metavar="TASK", help="list the documents of this task")
    show.add_argument(
        "--doc", type=int, metavar="N", help="show this document beside the corpus (with --task)"
    )
    show.add_argument("--json", action="store_true", help="print JSON")
    own = commands.add_parser(
        "self", help="search splits of tasks for the documents of tasks; needs no corpus"
    )
    _add_tasks(own)
    own.add_argument(
        "--against",
        nargs="+",
        metavar="TASK",
        help="tasks in whose splits to search (default: the other splits of each task itself)",
    )
    own.add_argument("--output", "-o", metavar="FINDINGS", help="also write findings to this file")
    _add_definition(own)
    for each in (scan, show, own):
        add_data_dir(each)
        add_include_path(each)


def _add_tasks(parser: Any) -> None:
    parser.add_argument(
        "--tasks",
        "-t",
        required=True,
        nargs="+",
        metavar="TASK",
        help="tasks, groups, tags or files whose test documents are searched for",
    )


def _add_definition(parser: Any) -> None:
    parser.add_argument(
        "--ngram", type=int, default=13, metavar="N", help="words of an n-gram (default: 13)"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of a document's n-grams that must be found for it to be contaminated "
        "(default: 0, one n-gram is enough)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Performs the action `scan`, `merge`, `show` or `self`, and returns the exit code.

    It is 1 after a scan in which a file could not be read completely, unless `--skip_broken` is
    given, and otherwise 0.
    """
    actions = {"scan": _scan, "merge": _merge, "show": _show, "self": _self}
    return actions[arguments.action](arguments)


def _scan(arguments: argparse.Namespace) -> int:
    from lm_eval.contamination.scan import ScanOptions, scan
    from lm_eval.contamination.show import broken_lines, summary

    options = ScanOptions(
        ngram=arguments.ngram,
        threshold=arguments.threshold,
        field=arguments.field,
        format=arguments.format,
        workers=arguments.workers,
    )
    output = Path(arguments.output).expanduser()
    tasks = _selection(arguments.tasks, arguments)
    findings = scan(tasks, arguments.corpus, output, options, arguments.fresh)
    print(summary(findings), end="")
    broken = broken_lines(findings)
    for line in broken:
        print(f"lm-eval: not read: {line}", file=sys.stderr)
    if not broken or arguments.skip_broken:
        return 0
    print(
        f"lm-eval: {output} is written, without what could not be read. Scan the repaired files "
        "and merge the findings, or pass --skip_broken to accept this.",
        file=sys.stderr,
    )
    return 1


def _merge(arguments: argparse.Namespace) -> int:
    from lm_eval.contamination.findings import merge_findings, read_findings, write_findings
    from lm_eval.contamination.show import summary

    findings = merge_findings(map(read_findings, arguments.findings))
    write_findings(Path(arguments.output).expanduser(), findings)
    print(summary(findings), end="")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from lm_eval.contamination.findings import document_json, header_json, read_findings
    from lm_eval.contamination.show import document_page, documents_table, summary
    from lm_eval.errors import ConfigError

    findings = read_findings(arguments.findings)
    task, number = arguments.task, arguments.doc
    if task is None:
        if number is not None:
            raise ConfigError("--doc needs --task, the task of the document.")
        if arguments.json:
            print(json.dumps(header_json(findings.header), indent=2, ensure_ascii=False))
        else:
            print(summary(findings), end="")
        return 0
    documents = findings.of_task(task)
    if number is None:
        if arguments.json:
            listed = [document_json(doc) for _, doc in sorted(documents.items())]
            print(json.dumps(listed, indent=2, ensure_ascii=False))
        else:
            print(documents_table(findings, task), end="")
        return 0
    count = findings.searched(task).documents
    if not 0 <= number < count:
        raise ConfigError(
            f"task {task!r} has no document {number}: --doc must be between 0 and {count - 1}."
        )
    document = documents.get(number)
    if arguments.json:
        shown = None if document is None else document_json(document)
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    elif document is None:
        print(f"{task}, document {number}: nothing of it was found.")
    else:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns
        texts = _texts(document, arguments)
        print("\n".join(document_page(document, texts, width)))
    return 0


def _texts(document: DocumentFinding, arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Returns the question and the answer of a document; None if its task cannot be loaded.

    None as well, with a message, if the document is another one than when the corpus was scanned.
    """
    from lm_eval.contamination.queries import texts_of
    from lm_eval.errors import EvalError
    from lm_eval.results.samples import document_hash

    try:
        [task] = _load([document.task], arguments).values()
        doc = task.eval_docs[document.doc_id]
        if document_hash(doc) == document.doc_hash:
            return texts_of(task, doc)
        problem = "the documents of the task have changed since the scan"
    except (EvalError, IndexError, ValueError) as error:
        problem = " ".join(str(error).split())
    print(f"lm-eval: matched words are shown without their document: {problem}", file=sys.stderr)
    return None


def _self(arguments: argparse.Namespace) -> int:
    from lm_eval.contamination.findings import write_findings
    from lm_eval.contamination.scan import ScanOptions
    from lm_eval.contamination.self_overlap import self_overlap
    from lm_eval.contamination.show import overlaps_table

    ScanOptions(arguments.ngram, arguments.threshold).check()
    tasks = _load(arguments.tasks, arguments)
    against = None if arguments.against is None else _load(arguments.against, arguments)
    overlaps, findings = self_overlap(tasks, against, arguments.ngram, arguments.threshold)
    if arguments.output is not None:
        write_findings(Path(arguments.output).expanduser(), findings)
    print(overlaps_table(overlaps), end="")
    return 0


def _load(names: list[str], arguments: argparse.Namespace) -> dict[str, Task]:
    """Returns the tasks that names, separated by blanks or commas, select."""
    return _selection(names, arguments).load()


def _selection(names: list[str], arguments: argparse.Namespace) -> TaskSelection:
    from lm_eval.contamination.search import TaskSelection
    from lm_eval.errors import ConfigError

    wanted = tuple(name for text in names for name in text.split(",") if name)
    if not wanted:
        raise ConfigError("no task is named. Pass --tasks NAME; `lm-eval ls tasks` lists them.")
    folders = tuple(map(str, include_paths(arguments.include_path) or ()))
    return TaskSelection(wanted, folders, arguments.data_dir)
