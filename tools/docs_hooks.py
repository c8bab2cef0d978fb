"""Changes that `mkdocs` makes to pages while it builds the documentation site (`make docs`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Returns the text of a page as mkdocs can render it.

    `<!-- include FILE.md -->` is replaced by a file of the repository's root. On the site all pages
    are in one folder, so that its links `docs/tasks.md` and `CHANGELOG.md` become `tasks.md` and
    `changelog.md`. The marks that the tests read in code fences (`needs-hub`) are removed.
    """

    def included(match: re.Match[str]) -> str:
        text = (ROOT / match[1]).read_text(encoding="utf-8").replace("](docs/", "](")
        return re.sub(r"\]\([A-Z]+\.md\b", lambda link: link[0].lower(), text)

    whole = re.sub(r"^<!-- include (\w+\.md) -->$", included, markdown, flags=re.MULTILINE)
    return re.sub(r"^```(\w+) [\w-]+$", r"```\1", whole, flags=re.MULTILINE)
