"""Findings as text: tables, and a document beside the passages in which it was found."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from lm_eval.contamination.finding_types import DocumentFinding, Findings, Match
from lm_eval.contamination.matcher import PASSAGE_MARGIN, word_spans
from lm_eval.contamination.self_overlap import SplitOverlap
from lm_eval.markdown import table


def broken_lines(findings: Findings) -> list[str]:
    """Returns one line per place of the corpus that could not be read."""
    lines: list[str] = []
    for place in findings.header.corpus.broken:
        more = f" (and {place.count - 1} more)" if place.count > 1 else ""
        lines.append(f"{place.name}, {place.place}: {place.error}{more}")
    return lines


def summary(findings: Findings) -> str:
    """Returns a table with one row per task, and a line about the corpus."""
    header = findings.header
    heads = ["Task", "Documents", "Contaminated", "Share", "Half or more found", "Not searched"]
    rows = []
    for name, searched in sorted(header.tasks.items()):
        contaminated = len(findings.contaminated(name))
        share = contaminated / searched.documents if searched.documents else 0.0
        rows.append(
            [
                name,
                str(searched.documents),
                str(contaminated),
                f"{share:.2%}",
                str(len(findings.contaminated(name, threshold=0.5))),
                str(searched.too_short_documents),
            ]
        )
    files = header.corpus.files
    size, records = sum(file.bytes for file in files), sum(file.records for file in files)
    rule = "at least one" if header.threshold <= 0 else f"at least {header.threshold:.0%}"
    broken = len({place.name for place in header.corpus.broken})
    damaged = f"; {broken} file{'s' if broken > 1 else ''} could not be read completely"
    return (
        table(heads, rows, right=heads[1:]) + f"{size / 1e6:,.1f} MB of text in {records:,} "
        f"records of {len(files):,} files{damaged if broken else ''}. Contaminated: {rule} of a "
        f"document's {header.ngram}-grams found.\n"
    )


def documents_table(findings: Findings, task: str) -> str:
    """Returns a table with one row per document of a task of which something was found."""
    heads = ["Doc", "Contaminated", "Found", "N-grams", "Overlap", "Question", "Longest", "Place"]
    rows = [
        [
            str(number),
            "yes" if doc.contaminated else "no",
            str(doc.with_answer.found),
            str(doc.with_answer.ngrams),
            f"{doc.with_answer.overlap:.2f}",
            f"{doc.question.overlap:.2f}" if doc.question.ngrams else "-",
            str(doc.with_answer.longest),
            _place(max(doc.matches, key=lambda match: match.length)) if doc.matches else "",
        ]
        for number, doc in sorted(findings.of_task(task).items())
    ]
    if not rows:
        count = findings.searched(task).documents
        return f"None of the {count} documents of {task} was found.\n"
    return table(heads, rows, right=[head for head in heads if head not in ("Place",)])


def _place(match: Match) -> str:
    return f"{match.file}, record {match.record}"


def document_page(
    document: DocumentFinding, texts: tuple[str, str] | None, width: int
) -> Iterator[str]:
    """Yields the lines that show a document beside the passages in which it was found.

    Args:
        document: the document.
        texts: its question and its answer; None if they are not known. Then the matched words are
            shown as they are compared, in lower case and without punctuation.
        width: the number of columns of the terminal.
    """
    whole = document.with_answer
    yield (
        f"{document.task}, document {document.doc_id}: "
        f"{'contaminated' if document.contaminated else 'not contaminated'}; {whole.found} of "
        f"{whole.ngrams} n-grams found ({whole.overlap:.0%}), longest match {whole.longest} words"
    )
    if document.question.ngrams and not document.short:
        asked = document.question
        yield (
            f"the question alone: {asked.found} of {asked.ngrams} n-grams found "
            f"({asked.overlap:.0%})"
        )
    for match in document.matches:
        yield ""
        reach = "in the question" if match.side == "question" else "reaching into the answer"
        yield f"{match.length} words {reach}; {_place(match)}, byte {match.offset}"
        left = match.words if texts is None else _excerpt(" ".join(texts), match)
        yield from _columns("document", left, "corpus", match.passage, width)


def _excerpt(text: str, match: Match) -> str:
    """Returns the matched words as in `text`, the document, between « and », with text around.

    Returns the normalized words if the document is shorter than when it was scanned.
    """
    spans = word_spans(text)
    if match.position + match.length > len(spans):  # the document has changed
        return match.words
    first, last = spans[match.position][0], spans[match.position + match.length - 1][1]
    begin, end = max(0, first - PASSAGE_MARGIN), min(len(text), last + PASSAGE_MARGIN)
    before = "…" if begin else ""
    after = "…" if end < len(text) else ""
    return f"{before}{text[begin:first]}«{text[first:last]}»{text[last:end]}{after}"


def _columns(left_name: str, left: str, right_name: str, right: str, width: int) -> Iterator[str]:
    """Yields the lines of a table with two texts side by side, wrapped to `width` columns."""
    each = max(20, (width - 3) // 2)
    yield f"{f'── {left_name} '.ljust(each, '─')}─┬─{f' {right_name} '.ljust(each, '─')}"
    for one, other in zip_longest(_wrapped(left, each), _wrapped(right, each), fillvalue=""):
        yield f"{one.ljust(each)} │ {other}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    return [
        line
        for paragraph in text.splitlines()
        for line in textwrap.wrap(paragraph, width, break_on_hyphens=False) or [""]
    ]


def overlaps_table(overlaps: Sequence[SplitOverlap]) -> str:
    """Returns a table with one row per task and split in which documents were found.

    Splits in which nothing was found are summed up in one line.
    """
    heads = ["Task", "Documents", "Found in", "Found", "Share", "Half or more", "Longest"]
    rows = [
        [
            overlap.task,
            str(overlap.documents),
            f"{overlap.against}/{overlap.split}",
            str(sum(doc.contaminated for doc in overlap.found)),
            f"{sum(doc.contaminated for doc in overlap.found) / overlap.documents:.2%}",
            str(sum(doc.with_answer.overlap >= 0.5 for doc in overlap.found)),
            str(max(doc.with_answer.longest for doc in overlap.found)),
        ]
        for overlap in overlaps
        if any(doc.contaminated for doc in overlap.found)
    ]
    clean = len(overlaps) - len(rows)
    shown = table(heads, rows, right=[head for head in heads if head not in ("Task", "Found in")])
    line = f"{len(overlaps)} comparisons of a task with a split; {clean} without an overlap.\n"
    return (shown if rows else "") + line
