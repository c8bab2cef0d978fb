"""Data sets from the hub: asked only when it can be reached, refusals put into words."""

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

from lm_eval.data.library import explain, load_dataset, reasons
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError

#: Seconds in which the hub must take a connection. The library by itself tries for half a minute.
PATIENCE = 2.0
#: Seconds in which it must answer, once connected.
SLOW_LINE = 8.0
MIRROR_REMEDY = (
    "Where there is a network, `lm-eval fetch --tasks … --to DIR` makes a mirror of it; "
    "then give --data_dir DIR (or LMEVAL_DATA_DIR) here."
)
_NO_NETWORK = {"OfflineModeIsEnabled", "ConnectionError", "ConnectError", "ProxyError"}
_NO_NETWORK |= {"ConnectTimeout", "LocalEntryNotFoundError"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def load_from_hub(path: str, name: str | None, kwargs: Mapping[str, Any]) -> Splits:
    """A data set by its hub name, from the network or, without one, from the library's cache."""
    shown = f"{path} ({name})" if name else path
    away = unreachable(endpoint())
    if away and not _cached(path, kwargs.get("cache_dir")):
        raise DataError(f"the data set {shown} is not on this machine, and {away}. {MIRROR_REMEDY}")
    try:
        with _offline() if away else contextlib.nullcontext():
            loaded = load_dataset(path, name, kwargs)
    except Exception as error:
        raise DataError(_explained(path, shown, kwargs, error, away)) from error
    return Splits.of(Origin("hub", path, name, revision_of(loaded)), loaded)


def _explained(
    path: str, shown: str, kwargs: Mapping[str, Any], error: Exception, away: str | None
) -> str:
    """Why the hub did not give the data set, and what can be done about it."""
    kinds = reasons(error)
    told = " ".join(str(problem) for problem in kinds.values())
    page = f"{endpoint()}/datasets/{path}"
    if "GatedRepoError" in kinds or "gated dataset" in told:
        return (
            f"the data set {shown} is gated: its owner asks you to accept a licence. Do so at "
            f"{page}, then log in (`hf auth login`, or HF_TOKEN)."
        )
    if "RevisionNotFoundError" in kinds or "Revision '" in told:
        return f"the data set {shown} has no revision {kwargs.get('revision')!r}; see {page}."
    if {"RepositoryNotFoundError", "DatasetNotFoundError"} & kinds.keys():
        return (
            f"there is no data set {shown} on the hub, or it is private. Check dataset_path; if "
            "it is yours, log in (`hf auth login`, or HF_TOKEN)."
        )
    if away or _NO_NETWORK & kinds.keys() or "LocalEntryNotFoundError" in told:
        away = away or "the hub cannot be reached"
        return f"the data set {shown} cannot be loaded, and {away}. {MIRROR_REMEDY}"
    return f"the data set {shown} cannot be loaded: {explain(error)}"


def revision_of(loaded: Mapping[Any, Any]) -> str | None:
    """The commit a data set was read at: it stands in the names of what was downloaded, and in
    that of the folder it is cached in.
    """
    for split in loaded.values():
        names = list(getattr(getattr(split, "info", None), "download_checksums", None) or ())
        names += [file["filename"] for file in getattr(split, "cache_files", None) or ()]
        for text in names:
            commit = _COMMIT.search(str(text))
            if commit:
                return commit[0]
    return None


# -- can it be reached? -----------------------------------------------------------------------


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def address_of(file: str) -> str:
    """The server that has a file; the hub's own files are named `hf://…`."""
    return endpoint() if file.startswith("hf://") else file


def unreachable(url: str) -> str | None:
    """Why a server cannot be asked, or None if it can. Answers within `PATIENCE`."""
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(variable, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"{variable} forbids asking for it"
    return _connect(url)


@cache
def _connect(url: str) -> str | None:
    """Try once; in a thread, because looking up a name cannot be hurried."""
    host = urlsplit(url).hostname or url
    outcome: queue.Queue[str | None] = queue.Queue()
    connected = threading.Event()

    def attempt() -> None:
        try:
            outcome.put(_ask(url, host, connected))
        except (OSError, ValueError) as error:
            outcome.put(str(getattr(error, "strerror", None) or error))

    threading.Thread(target=attempt, daemon=True).start()
    try:
        reason = outcome.get(timeout=PATIENCE)
    except queue.Empty:
        reason = f"no answer in {PATIENCE:g} seconds"
        if connected.is_set():  # a slow line is no missing one
            with contextlib.suppress(queue.Empty):
                reason = outcome.get(timeout=SLOW_LINE)
    return f"{host} cannot be reached ({reason})" if reason else None


def _ask(url: str, host: str, connected: threading.Event) -> str | None:
    """One small question to a server, through the proxy where one is set; None if it answered.

    The library's own session asks it: it knows the certificates and proxies that will be used.
    """
    import urllib.request

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        gate = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = gate.hostname or "", gate.port or 80
    socket.create_connection((host, port), PATIENCE).close()
    connected.set()

    from huggingface_hub import get_session

    try:
        answer = get_session().head(f"{parts.scheme}://{parts.netloc}", timeout=SLOW_LINE)
    except Exception as error:
        return explain(error)
    return f"it answers {answer.status_code}" if answer.status_code >= 500 else None


def _cached(path: str, cache_dir: Any) -> bool:
    """Whether the library may have it from an earlier time. A cheap look, before importing it."""
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
    """Keep the library from asking a hub that does not answer, again and again."""
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
