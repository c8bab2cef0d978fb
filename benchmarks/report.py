"""Measures reports: time to make one, size of the file, first paint, search and browser memory.

    python benchmarks/report.py [14000 100000]

Samples are as long as those of 5-shot MMLU, with four choices; texts are random words, which
compress less well than questions. Needs Playwright and Chromium (`make test-browser` installs both
into .venv/browser); without them, only the file is made and measured.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from lm_eval.report.report import write_report
from tests.browser.environment import OPTIONS, find_chromium

STAMP = "2025-03-04T05-06-07.890123"
TASKS, CHOICES = 57, 4
#: Numbers of words: of an example in the prompt (five of them), and of the question.
EXAMPLE_WORDS, QUESTION_WORDS = 60, 50


def write_run(folder: Path, samples: int) -> None:
    """Writes the results and sample logs of a run with so many documents."""
    folder.mkdir()
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))
             for _ in range(4000)]  # fmt: skip
    rows, configs, shots = {}, {}, {}
    for number in range(TASKS):
        task = f"subject_{number:02d}"
        size = samples // TASKS + (number < samples % TASKS)
        shown = "".join(
            " ".join(draw.choices(words, k=EXAMPLE_WORDS)) + "\nAnswer: A\n\n" for _ in range(5)
        )
        right = 0
        with (folder / f"samples_{task}_{STAMP}.jsonl").open("w", encoding="utf-8") as file:
            for i in range(size):
                question = " ".join(draw.choices(words, k=QUESTION_WORDS)) + "?\nAnswer:"
                scores = [draw.gauss(-3, 1.5) for _ in range(CHOICES)]
                gold = draw.randrange(CHOICES)
                acc = float(max(range(CHOICES), key=lambda i: scores[i]) == gold)
                right += int(acc)
                arguments = {
                    f"gen_args_{c}": {"arg_0": shown + question, "arg_1": f" {'ABCD'[c]}"}
                    for c in range(CHOICES)
                }
                sample = {
                    "doc_id": i,
                    "doc": {"question": question, "answer": gold},
                    "target": str(gold),
                    "arguments": arguments,
                    "resps": [[[str(score), "False"]] for score in scores],
                    "filtered_resps": [[str(score), "False"] for score in scores],
                    "filter": "none",
                    "metrics": ["acc"],
                    "doc_hash": f"{i:064d}",
                    "acc": acc,
                }
                file.write(json.dumps(sample) + "\n")
        rows[task] = {"acc,none": right / size, "acc_stderr,none": 0.5 / size**0.5}
        configs[task], shots[task] = {"task": task}, 5
    content = {
        "results": rows,
        "configs": configs,
        "n-shot": shots,
        "versions": dict.fromkeys(rows, 1),
        "model_name": "model",
    }
    (folder / f"results_{STAMP}.json").write_text(json.dumps(content))


def measure_browser(file: Path) -> dict[str, float]:
    """Returns seconds to the first paint, until samples can be used, and of a search; megabytes."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(file.as_uri(), wait_until="commit")
        page.wait_for_selector("html[data-samples=ready]")
        ready = page.evaluate("performance.now()") / 1000
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        searches = []
        for text in ("no document has this", "subject", "zzz qq"):
            start = time.monotonic()
            page.evaluate("document.querySelector('#matches').dataset.state = 'waiting'")
            page.fill("#search", text)
            page.wait_for_selector("#matches[data-state=done]")
            searches.append(time.monotonic() - start)
        page.fill("#search", "")
        page.select_option("#filter-order", "margin-up")
        page.evaluate("document.querySelector('#list').scrollTop = 1e9")
        page.keyboard.press("j")
        page.wait_for_timeout(500)
        memory = resident(os.getpid())
        browser.close()
    return {
        "first paint (s)": paint / 1000,
        "samples ready (s)": ready,
        "search in all texts (s)": max(searches),
        "memory of all browser processes (MB)": memory,
    }


def resident(root: int) -> float:
    """Returns the megabytes of the browser processes below `root`: shared pages count in parts."""
    parents, total = {}, 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    for process in parents:
        above = process
        while above in parents and above != root:
            above = parents[above]
        try:
            if above == root and "chrom" in Path(f"/proc/{process}/comm").read_text():
                lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
                total += sum(int(one.split()[1]) for one in lines if one.startswith("Pss:")) / 1000
        except OSError:
            continue
    return total


def main() -> None:
    """Measures reports of the sizes on the command line."""
    for samples in [int(word) for word in sys.argv[1:]] or [14_000, 100_000]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_run(folder / "run", samples)
            start = time.process_time()
            file = folder / "report.html"
            write_report([folder / "run"], file)
            found = {
                "made in (s of processor)": time.process_time() - start,
                "file (MB)": file.stat().st_size / 1e6,
            }
            try:
                found |= measure_browser(file)
            except ImportError:
                print("Playwright is not installed; only the file is measured.")
            print(f"{samples:,} samples: " + ", ".join(f"{k} {v:.2f}" for k, v in found.items()))


if __name__ == "__main__":
    main()
