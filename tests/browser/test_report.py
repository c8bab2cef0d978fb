"""Drives the report in a browser: it opens from a file, and everything on it works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_eval.cli import main
from lm_eval.results import load
from tests.browser.conftest import OpenPage
from tests.browser.environment import find_axe
from tests.browser.test_hostile import sample, write_run

SHARED = "#demo_lastword/7"


def test_it_opens_from_a_file_without_an_error_and_without_a_request(
    open_page: OpenPage, two_reports: Path
) -> None:
    opened = open_page(two_reports).ready()
    opened.page.wait_for_timeout(300)
    assert opened.messages == []
    assert opened.requests == [two_reports.as_uri()]
    assert opened.text("h1") == "demo (whole) and demo (short)"


def test_table_and_plots_are_drawn_before_any_sample_is_unpacked(
    open_page: OpenPage, two_reports: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.html"
    text = two_reports.read_text(encoding="utf-8")
    start = text.index('<script type="application/gzip"')
    broken.write_text(text[:start] + "</body></html>", encoding="utf-8")
    opened = open_page(broken)
    opened.page.wait_for_selector("#score-table tbody tr")
    assert opened.page.locator("figure.plot:visible").count() >= 5


def test_scores_are_those_of_the_results_file(
    open_page: OpenPage, one_report: Path, demo_runs: tuple[Path, Path]
) -> None:
    opened = open_page(one_report).ready()
    shown = opened.page.eval_on_selector_all(
        "#score-table tbody tr",
        "rows => rows.map(r => [r.querySelector('.metric').innerText.trim().split(/\\s/)[0],"
        " r.querySelector('.score')?.innerText])",
    )
    wanted = [(row.metric, f"{row.value:.4f}") for row in load(demo_runs[0]).scores()]
    assert sorted(wanted) == sorted((m, v) for m, v in shown if v)


def test_groups_fold_and_columns_sort(open_page: OpenPage, one_report: Path) -> None:
    opened = open_page(one_report).ready()
    rows = opened.page.locator("#score-table tbody tr")
    before = rows.count()
    opened.page.locator(".fold").nth(1).click()
    assert opened.page.locator(".fold").nth(1).get_attribute("aria-expanded") == "false"
    assert rows.count() < before
    opened.page.locator(".fold").nth(1).click()
    assert rows.count() == before
    opened.page.click("th button.sort:has-text('Score')")
    header = opened.page.locator("th:has(button.sort:has-text('Score'))")
    assert header.get_attribute("aria-sort") == "descending"
    of_group = opened.page.eval_on_selector_all(
        "#score-table th.depth-2", "cells => cells.map(c => c.parentElement)"
        ".map(r => Number(r.querySelector('.score').innerText))"
    )  # fmt: skip
    assert len(of_group) == 3
    assert of_group == sorted(of_group, reverse=True)


def test_search_finds_texts_of_prompts_and_answers(
    open_page: OpenPage, one_report: Path, demo_runs: tuple[Path, Path]
) -> None:
    opened = open_page(one_report).ready()
    everything = opened.rows()
    samples = [
        s for task in load(demo_runs[0]).tasks for s in load(demo_runs[0]).read_samples(task)
    ]
    names = {(s["doc_hash"]) for s in samples if "garden" in json.dumps(s).lower()}
    opened.page.fill("#search", "GARDEN")
    opened.wait("document.querySelector('#matches').dataset.state === 'done'")
    assert opened.rows() == len(names) < everything
    assert opened.page.locator("#detail mark").first.inner_text().lower() == "garden"
    opened.page.fill("#search", "no text has this")
    opened.wait("document.querySelector('#matches').textContent.startsWith('0 ')")
    opened.page.fill("#search", "")
    opened.wait(f"document.querySelector('#matches').textContent.startsWith('{everything}')")


def test_filters_and_orders(
    open_page: OpenPage, one_report: Path, demo_runs: tuple[Path, Path]
) -> None:
    opened = open_page(one_report).ready()
    samples = load(demo_runs[0]).read_samples("demo_choice")
    opened.page.select_option("#filter-task", "demo_choice")
    assert opened.rows() == len(samples)
    opened.verdict("wrong")
    assert opened.rows() == sum(s["acc"] == 0 for s in samples)
    opened.verdict("right")
    assert opened.rows() == sum(s["acc"] == 1 for s in samples)
    opened.page.select_option("#filter-judge", "acc_norm,none")
    assert opened.rows() == sum(s["acc_norm"] == 1 for s in samples)
    opened.verdict("all")
    margins = {}
    for one in samples:
        scores = sorted((float(answer[0][0]) for answer in one["resps"]), reverse=True)
        margins[one["doc_id"]] = scores[0] - scores[1]
    opened.page.select_option("#filter-order", "margin-up")
    first = opened.page.locator("#list .row").first.locator(".facts").inner_text()
    narrowest = min(margins, key=lambda number: margins[number])
    assert int(first.split()[0]) == narrowest
    opened.page.wait_for_selector(f"#detail h3:has-text('demo_choice / {narrowest}')")


def test_the_most_confident_wrong_answers_are_two_choices_away(
    open_page: OpenPage, one_report: Path, demo_runs: tuple[Path, Path]
) -> None:
    opened = open_page(one_report).ready()
    opened.page.select_option("#filter-order", "confidence-down")
    opened.verdict("wrong")
    shown = opened.page.locator("#list .row").all()[:10]
    found = [one.locator(".facts").inner_text().split(" · ") for one in shown]
    values = [float(words[1].split()[1]) for words in found]
    assert values == sorted(values, reverse=True)
    wrong = set()
    for name in ("demo_choice", "demo_pairs", "demo_lastword"):
        samples = load(demo_runs[0]).read_samples(name)
        wrong |= {f"{name}/{one['doc_id']}" for one in samples if one["acc"] == 0}
    assert {words[0] for words in found} <= wrong
    opened.page.wait_for_selector(f"#detail h3:has-text('{found[0][0].replace('/', ' / ')}')")
    assert "(empty prompt)" not in opened.text("#list")  # demo_pairs has none, so choices are shown


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("unanswered", "extraction_failed", True),
        ("length", "length_stopped", [[True]]),
        ("truncated", "truncated", True),
        ("contaminated", "contaminated", True),
    ],
)
def test_samples_that_are_cut_or_unanswered_can_be_filtered(
    open_page: OpenPage, tmp_path: Path, flag: str, field: str, value: object
) -> None:
    samples = [sample(i, f"question {i}", "text") for i in range(5)]
    samples[3][field] = value
    file = tmp_path / "report.html"
    assert (
        main(["report", str(write_run(tmp_path / "run", samples, "plain")), "-o", str(file)]) == 0
    )
    opened = open_page(file).ready()
    opened.page.select_option("#filter-flag", flag)
    assert opened.rows() == 1
    opened.page.wait_for_selector("#detail h3:has-text('plain / 3')")
    assert opened.page.locator("#detail .flag").count() == 1


def test_a_sample_has_its_prompt_choices_answers_and_values(
    open_page: OpenPage, one_report: Path, demo_runs: tuple[Path, Path]
) -> None:
    (first, *_) = load(demo_runs[0]).read_samples("demo_choice")
    opened = open_page(one_report, f"#demo_choice/{first['doc_id']}").ready()
    opened.page.wait_for_selector("#detail .choice")
    prompt = opened.page.locator("#detail .text").first.text_content()
    assert prompt == first["arguments"][0][0] + "‖"
    assert opened.page.locator("#detail .choice").count() == len(first["arguments"])
    shown = opened.page.locator("#detail .choice-number").first.inner_text().replace("−", "-")
    assert float(shown) == pytest.approx(float(first["resps"][0][0][0]), abs=6e-4)
    gold = opened.page.locator("#detail .choice.gold .continuation").text_content()
    assert gold == first["arguments"][int(first["target"])][1].replace(" ", "␣", 1)
    opened.page.evaluate("location.hash = '#demo_sums/3'")
    opened.page.wait_for_selector("#detail .repeats")
    sums = [s for s in load(demo_runs[0]).read_samples("demo_sums") if s["doc_id"] == 3]
    answers = opened.page.locator("#detail .repeats .text").all_text_contents()
    assert answers == sums[0]["resps"][0]
    folded = opened.page.locator("#detail details.turn")
    assert folded.get_attribute("open") is None
    both = folded.locator(".text").text_content() + (
        opened.page.locator("#detail section.part > .text").first.text_content() or ""
    )
    assert both == sums[0]["arguments"][0][0] + "‖"
    assert folded.locator(".text").text_content().count("Q:") == 2
    assert "majority" in opened.text("#detail")


def test_a_link_leads_to_its_sample_also_when_filters_hide_it(
    open_page: OpenPage, one_report: Path
) -> None:
    opened = open_page(one_report, SHARED).ready()
    opened.page.wait_for_selector("#detail h3:has-text('demo_lastword / 7')")
    opened.page.select_option("#filter-task", "demo_pairs")
    opened.page.evaluate("location.hash = '#demo_choice/5'")
    opened.page.wait_for_selector("#detail h3:has-text('demo_choice / 5')")
    assert opened.page.locator("#filter-task").input_value() == ""
    opened.page.locator("#list .row").nth(2).click()
    assert opened.page.evaluate("location.hash").startswith("#demo_")


def test_a_flip_shows_both_runs(
    open_page: OpenPage, two_reports: Path, demo_runs: tuple[Path, Path]
) -> None:
    opened = open_page(two_reports).ready()
    opened.page.select_option("#filter-task", "demo_lastword")
    opened.verdict("flips")
    values = [
        {s["doc_id"]: s["acc"] for s in load(run).read_samples("demo_lastword")}
        for run in demo_runs
    ]
    flips = {number for number, value in values[0].items() if values[1][number] != value}
    assert opened.rows() == len(flips) > 0
    badges = opened.page.locator("#detail .badge").all_inner_texts()
    assert sorted(text.split()[-1] for text in badges) == ["right", "wrong"]
    assert opened.page.locator("#plot-differences").is_visible()
    assert "minus demo (whole)" in opened.page.locator("#plot-differences desc").text_content()


def test_the_keyboard_walks_searches_and_helps(open_page: OpenPage, one_report: Path) -> None:
    opened = open_page(one_report, "#demo_choice/0").ready()
    page = opened.page
    page.wait_for_selector("#detail h3:has-text('demo_choice / 0')")
    page.keyboard.press("j")
    page.wait_for_selector("#detail h3:has-text('demo_choice / 1')")
    page.keyboard.press("k")
    page.wait_for_selector("#detail h3:has-text('demo_choice / 0')")
    page.focus("#list")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#detail h3:has-text('demo_choice / 2')")
    active = page.get_attribute("#list", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#detail h3:has-text('demo_choice / 3')")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("j?")
    assert page.input_value("#search") == "j?"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert opened.messages == []


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_needs_to_be_scrolled_sideways(
    open_page: OpenPage, two_reports: Path, width: int, scheme: str
) -> None:
    opened = open_page(two_reports, width=width, height=740, scheme=scheme).ready()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in paper.strip("rgb()").split(",")) > 384
    assert light == (scheme == "light")
    if width == 360:
        assert not opened.page.locator("#detail").is_visible()
        opened.page.locator("#list .row").first.click()
        opened.page.wait_for_selector("#detail .choice")
        opened.page.click(".back")
        assert not opened.page.locator("#detail").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_no_serious_violation(
    open_page: OpenPage, two_reports: Path, scheme: str, width: int
) -> None:
    axe = find_axe()
    if axe is None:
        pytest.skip("axe-core was not downloaded")
    opened = open_page(two_reports, width=width, scheme=scheme, bypass_csp=True).ready()
    if width == 360:
        opened.page.locator("#list .row").first.click()
    opened.page.wait_for_selector("#detail .choice")
    opened.page.add_script_tag(content=axe.read_text(encoding="utf-8"))
    found = opened.page.evaluate("axe.run().then(r => r.violations)")
    serious = [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_it_prints_the_sample_that_is_open(open_page: OpenPage, one_report: Path) -> None:
    opened = open_page(one_report, SHARED).ready()
    opened.page.wait_for_selector("#detail h3:has-text('demo_lastword / 7')")
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#detail").is_visible()
    assert not opened.page.locator("#filters").is_visible()
    assert len(opened.page.pdf()) > 10_000


def test_a_link_can_be_printed_on_paper_which_is_as_narrow_as_a_phone(
    open_page: OpenPage, one_report: Path
) -> None:
    opened = open_page(one_report, SHARED, width=720, scheme="dark").ready()
    page = opened.page
    page.wait_for_selector("#detail h3:has-text('demo_lastword / 7')")
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('#detail')).position") == "static"
    end, heading = page.evaluate(
        "['#detail', '#provenance-heading'].map(one => {"
        " const box = document.querySelector(one).getBoundingClientRect();"
        " return one === '#detail' ? box.bottom : box.top; })"
    )
    assert heading >= end, "the sample covers nothing"
    color = page.evaluate("getComputedStyle(document.querySelector('.lede')).color")
    assert sum(int(part) for part in color.strip("rgb()").split(",")) < 384, "dark ink on paper"


def test_numbers_of_any_size_can_be_read(open_page: OpenPage, tmp_path: Path) -> None:
    rows = {"huge": 1.2e18, "large": 166697.4, "middle": 13.7114, "tiny": 3.2e-7, "share": 0.5}
    results = {
        name: {"alias": name, "score,none": value, "score_stderr,none": value / 10}
        for name, value in rows.items()
    }
    run = write_run(tmp_path / "run", [], "plain", results=results)
    file = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(file)]) == 0
    opened = open_page(file).ready()
    shown = opened.page.eval_on_selector_all(
        "#score-table tbody tr",
        "rows => rows.map(r => [r.querySelector('.name').innerText.split('\\n')[0],"
        " [r.querySelector('.score').innerText, r.querySelector('.error').innerText.trim(),"
        "  r.children[3].innerText]])",
    )
    assert dict(shown) == {
        "huge": ["1.2 × 10¹⁸", "± 2.35 × 10¹⁷", ""],
        "large": ["166,697", "± 32,672", ""],
        "middle": ["13.71", "± 2.69", ""],
        "tiny": ["3.2 × 10⁻⁷", "± 6.27 × 10⁻⁸", ""],
        "share": ["0.5000", "± 0.098", ""],
    }


def test_the_plots_of_sixty_tasks_fold(open_page: OpenPage, tmp_path: Path) -> None:
    names = [f"task_{i}" for i in range(60)]
    results = {name: {"acc,none": 0.5, "acc_stderr,none": 0.1} for name in [*names, "all"]}
    more = {"results": results, "group_subtasks": {"all": names}}
    run = write_run(tmp_path / "run", [], "plain", **more)
    file = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(file)]) == 0
    opened = open_page(file).ready()
    rows = opened.page.locator("#plot-scores .row-label")
    folded = rows.count()
    assert folded < 30
    assert "all" in (rows.first.text_content() or ""), "groups come first"
    opened.page.click("#plot-scores .more")
    assert rows.count() == 61
    opened.page.click("#plot-scores .more")
    assert rows.count() == folded
