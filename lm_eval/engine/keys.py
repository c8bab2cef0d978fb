"""What makes two requests the same request: kind, exact arguments, repeat, and seed where sampled.

A digest stands for what is asked; a key adds which repeat of it is meant and, where the answer is
drawn, by which seed. Neither says anything of the model; the store keeps every model's answers
apart. xxHash is a checksum, not a seal: keys tell requests apart, they do not keep anybody from
forging one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import xxhash

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: Bytes of a key.
SIZE = 16

_digest: Callable[[bytes], bytes] = xxhash.xxh3_128_digest


def note_digests(requests: Iterable[Instance]) -> None:
    """Note in every request the digest of its kind and arguments.

    Arguments that have no exact text form, an image for instance, have none; such requests are
    asked every time. Requests of one document come one after another and mostly share their
    context, so the last one's hash is kept at hand.
    """
    kind, context, opening = "", cast("Any", None), b""
    digest = _digest
    for request in requests:
        arguments = request.arguments if type(request.arguments) is tuple else request.args
        if arguments[0] is not context or request.request_type != kind:
            kind, context = request.request_type, arguments[0]
            opening = kind.encode() + digest(_text(context)) if isinstance(context, str) else b""
        if len(arguments) == 2 and type(arguments[1]) is str:  # nearly all of them
            asked = opening + arguments[1].encode("utf-8", "surrogatepass")
            request.set_digest(digest(asked) if opening else None)
            continue
        try:
            rest = (_piece(part) if type(part) is str else _table(part) for part in arguments[1:])
            request.set_digest(digest(opening + b"".join(rest)) if opening else None)
        except (TypeError, ValueError):
            request.set_digest(None)


def request_keys(asked: Iterable[Instance], seed: object) -> list[bytes | None]:
    """A key for each request; a repeated one, which stands here several times, is numbered."""
    keys: list[bytes | None] = []
    last, repeat = None, 0
    drawn_by = f"\x00seed {seed}".encode()
    for request in asked:
        digest = request.digest
        if request is last:
            repeat += 1
        else:
            last, repeat = request, 0
        if digest is not None and (repeat or request.request_type == "generate_until"):
            if _is_drawn(request):
                digest = _digest(digest + drawn_by)
            if repeat:
                digest = _digest(digest + b"\x00repeat %d" % repeat)
        keys.append(digest)
    return keys


def prompts_hash(requests: Sequence[Instance]) -> str:
    """One hash for all requests of a task, in order: it changes with any character of them."""
    parts = [r.digest if r.digest is not None else _readable(r) for r in requests]
    return str(xxhash.xxh3_128_hexdigest(b"".join(parts)))


def _readable(request: Instance) -> bytes:
    """What can be read of a request that holds more than text; pictures differ by their address."""
    return json.dumps(request.args, default=lambda part: type(part).__name__).encode()


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _piece(text: str) -> bytes:
    """One text of several, with where it ends."""
    encoded = _text(text)
    return b"\x01%d:" % len(encoded) + encoded


def _table(settings: Any) -> bytes:
    """Generation settings in one spelling."""
    return b"\x00" + json.dumps(settings, sort_keys=True, ensure_ascii=True).encode()


def _is_drawn(request: Instance) -> bool:
    return any(is_sampled(part) for part in request.args[1:])


def is_sampled(settings: Any) -> bool:
    """Whether an answer under these settings is drawn, so that another draw may differ."""
    if not isinstance(settings, Mapping):
        return False
    if "do_sample" in settings:
        return bool(settings["do_sample"])
    return bool(settings.get("temperature"))
