"""Loads datasets from the Hugging Face Hub.

The hub is contacted only if it can be reached. Its errors are turned into messages with a remedy.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lm_eval.data.library import error_chain, explain, load_dataset
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError

#: Seconds to wait for a connection to the hub. The library itself would retry for half a minute.
CONNECT_TIMEOUT = 2.0
#: Seconds to wait for a response of the hub, once connected.
RESPONSE_TIMEOUT = 8.0
MIRROR_REMEDY = (
    "On a machine with network access, `lm-eval fetch --tasks … --to DIR` downloads it into a "
    "mirror folder; copy that folder here and pass --data_dir DIR (or set LMEVAL_DATA_DIR)."
)
#: Names of exception classes that mean that the hub could not be reached.
_NO_NETWORK = {"OfflineModeIsEnabled", "ConnectionError", "ConnectError", "ProxyError"}
_NO_NETWORK |= {"ConnectTimeout", "LocalEntryNotFoundError"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def load_from_hub(path: str, name: str | None, kwargs: Mapping[str, Any]) -> Splits:
    """Returns the splits of a dataset on the hub.

    If the hub cannot be reached, the cache of the `datasets` library is used.

    Args:
        path: the name on the hub (`org/name`).
        name: the configuration of the dataset, if it has several.
        kwargs: further arguments of `datasets.load_dataset`.

    Raises:
        DataError: if the dataset cannot be loaded. The message gives the reason and the remedy.
    """
    shown = f"{path} ({name})" if name else path
    problem = unreachable(endpoint())
    if problem and not _may_be_cached(path, kwargs.get("cache_dir")):
        raise DataError(
            f"the dataset {shown} is not on this machine, and {problem}. {MIRROR_REMEDY}"
        )
    try:
        with _offline() if problem else contextlib.nullcontext():
            loaded = load_dataset(path, name, kwargs)
    except Exception as error:
        raise DataError(_error_message(path, shown, kwargs, error, problem)) from error
    return Splits.of(Origin("hub", path, name, revision_of(loaded)), loaded)


def _error_message(
    path: str, shown: str, kwargs: Mapping[str, Any], error: Exception, problem: str | None
) -> str:
    """Returns why loading a dataset from the hub failed, and the remedy.

    `path` is its name, and `shown` the name with the configuration. `kwargs` are the arguments of
    `load_dataset`, and `error` is what it raised. `problem` is why the hub cannot be reached, or
    None.
    """
    causes = error_chain(error)
    text = " ".join(str(cause) for cause in causes.values())
    page = f"{endpoint()}/datasets/{path}"
    if "GatedRepoError" in causes or "gated dataset" in text:
        return (
            f"the dataset {shown} is gated: its owner requires you to accept a license. Accept it "
            f"at {page}, then log in (`hf auth login`, or set HF_TOKEN)."
        )
    if "RevisionNotFoundError" in causes or "Revision '" in text:
        return (
            f"the dataset {shown} has no revision {kwargs.get('revision')!r}; see {page} for its "
            "revisions."
        )
    if {"RepositoryNotFoundError", "DatasetNotFoundError"} & causes.keys():
        return (
            f"there is no dataset {shown} on the hub, or it is private. Check dataset_path; if you "
            "have access to it, log in (`hf auth login`, or set HF_TOKEN)."
        )
    if problem or _NO_NETWORK & causes.keys() or "LocalEntryNotFoundError" in text:
        problem = problem or "the hub cannot be reached"
        return f"the dataset {shown} cannot be loaded, and {problem}. {MIRROR_REMEDY}"
    return f"the dataset {shown} cannot be loaded: {explain(error)}"


def revision_of(loaded: Mapping[Any, Any]) -> str | None:
    """Returns the commit hash at which a dataset was read; None if unknown.

    It is found in the names of the downloaded files and of the cache folder.
    """
    for split in loaded.values():
        names = list(getattr(getattr(split, "info", None), "download_checksums", None) or ())
        names += [file["filename"] for file in getattr(split, "cache_files", None) or ()]
        for text in names:
            commit = _COMMIT.search(str(text))
            if commit:
                return commit[0]
    return None


# -- whether the hub can be reached ----------------------------------------------------------


def endpoint() -> str:
    """Returns the URL of the hub, without a slash at the end.

    It is that in the environment variable `HF_ENDPOINT`, or https://huggingface.co.
    """
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def address_of(file: str) -> str:
    """Returns a URL by which `unreachable` can test the server of a remote file.

    For `hf://…` this is the base URL of the hub (`endpoint()`), not the URL of the file. Any other
    `file` is returned unchanged.
    """
    return endpoint() if file.startswith("hf://") else file


def unreachable(url: str) -> str | None:
    """Returns why the server of `url` cannot be used, as part of a sentence; None if it can.

    Reasons are an environment variable for offline mode, or a failed connection. A server that
    accepts no connection is detected within `CONNECT_TIMEOUT` seconds.
    """
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(variable, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"the environment variable {variable} forbids downloads"
    return _connection_problem(url)


@cache
def _connection_problem(url: str) -> str | None:
    """Returns why a connection to the server of `url` fails; None if it succeeds. Tried only once.

    The attempt runs in a thread, because a DNS lookup has no timeout.
    """
    host = urlsplit(url).hostname or url
    outcome: queue.Queue[str | None] = queue.Queue()
    connected = threading.Event()

    def attempt() -> None:
        try:
            outcome.put(_send_request(url, host, connected))
        except (OSError, ValueError) as error:
            outcome.put(str(getattr(error, "strerror", None) or error))

    threading.Thread(target=attempt, daemon=True).start()
    try:
        reason = outcome.get(timeout=CONNECT_TIMEOUT)
    except queue.Empty:
        reason = f"no response within {CONNECT_TIMEOUT:g} seconds"
        if connected.is_set():  # a slow connection is still a connection
            with contextlib.suppress(queue.Empty):
                reason = outcome.get(timeout=RESPONSE_TIMEOUT)
    return f"{host} cannot be reached ({reason})" if reason else None


def _send_request(url: str, host: str, connected: threading.Event) -> str | None:
    """Sends a HEAD request to a server; returns why it failed, or None if the server responded.

    A response with status 500 or above is a failure. Connects to the proxy instead of `host` if one
    is configured. Sets `connected` once the TCP connection is established; raises `OSError` if it
    cannot be. The request uses the session of `huggingface_hub`, which has the same certificates
    and proxies as the download.
    """
    import urllib.request

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        gate = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = gate.hostname or "", gate.port or 80
    socket.create_connection((host, port), CONNECT_TIMEOUT).close()
    connected.set()

    from huggingface_hub import get_session

    try:
        answer = get_session().head(f"{parts.scheme}://{parts.netloc}", timeout=RESPONSE_TIMEOUT)
    except Exception as error:
        return explain(error)
    return f"HTTP status {answer.status_code}" if answer.status_code >= 500 else None


def _may_be_cached(path: str, cache_dir: Any) -> bool:
    """Returns whether a dataset may be in the cache of the `datasets` library.

    A quick look at folder names, because importing the library is slow. It is also true if another
    dataset of the same owner (or, without owner, with the same first letter) is there. `cache_dir`
    is the folder of the cache, or None for the default.
    """
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    home = Path(os.environ.get("HF_HOME", cache_home))
    built = Path(cache_dir or os.environ.get("HF_DATASETS_CACHE", home / "datasets")).expanduser()
    files = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    owner, _, name = path.rpartition("/")
    start = f"{owner}___" if owner else name[:1]
    return (files / f"datasets--{path.replace('/', '--')}").is_dir() or any(
        entry.name.lower().startswith(start.lower()) for entry in _entries(built)
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Switches the libraries to offline mode inside the `with` block.

    Otherwise they would retry a hub that does not respond.
    """
    import datasets
    import huggingface_hub

    switches = (datasets.config, huggingface_hub.constants)
    before = [module.HF_HUB_OFFLINE for module in switches]
    for module in switches:
        module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, was in zip(switches, before, strict=True):
            module.HF_HUB_OFFLINE = was
