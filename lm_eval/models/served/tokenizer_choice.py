"""Finds the tokenizer of a model from what its server tells."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.errors import ModelError
from lm_eval.models.planned.tokenizers import TokenCoder, load_tokenizer
from lm_eval.models.served.client import Client
from lm_eval.models.served.retry import parsed_body
from lm_eval.models.served.server_facts import ServerFacts
from lm_eval.models.served.tokenizers import RemoteTokenizer
from lm_eval.models.served.transport import BrokenReplyError, TimedOutError, UnreachableError

logger = logging.getLogger(__name__)

#: The names of the tokens at the ends of a text, as servers tell them.
_ENDS = ("bos_token", "eos_token")


@dataclass(frozen=True)
class TokenizerFinder:
    """Finds the tokenizer of one model on one server.

    Attributes:
        make_client: creates the client of the server's own tokenizer, which is used during the run.
        make_probe_client: creates a client that does not retry for long.
        root: the root of the server.
        model: the name of the model on the server.
        settings: passed to transformers with a tokenizer that is loaded here.
    """

    make_client: Callable[[], Client]
    make_probe_client: Callable[[], Client]
    root: str
    model: str
    settings: Mapping[str, Any]

    def find(self, facts: ServerFacts) -> TokenCoder | None:
        """Returns the tokenizer of a model folder on this machine, of the server, or of the hub.

        Folder and hub name are what the server reports, or the model's name. None if there is none
        of these. Raises `ModelError` if the tokenizer of a folder cannot be loaded.
        """
        names = [str(name) for name in (facts.reported.get("root"), self.model) if name]
        for name in names:
            if Path(name).expanduser().is_dir():
                return load_tokenizer(name, **self.settings)
        if facts.tokenizes:
            return self.remote(
                folder="/extras" if facts.name == "llama-cpp-python" else "",
                special_tokens="/props" if facts.name == "llama-server" else "/tokenizer_info",
            )
        for name in names:
            if name.count("/") == 1 and not name.startswith("/"):
                try:
                    return load_tokenizer(name, **self.settings)
                except ModelError as error:
                    logger.info("%s", error)
        return None

    def remote(self, folder: str = "", special_tokens: str = "/tokenizer_info") -> TokenCoder:
        """Returns the tokenizer of the server, at the path `folder` + `/tokenize`.

        `special_tokens` is the path at which the server may tell its special tokens.
        """
        client = self.make_client()
        if folder:
            return RemoteTokenizer(client, self.root, self.model, folder=folder)
        info = self._told_at(self.root + special_tokens)
        bos, eos = (token if isinstance(token := info.get(name), str) else None for name in _ENDS)
        return RemoteTokenizer(client, self.root, self.model, bos, eos)

    def _told_at(self, url: str) -> Mapping[str, Any]:
        """Returns what a server tells at a path that is optional; empty if it tells nothing."""
        try:
            reply = self.make_probe_client().get(url)
        except (UnreachableError, BrokenReplyError, TimedOutError) as error:
            logger.debug("GET %s: %s", url, error)
            return {}
        found = parsed_body(reply) if reply.ok else None
        return found if isinstance(found, Mapping) else {}
