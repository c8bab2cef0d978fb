"""Digests and keys by which the answers to requests are found in a store.

A digest is a hash of a request's type and exact arguments. A key is the digest combined with the
number of the repeat and, for sampled answers, the seed. Two requests with the same key have the
same answer. Keys do not include the model: the store keeps the answers of each model separately.
xxHash is not a cryptographic hash. It distinguishes requests, but does not protect against forged
collisions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import xxhash

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: Length of a key in bytes.
KEY_SIZE = 16

_digest: Callable[[bytes], bytes] = xxhash.xxh3_128_digest


def set_digests(requests: Iterable[Instance]) -> None:
    """Sets the `digest` of every request: a hash (16 bytes) of its type and arguments.

    The digest is None if the first argument is not text, or if another one is neither text nor JSON
    data (an image, for example). The answers to these requests are not stored.
    """
    # Consecutive requests, those of one document, mostly share their context. Its hash is reused
    # until the context changes.
    kind, context, opening = "", cast("Any", None), b""
    digest = _digest
    for request in requests:
        arguments = request.arguments if type(request.arguments) is tuple else request.args
        if arguments[0] is not context or request.request_type != kind:
            kind, context = request.request_type, arguments[0]
            opening = kind.encode() + digest(_utf8(context)) if isinstance(context, str) else b""
        if len(arguments) == 2 and type(arguments[1]) is str:  # nearly all of them
            content = opening + arguments[1].encode("utf-8", "surrogatepass")
            request.set_digest(digest(content) if opening else None)
            continue
        try:
            rest = (
                _length_prefixed(part) if type(part) is str else _canonical_json(part)
                for part in arguments[1:]
            )
            request.set_digest(digest(opening + b"".join(rest)) if opening else None)
        except (TypeError, ValueError):
            request.set_digest(None)


def forget_digests(requests: Iterable[Instance]) -> None:
    """Removes the digests, which are only needed to store answers and to compute `prompts_hash`."""
    for request in requests:
        request.set_digest(None)


def request_keys(requests: Iterable[Instance], seed: object) -> list[bytes | None]:
    """Returns the store key (`KEY_SIZE` bytes) of each request; None for one without a digest.

    Call `set_digests` before. `requests` is expanded (`repeats.repeated`): a request with repeats
    occurs several times in a row, and each occurrence gets its own key. `seed` is part of the key
    if the answer is sampled (`is_sampled`).
    """
    keys: list[bytes | None] = []
    last, repeat = None, 0
    seed_suffix = f"\x00seed {seed}".encode()
    for request in requests:
        digest = request.digest
        if request is last:
            repeat += 1
        else:
            last, repeat = request, 0
        if digest is not None and (repeat or request.request_type == "generate_until"):
            if _request_is_sampled(request):
                digest = _digest(digest + seed_suffix)
            if repeat:
                digest = _digest(digest + b"\x00repeat %d" % repeat)
        keys.append(digest)
    return keys


def prompts_hash(requests: Sequence[Instance]) -> str:
    """Returns a hash (32 hexadecimal digits) of all requests of a task, in order.

    It changes if any character of a prompt changes. Of an argument that is neither text nor JSON
    data, such as an image, only the type counts.
    """
    parts = [r.digest if r.digest is not None else _fallback_bytes(r) for r in requests]
    return str(xxhash.xxh3_128_hexdigest(b"".join(parts)))


def _fallback_bytes(request: Instance) -> bytes:
    """Returns bytes to hash for a request without a digest: its arguments as JSON.

    Objects that JSON cannot represent are replaced by their type name, because their repr contains
    a memory address.
    """
    return json.dumps(request.args, default=lambda part: type(part).__name__).encode()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _length_prefixed(text: str) -> bytes:
    """Returns `text` as UTF-8 after its length, so that joined strings stay unambiguous."""
    encoded = _utf8(text)
    return b"\x01%d:" % len(encoded) + encoded


def _canonical_json(settings: Any) -> bytes:
    """Returns generation settings as JSON with sorted keys, so that equal settings hash equally.

    Raises `TypeError` or `ValueError` if they are not JSON data.
    """
    return b"\x00" + json.dumps(settings, sort_keys=True, ensure_ascii=True).encode()


def _request_is_sampled(request: Instance) -> bool:
    return any(is_sampled(part) for part in request.args[1:])


def is_sampled(settings: Any) -> bool:
    """Returns whether generation with these settings samples, so that answers depend on the seed.

    `do_sample` decides if it is set; otherwise a temperature other than 0 samples (a missing one
    counts as 0). `settings` that are not a mapping do not sample.
    """
    if not isinstance(settings, Mapping):
        return False
    if "do_sample" in settings:
        return bool(settings["do_sample"])
    return bool(settings.get("temperature"))
