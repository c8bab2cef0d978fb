"""Drives `lm-eval view` in a browser while a run goes on, and asks it for what it must refuse."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import OpenPage

#: Answers of the demo model one by one, so slowly that a browser sees some of them.
SLOW = """
import sys, time
from lm_eval.models.demo.model import DemoLM
from lm_eval.cli import main
answer = DemoLM.loglikelihood
def slowly(self, requests):
    found = []
    for start in range(0, len(requests), 8):
        part = requests[start:start + 8]
        for request, one in zip(part, answer(self, part)):
            self.cache_hook.add_partial("loglikelihood", request.args, one)
            found.append(one)
        time.sleep(0.25)
    return found
DemoLM.loglikelihood = slowly
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """Starts `lm-eval view` on an empty folder; yields address, process and folder."""
    folder = tmp_path / "runs"
    folder.mkdir()
    command = [sys.executable, "-m", "lm_eval", "view", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    (address,) = re.findall(r"http://127\.0\.0\.1:\d+/[\w-]+/", line)
    yield address, process, folder
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_it_shows_the_progress_of_a_run_and_then_its_report(
    open_page: OpenPage, viewer: tuple[str, subprocess.Popen[str], Path]
) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    address, process, folder = viewer
    opened = open_page(address)
    opened.page.wait_for_selector("text=There are no runs in this folder yet")
    words = ["--model", "demo", "--tasks", "demo_choice,demo_pairs", "--limit", "24"]
    run = subprocess.Popen(
        [sys.executable, "-c", SLOW, "run", *words, "--log_samples", "-o", str(folder / "out")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        opened.page.click("table.runs-table a", timeout=60_000)
        opened.page.wait_for_selector(".progress .state:has-text('running')", timeout=30_000)
        seen: set[int] = set()
        for _ in range(400):
            try:
                text, is_ready = opened.page.evaluate(
                    "[document.querySelector('.progress-head .progress-count')?.textContent ?? '',"
                    " document.documentElement.dataset.samples === 'ready']"
                )
            except playwright.Error:  # the page is being reloaded, because there are new results
                opened.page.wait_for_load_state()
                continue
            if is_ready:
                break  # it was finished, and the page has loaded its report
            seen |= {int(word.replace(",", "")) for word in text.split()[:1]}
            opened.page.wait_for_timeout(100)
    finally:
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors
    assert len(seen) >= 3, "the number of answers grows on the page"
    assert max(seen) <= 24 * 4 + 24 * 2
    opened.ready()
    assert opened.page.locator("#score-table .score").count() == 3
    assert opened.rows() == 48
    assert [one for one in opened.messages if "404" not in one] == []
    assert all(one.startswith(address) for one in opened.requests)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 0


def test_runs_can_be_chosen_side_by_side(
    open_page: OpenPage, demo_runs: tuple[Path, Path], tmp_path: Path
) -> None:
    from threading import Thread

    from lm_eval.viewer.catalog import Catalog
    from lm_eval.viewer.server import ViewServer

    with ViewServer(Catalog(demo_runs[0].parent)) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        opened = open_page(server.address)
        for box in opened.page.locator("table input[type=checkbox]").all():
            box.check()
        opened.page.click("text=Open side by side")
        opened.ready()
        assert " and " in opened.text("h1")
        assert opened.messages == []
        server.shutdown()


def status(address: str, path: str, method: str = "GET", **headers: str) -> int:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request(method, path, headers=headers)
    found = connection.getresponse().status
    connection.close()
    return found


def test_other_paths_hosts_and_methods_are_refused(
    viewer: tuple[str, subprocess.Popen[str], Path],
) -> None:
    address, _, folder = viewer
    (folder / "secret.txt").write_text("secret")
    token = urlsplit(address).path
    assert status(address, token) == 200
    assert status(address, token, "HEAD") == 200
    for path in ("/", "/favicon.ico", token.rstrip("/"), f"{token}secret.txt", f"{token}../", "*"):
        assert status(address, path) == 404, path
    for path in (f"{token}run/000000000000/", f"{token}run/../../etc/passwd", f"{token}%2e%2e/"):
        assert status(address, path) == 404, path
    for path in ("/x" + token, token[:-2] + "/", "http://example.org/", "//example.org/"):
        assert status(address, path) in (403, 404), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "FOO"):
        assert status(address, token, method) == 405, method
    port = urlsplit(address).port
    for host in ("example.org", f"example.org:{port}", "127.0.0.1", "", "localhost"):
        assert status(address, token, Host=host) == 403, host
    assert status(address, token, Host=f"localhost:{port}") == 200
    assert status(address, token, **{"Sec-Fetch-Site": "cross-site"}) == 403


@pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="needs Linux")
def test_it_listens_on_the_loopback_address_alone(
    viewer: tuple[str, subprocess.Popen[str], Path],
) -> None:
    address, process, _ = viewer
    port = urlsplit(address).port or 0
    listening = [
        line.split()[1]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]
    assert os.getpid() != process.pid
