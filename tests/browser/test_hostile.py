"""Opens reports whose texts attack the page: nothing in them runs, loads or moves anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval.cli import main
from lm_eval.results.names import file_name
from tests.browser.conftest import OpenPage

STAMP = "2025-03-04T05-06-07.890123"
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<img src='https://example.org/x.png'>",
    "<svg onload=alert(1)><style>*{display:none}</style>",
    "</script><script>alert(1)</script>",
    '</script></body><meta http-equiv="refresh" content="0;url=https://example.org">',
    "<!--<script>",
    "]]><script>alert(1)</script>",
    "javascript:alert(1)",
    "[click](javascript:alert(1)) https://example.org",
    "{{summary}} {{blocks}} ${alert(1)} `",
    "\u202egnp.exe \u2066 \u200f \u200b \ufeff",
    "\ud800 lone \udfff surrogates",
    "\x00\x07\x1b[2J\x1b]0;title\x07\x7f\x85",
    "\u2028\u2029 line separators",
    "__proto__ constructor toString",
    "𝕏" * 50 + "é" + "\u0301" * 2000,
]


def write_run(folder: Path, samples: Sequence[dict[str, Any]], task: str, **more: Any) -> Path:
    """Writes results and a sample log as a stranger might, without any check."""
    folder.mkdir(parents=True)
    results = {
        "results": {task: {"alias": task, "exact_match,none": 0.5, "exact_match_stderr,none": 0.1}},
        "configs": {task: {"task": task, "output_type": "generate_until"}},
        "versions": {task: "1"},
        "n-shot": {task: 0},
        "config": {"model": "hf", "model_args": "pretrained=a/b"},
        "model_name": "a/b",
        **more,
    }
    encoded = json.dumps(results).encode("utf-8")
    (folder / f"results_{STAMP}.json").write_bytes(encoded)
    lines = [json.dumps(sample) for sample in samples]
    (folder / f"samples_{file_name(task)}_{STAMP}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def sample(number: int, prompt: str, answer: str, target: str = "x") -> dict[str, Any]:
    return {
        "doc_id": number,
        "doc": {"question": prompt, prompt[:50] or "empty": answer[:100], "__proto__": "own"},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": [answer[:50]]}}},
        "resps": [[answer]],
        "filtered_resps": [answer],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": "1" * 64,
        "prompt_hash": "2" * 64,
        "target_hash": "3" * 64,
        "exact_match": 0.0,
        "thinking": [[answer[:200]]],
        answer[:40]: answer[:40],
    }


@pytest.mark.parametrize("number", range(len(ATTACKS)))
def test_texts_are_shown_and_do_nothing(open_page: OpenPage, tmp_path: Path, number: int) -> None:
    attack = ATTACKS[number]
    task = attack.encode("utf-8", "replace").decode()[:60].replace("\x00", "") or "task"
    task = task if number in (0, 1, 5, 8, 11) else "plain"
    samples = [sample(i, f"before {attack} after", attack, attack) for i in range(3)]
    more = {"model_name": attack.encode("utf-8", "replace").decode(), "git_hash": attack}
    run = write_run(tmp_path / "run", samples, task, **more)
    file = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(file)]) == 0
    opened = open_page(file).ready()
    page = opened.page
    for details in page.locator("details").all():
        details.evaluate("one => { one.open = true; }")
    page.wait_for_timeout(200)
    assert opened.messages == []
    assert opened.requests == [file.as_uri()]
    assert page.url.startswith(file.as_uri())
    assert page.evaluate("document.scripts.length") == page.evaluate(
        "document.querySelectorAll('script[type],script:not([type])').length"
    )
    executable = page.eval_on_selector_all("script:not([type])", "all => all.length")
    assert executable == 1
    ours = (
        "iframe, object, embed, img, link, base, video, audio, form:not(.filters):not(dialog form)"
    )
    assert page.locator(ours).count() == 0
    handlers = page.evaluate(
        "[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => "
        "a.name.startsWith('on') || (/href|src|action/.test(a.name) && a.value[0] !== '#'))).length"
    )
    assert handlers == 0
    assert page.evaluate("({}).own") is None
    assert page.locator("#samples").is_visible()
    if "<" in attack:  # the exact text is there, as text
        assert attack in (page.locator("#detail").text_content() or "")


def test_characters_that_hide_or_reorder_are_shown_by_their_code(
    open_page: OpenPage, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", [sample(0, "a\u202eb\u200bc", "\x1b[2J")], "plain")
    file = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(file)]) == 0
    opened = open_page(file).ready()
    prompt = opened.page.locator("#detail .text").first.text_content()
    assert prompt == "aU+202EbU+200Bc‖"
    assert opened.page.locator("#detail .text >> text=U+001B").count() >= 1


def test_broken_utf8_in_a_log_is_named_and_the_page_still_opens(
    open_page: OpenPage, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", [sample(0, "question", "answer")], "plain")
    log = next(run.glob("samples_*"))
    log.write_bytes(log.read_bytes().replace(b"answer", b"\xff\xfe\xc3\x28 "))
    file = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(file)]) == 0
    opened = open_page(file).ready()
    assert opened.messages == []
    assert opened.page.locator("#score-table .score").count() == 1
    shown = opened.text("main")
    assert "cannot be read" in shown or "�" in shown


def test_an_answer_of_ten_megabytes_is_shown_in_parts(open_page: OpenPage, tmp_path: Path) -> None:
    huge = "".join(f"<b>{i:07d}</b>" for i in range(10_000_000 // 14))
    samples = [sample(0, "short", "short"), sample(1, "short", huge), sample(2, "short", "end")]
    run = write_run(tmp_path / "run", samples, "plain")
    file = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(file)]) == 0
    opened = open_page(file, "#plain/1").ready()
    opened.page.wait_for_selector("#detail .more")
    assert len(opened.text("#detail")) < 100_000
    opened.page.locator("#detail .more").first.click()
    assert opened.messages == []
    opened.page.fill("#search", f"<b>{10_000_000 // 14 - 1:07d}</b>")
    opened.wait("document.querySelector('#matches').dataset.state === 'done'")
    assert opened.rows() == 1


@pytest.mark.parametrize(
    "more",
    [
        {"extraction_failed": {"plain": 1}, "length_stopped": {"plain": {"a": [1]}}},
        {"truncated_requests": {"plain": -1e300}, "unanswered_documents": {"plain": [1]}},
        {"extraction_failed": 7, "length_stopped": {"plain": "x"}, "group_subtasks": None},
        {"higher_is_better": 7, "n-shot": {"plain": {"a": 1}}, "n-samples": {"plain": 1e300}},
        {"confidence": "x", "date": 1e300, "versions": [], "configs": {"plain": 7}},
        {"results": {"plain": {"acc,none": 1e300, "acc_stderr,none": 1e308}, "b": {}}},
    ],
)
def test_results_of_the_wrong_types_are_shown_without_an_error(
    open_page: OpenPage, tmp_path: Path, more: dict[str, Any]
) -> None:
    run = write_run(tmp_path / "run", [sample(0, "question", "answer")], "plain", **more)
    file = tmp_path / "report.html"
    assert main(["report", str(run), "-o", str(file)]) == 0
    opened = open_page(file).ready()
    assert opened.messages == []
    assert opened.rows() == 1
    assert opened.page.locator(".plot .warning").count() == 0


@pytest.mark.parametrize("value", [1e300, -1e300, "x", None, [1], 0.5])
def test_scores_of_a_study_of_any_size_leave_the_page_whole(
    open_page: OpenPage, tmp_path: Path, value: Any
) -> None:
    scores = [
        {"model": "m", "task": "t", "metric": "acc", "value": one, "setting": setting}
        for one, setting in ((value, "x"), (0.25, {"name": "s"}), (0.75, None))
    ]
    content = {"models": ["m"], "scores": scores, "distributions": []}
    (tmp_path / "study.json").write_text(json.dumps(content))
    file = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "study.json"), "-o", str(file)]) == 0
    opened = open_page(file).ready()
    assert opened.messages == []
    assert opened.text("h1") == "Study of m"
    assert opened.page.locator("#plot-spread .point").count() == (3 if value == 0.5 else 2)
