"""Makes the pictures of docs/report.md from runs of the embedded model: `make screenshots`."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from lm_eval.cli import main
from tests.browser.environment import OPTIONS, find_chromium

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LARGEST_BYTES = 200_000


def make_report(folder: Path) -> Path:
    """Stores two runs of the demo benchmark and a study, and returns their report."""
    for name, words in (("whole", []), ("short", ["--model_args", "max_length=64"])):
        words += ["--tasks", "demo", "--log_samples", "-o", str(folder / name)]
        assert main(["run", "--model", "demo", *words]) == 0
    words = ["--tasks", "demo_choice", "--formats", "mcqa,cloze,hybrid", "--num_fewshot", "0,2"]
    words += ["--limit", "60", "--seeds", "1..3", "-o", str(folder / "study")]
    assert main(["study", "--model", "demo", "--model", "dummy", *words]) == 0
    file = folder / "report.html"
    runs = [str(folder / name) for name in ("whole", "short", "study")]
    assert main(["report", *runs, "-o", str(file)]) == 0
    return file


def top(page: Any) -> None:
    """Shows the beginning of the page."""
    page.evaluate("scrollTo(0, 0)")


def flip(page: Any) -> None:
    """Shows a sample that flips between the runs."""
    page.select_option("#filter-task", "demo_lastword")
    page.click("label[for=verdict-flips]")
    page.evaluate("document.querySelector('#samples').scrollIntoView()")
    page.wait_for_selector("#detail .choice")


def phone(page: Any) -> None:
    """Shows a sample of a task with choices."""
    page.select_option("#filter-task", "demo_choice")
    page.select_option("#filter-order", "confidence-down")
    page.click("label[for=verdict-wrong]")
    page.evaluate("document.querySelector('#samples').scrollIntoView()")


PICTURES: dict[str, tuple[int, int, str, Callable[[Any], None]]] = {
    "report-light": (1200, 1500, "light", top),
    "report-sample-dark": (1200, 860, "dark", flip),
    "report-phone": (390, 780, "light", phone),
}


def save(content: bytes, file: Path) -> None:
    """Writes a picture as WebP, as good as its size allows."""
    with Image.open(io.BytesIO(content)) as picture:
        for quality in (92, 85, 75, 60):
            picture.save(file, "WEBP", quality=quality, method=6)
            if file.stat().st_size <= LARGEST_BYTES:
                return
    raise SystemExit(f"{file}: is larger than {LARGEST_BYTES} bytes.")


def take(report: Path, folder: Path) -> None:
    """Takes all pictures of a report."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=OPTIONS)
        for name, (width, height, scheme, prepare) in PICTURES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                device_scale_factor=1.5,
            )
            page = context.new_page()
            page.goto(report.as_uri())
            page.wait_for_selector("html[data-ready]")
            prepare(page)
            page.wait_for_timeout(400)
            save(page.screenshot(), folder / f"{name}.webp")
            print(f"{folder / name}.webp")
        browser.close()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    if len(sys.argv) > 1:
        take(Path(sys.argv[1]).absolute(), IMAGES)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            take(make_report(Path(temporary)), IMAGES)
