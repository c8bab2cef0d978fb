"""A real browser and reports to open in it.

The tests of this folder run only if LMEVAL_TEST_BROWSER is 1 (`make test-browser`), because they
need Chromium and Playwright.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lm_eval.cli import main
from tests.browser.environment import OPTIONS, find_chromium

collect_ignore_glob = [] if os.environ.get("LMEVAL_TEST_BROWSER") == "1" else ["test_*.py"]

OpenPage = Callable[..., "Opened"]


class Opened:
    """A page of the browser, with everything that it logged and asked for."""

    def __init__(self, page: Any, allowed: str | None) -> None:
        self.page = page
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("dialog", self._dismiss)
        page.on("request", lambda request: self.requests.append(request.url))
        page.route("**/*", lambda route: self._route(route, allowed))

    def _dismiss(self, dialog: Any) -> None:
        self.messages.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _route(self, route: Any, allowed: str | None) -> None:
        if allowed is not None and route.request.url.startswith(allowed):
            route.continue_()
        else:
            route.abort()

    def ready(self) -> Opened:
        """Waits until the samples are unpacked."""
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)
        return self

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def rows(self) -> int:
        """Returns the number of samples that the list has, of which few are drawn."""
        return int(self.text("#matches").split()[0].replace(",", ""))

    def verdict(self, name: str) -> None:
        """Chooses all, right, wrong or flips."""
        self.page.click(f"label[for=verdict-{name}]")

    def wait(self, condition: str) -> None:
        """Waits until an expression is true. The page's policy forbids it to evaluate texts."""
        for _ in range(300):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"never true: {condition}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Returns a function that opens a file, or the address of a server that may be asked."""
    contexts = []

    def opened(
        place: Path | str,
        anchor: str = "",
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        **more: Any,
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, **more
        )
        contexts.append(context)
        address = place.absolute().as_uri() if isinstance(place, Path) else place
        one = Opened(context.new_page(), address)
        one.page.goto(address + anchor)
        return one

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def demo_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Stores two runs of the demo model, the second with a short context."""
    root = tmp_path_factory.mktemp("runs")
    for name, arguments in (("whole", []), ("short", ["--model_args", "max_length=64"])):
        words = ["--tasks", "demo", "--limit", "24", "--log_samples", "-o", str(root / name)]
        assert main(["run", "--model", "demo", *arguments, *words, "--bootstrap_iters", "0"]) == 0
    return root / "whole", root / "short"


@pytest.fixture(scope="session")
def one_report(demo_runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "one.html"
    assert main(["report", str(demo_runs[0]), "-o", str(file)]) == 0
    return file


@pytest.fixture(scope="session")
def two_reports(demo_runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "two.html"
    assert main(["report", *map(str, demo_runs), "-o", str(file)]) == 0
    return file
