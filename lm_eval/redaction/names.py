"""Decides by its name whether a setting, a header or an environment variable is a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

#: Words that make a name that of a secret, wherever they stand in it.
_SECRET_WORDS = {
    *("password", "passwords", "passwd", "pwd", "passphrase", "passcode", "secret", "secrets"),
    *("credential", "credentials", "authorization", "cookie", "cookies", "bearer", "jwt"),
}
#: The ends of names that are written in one word, such as `clientsecret`.
_SECRET_ENDS = re.compile(
    r"(password|passwd|passphrase|passcode|secret|credentials?|(api|access|private|secret)keys?"
    r"|(auth|access|api|bearer|refresh|session|hf|hub|security|sas)tokens?)$"
)
#: Words before `key` that make it a secret. Other keys are ordinary: `sort_key`, `answer_key`.
_KEY_WORDS = {
    *("api", "access", "secret", "private", "auth", "app", "application", "account", "client"),
    *("subscription", "master", "encryption", "signing", "service", "license", "ssh", "ssl", "tls"),
    *("openai", "anthropic", "claude", "azure", "aws", "gcp", "google", "gemini", "hf", "wandb"),
    *("huggingface", "cohere", "mistral", "groq", "together", "deepseek", "openrouter", "nvidia"),
    *("perplexity", "fireworks", "replicate", "xai", "voyage", "jina", "litellm", "vertex"),
}
#: Words before `tokens` that make them secret: `max_tokens` is ordinary.
_TOKEN_WORDS = {"access", "auth", "api", "bearer", "refresh", "session", "hf", "hub", "security"}
#: Words before `token` that make it one of a text: `eos_token`.
_TEXT_TOKEN_WORDS = {
    *("eos", "bos", "pad", "padding", "unk", "sep", "cls", "mask", "eot", "eom", "fim", "stop"),
    *("start", "end", "begin", "first", "last", "next", "previous", "special", "prefix", "suffix"),
    *("middle", "separator", "delimiter", "newline", "space", "think", "thinking", "reasoning"),
    *("image", "audio", "video", "vision", "lang", "language", "answer", "choice", "question"),
    *("prompt", "input", "output", "system", "assistant", "turn", "tool", "call", "placeholder"),
    *("decoder", "encoder", "max", "min", "num", "n", "per", "new", "added", "extra", "by", "word"),
    *("byte", "role", "context", "target", "source", "generated", "gen", "single", "each", "sub"),
}
#: Words at the end of a name that describe a secret without being one: `api_key_env`.
_ABOUT = {
    *("env", "environment", "variable", "var", "file", "path", "dir", "folder", "name", "id"),
    *("ids", "url", "uri", "type", "count", "counts", "length", "len", "limit", "size", "policy"),
    *("format", "field", "column", "columns", "required", "provider", "ttl", "sock", "agent"),
    *("hash", "store", "parallelism", "usage", "num", "number"),
}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]+")
#: Texts that are no secrets: special tokens of a tokenizer, templates, references to variables.
_NO_SECRET = re.compile(r"[\s<\[{|$…*]|^$")
_LOOKS_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")

Kind = Literal["strong", "token", "key", "header"]


@lru_cache(maxsize=4096)
def _kind(name: str) -> Kind | None:
    """Returns which kind of secret a name denotes, or None if it denotes none.

    The value decides about the kinds other than `strong`, see `is_secret`.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if _SECRET_WORDS & set(words) or _SECRET_ENDS.search("".join(words)):
        return "strong"
    if ("api", "key") in pairwise(words):
        return "strong"
    if last in ("key", "keys"):
        return "strong" if before in _KEY_WORDS else "key" if not before else None
    if last == "tokens":
        return "token" if before in _TOKEN_WORDS else None
    if last == "token":
        return None if before in _TEXT_TOKEN_WORDS else "token"
    if last in ("header", "headers", "auth", "authentication"):
        return "header"
    return None


def is_secret(name: object, value: Any) -> bool:
    """Returns whether a setting of this name and value is a secret.

    Upper case, `-`, `_`, `.` and camel case make no difference. Of a name such as `user_token` the
    value decides: `<|user|>` is a special token of a tokenizer. Booleans, None and empty values are
    no secrets, and numbers only for names such as `password`.
    """
    if value is None or isinstance(value, bool) or not isinstance(name, str):
        return False
    kind = _kind(name)
    if kind is None:
        return False
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if kind == "strong":
        return isinstance(value, (int, float)) or any(texts_in(value))
    if kind == "header":
        return bool(value) and (
            isinstance(value, (Mapping, list, tuple)) or (isinstance(value, str) and ":" in value)
        )
    if isinstance(value, (list, tuple)):
        return any(is_secret(name, one) for one in value)
    if not isinstance(value, str) or _NO_SECRET.search(value):
        return False
    return kind == "token" or _LOOKS_RANDOM.fullmatch(value) is not None


@lru_cache(maxsize=4096)
def is_secret_variable(name: str) -> bool:
    """Returns whether the environment variable `name` contains a secret, judging by its name."""
    if name in ("PWD", "OLDPWD"):  # the working directory, set by shells
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    return _kind(name) is not None or (len(words) > 1 and words[-1] == "key")


#: A name before `=` or `:`, as in `api_key=…` and `"Authorization": …`.
_NAMES = re.compile(r"[A-Za-z][\w.-]*(?=[\"']?\s*[=:])")


def mentions_secret(text: str) -> bool:
    """Returns whether a text of the form `name=value` or JSON contains the name of a secret."""
    return any(_kind(name) is not None for name in _NAMES.findall(text))


def texts_in(value: Any) -> list[str]:
    """Returns all texts in a value: itself, or those in its items at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes):
        return [value.decode(errors="replace")]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in texts_in(item)]
    if isinstance(value, Sequence):
        return [text for item in value for text in texts_in(item)]
    return []
