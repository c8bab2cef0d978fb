"""Formats rows of text as Markdown tables that are readable as plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lm_eval.printable import printable_line


def table(
    headers: Sequence[str], lines: Sequence[Sequence[str]], right: Collection[str] = ()
) -> str:
    """Returns a Markdown table with padded columns, which ends with a line break.

    Args:
        headers: the column headers.
        lines: the rows, with one text per column.
        right: the headers of the columns that are aligned to the right.

    Control characters and line breaks in the texts are replaced by their codes.
    """
    headers = [printable_line(header) for header in headers]
    lines = [[printable_line(cell) for cell in line] for line in lines]
    widths = [max(3, *(len(line[i]) for line in (headers, *lines))) for i in range(len(headers))]
    to_right = [header in right for header in headers]
    rules = ["-" * (w - 1) + ":" if r else "-" * w for w, r in zip(widths, to_right, strict=True)]

    def write(line: Sequence[str]) -> str:
        cells = (
            cell.rjust(w) if r else cell.ljust(w)
            for cell, w, r in zip(line, widths, to_right, strict=True)
        )
        return f"|{'|'.join(cells)}|"

    head = (
        "|"
        + "|".join(h.center(w) if h else " " * w for h, w in zip(headers, widths, strict=True))
        + "|"
    )
    return "\n".join([head, write(rules), *(write(line) for line in lines)]) + "\n"
