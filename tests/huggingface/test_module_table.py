"""Tests that docs/architecture.md lists every module of `models/huggingface`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_modules_is_complete_and_true() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## Inside `models/huggingface`")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = sorted(name.strip(" `/") for row in rows for name in row.split(","))
    folder = ROOT / "lm_eval" / "models" / "huggingface"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "model", "base"}
    assert listed == sorted(modules | {"kernels"})
