"""Asks the server of `lm-eval view` without a browser; tests/browser drives it in one."""

from __future__ import annotations

import errno
import http.client
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from lm_eval.errors import OutputError
from lm_eval.runs.folder import RunFolder
from lm_eval.viewer import catalog as catalog_module
from lm_eval.viewer.catalog import Catalog
from lm_eval.viewer.server import ViewServer
from tests.comparison_runs import run, write_tasks
from tests.conftest import Folder


@pytest.fixture
def root(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with two finished runs, `good` and `bad`."""
    write_tasks(folder)
    place = tmp_path / "served"
    place.mkdir()
    for name in ("good", "bad"):
        shutil.copytree(run(folder, name, range(7), "numbers", "--log_samples"), place / name)
    # The runs were made by commands, which show log messages themselves; `caplog` has to get them.
    monkeypatch.setattr(logging.getLogger("lm_eval"), "propagate", True)
    return place


@pytest.fixture
def server(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ViewServer]:
    monkeypatch.setattr(catalog_module, "SCAN_SECONDS", -1.0)
    with ViewServer(Catalog(root)) as started:
        Thread(target=started.serve_forever, args=(0.05,), daemon=True).start()
        yield started
        started.shutdown()


def ask(server: ViewServer, path: str = "", **headers: str) -> tuple[int, str]:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", path if path.startswith("/") else parts.path + path, headers=headers)
    reply = connection.getresponse()
    found = reply.status, reply.read().decode()
    connection.close()
    return found


def ids(server: ViewServer) -> dict[str, str]:
    return {one.place.partition("/")[0]: one.id for one in server.catalog.entries()}


def test_pages_and_progress_are_served_and_nothing_else(server: ViewServer) -> None:
    known = ids(server)
    assert sorted(known) == ["bad", "good"]
    assert ask(server)[0] == 200
    status, page = ask(server, f"run/{known['good']}+{known['bad']}/")
    assert status == 200
    assert "application/gzip" in page
    state = json.loads(ask(server, f"run/{known['good']}/progress")[1])
    assert [one["state"] for one in state["runs"]] == ["finished"]
    for path in ("/", "run.json", "good/", "../", f"run/{known['good']}/../", "?x", "run/x/"):
        assert ask(server, path)[0] == 404, path
    assert ask(server, Host="example.org")[0] == 403


@pytest.mark.parametrize("content", ["", "[]", "7", '{"format": 2, "runs": 7}', "\x00"])
def test_a_broken_run_does_not_hide_the_others(
    server: ViewServer, root: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (record,) = root.glob("bad/**/run.json")
    record.write_text(content)
    assert ask(server)[0] == 200
    known = ids(server)
    assert "good" in known
    assert ask(server, f"run/{known['good']}/")[0] == 200
    (warning,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warning.startswith(f"Runs are left out. {record}")


def test_folders_that_cannot_be_read_are_named_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Permissions do not stop root, as whom tests may run, so the errors are simulated."""
    monkeypatch.setattr(catalog_module, "SCAN_SECONDS", -1.0)
    plain_scan, plain_records = os.scandir, RunFolder.records

    def scandir(path: Any) -> Any:
        if Path(path) == root / "bad":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return plain_scan(path)

    def records(self: RunFolder) -> Any:
        if self.path.is_relative_to(root / "good"):
            raise PermissionError(errno.EACCES, "Permission denied", str(self.path))
        return plain_records(self)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(RunFolder, "records", records)
    catalog = Catalog(root)
    for _ in range(3):
        assert catalog.entries() == []
    (good,) = root.glob("good/**/run.json")
    assert sorted(one.getMessage() for one in caplog.records) == [
        f"Runs are left out. {folder}: Permission denied." for folder in (root / "bad", good.parent)
    ]


def test_a_broken_results_file_is_named_on_the_page(server: ViewServer, root: Path) -> None:
    (file,) = root.glob("bad/**/results_*.json")
    file.write_text("{")
    status, page = ask(server, f"run/{ids(server)['bad']}/")
    assert status == 200
    assert file.name in page


def test_runs_can_be_deleted_while_they_are_served(server: ViewServer, root: Path) -> None:
    known = ids(server)
    shutil.rmtree(root / "bad")
    assert ask(server)[0] == 200
    assert ask(server, "progress")[0] == 200
    assert ask(server, f"run/{known['bad']}/")[0] == 404
    shutil.rmtree(root)
    assert ask(server)[0] == 200
    assert ids(server) == {}


def test_a_run_that_was_deleted_since_the_last_look_is_no_error(
    server: ViewServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "SCAN_SECONDS", 1000.0)
    known = ids(server)
    shutil.rmtree(root / "bad")
    for path in ("", "progress", f"run/{known['bad']}/", f"run/{known['bad']}/progress"):
        assert ask(server, path)[0] == 200, path


def test_a_record_whose_runs_are_no_list_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": 2, "runs": 7}')
    with pytest.raises(OutputError, match="not a complete record"):
        RunFolder(tmp_path).records()
