"""Tests the text plots of `--plot`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lm_eval.cli import main
from lm_eval.results.text_plot import Interval, interval_plot
from tests.comparison_runs import run, write_tasks
from tests.conftest import Folder


def test_values_and_intervals_are_drawn_to_scale() -> None:
    lines = [Interval("a", 0.5, 0.25, 0.75), Interval("longer", 1.0), Interval("c", 0.0, -1.0, 2.0)]
    text = interval_plot(lines, 0.0, 1.0, width=9).splitlines()
    assert text == [
        "a         ├─●─┤    0.5000",
        "longer          ●  1.0000",
        "c       ●───────→  0.0000",
        "        0       1",
    ]


def test_zero_is_marked() -> None:
    (line, axis) = interval_plot([Interval("a", 0.5)], -1.0, 1.0, zero=True, width=9).splitlines()
    assert line == "a      │ ●    0.5000"
    assert axis.index("0") == line.index("│")
    assert interval_plot([Interval("a", math.nan)], 0.0, 1.0, width=3) == "a       nan\n   0 1\n"


def test_run_and_compare_draw_only_when_asked(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tasks(folder)
    one = run(folder, "one", range(7), "numbers", "--plot")
    out = capsys.readouterr().out
    assert out.count("●") == 1
    assert "numbers acc" in out
    two = run(folder, "two", range(3), "numbers")
    assert "●" not in capsys.readouterr().out
    words = ["compare", str(one), str(two), "--include_path", str(folder.path)]
    assert main(words) == 0
    assert "●" not in capsys.readouterr().out
    assert main([*words, "--plot"]) == 0
    out = capsys.readouterr().out
    assert out.count("●") == 1
    assert "0.4000" in out
    assert main([*words, "--plot", "--format", "csv"]) == 2


def test_a_record_does_not_depend_on_the_plot(folder: Folder) -> None:
    write_tasks(folder)
    out = run(folder, "one", range(7), "numbers", "--plot")
    assert '"plot"' not in next(Path(out).glob("*/run.json")).read_text()
