"""What makes two requests the same request: kind, exact arguments, repeat, and seed where sampled.

The key says nothing of the model; the store keeps every model's answers apart. xxHash is a
checksum, not a seal: keys tell requests apart, they do not keep anybody from forging one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: Bytes of a key.
SIZE = 16

Arguments = Sequence[Any]


def key_maker(kind: str, seed: object) -> Callable[[Arguments, int], bytes | None]:
    """A function from a request's arguments and the number of its repeat to its key.

    It gives None for arguments that have no exact text form, an image for instance; such requests
    are asked every time. Requests of one document come one after another and mostly share their
    context, so the last one's hash is kept at hand.
    """
    opening = kind.encode()
    digest = xxhash.xxh3_128_digest
    last: str | None = None
    last_hash = b""

    def key(arguments: Arguments, repeat: int = 0) -> bytes | None:
        nonlocal last, last_hash
        context = arguments[0]
        if context is not last:
            if not isinstance(context, str):
                return None
            last = context
            last_hash = opening + digest(context.encode("utf-8", "surrogatepass"))
        rest = last_hash
        for argument in arguments[1:]:
            if isinstance(argument, str):
                rest += argument.encode("utf-8", "surrogatepass")
            else:
                try:
                    rest += _settings(argument, seed)
                except (TypeError, ValueError):
                    return None
        return digest(rest if not repeat else rest + b"\x00repeat %d" % repeat)

    return key


def requests_hash(requests: Iterable[Instance]) -> str:
    """One hash for all requests of a task, in order: it changes with any character of them."""
    makers: dict[str, Callable[[Arguments, int], bytes | None]] = {}
    total = xxhash.xxh3_128()
    for request in requests:
        kind = request.request_type
        if kind not in makers:
            makers[kind] = key_maker(kind, None)
        total.update(makers[kind](request.args, 0) or repr(request.args).encode())
    return total.hexdigest()


def _settings(settings: Any, seed: object) -> bytes:
    """Generation settings in one spelling, and the seed where the answer is drawn by it."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
    return f"\x00{text}{seed if is_sampled(settings) else ''}".encode()


def is_sampled(settings: Any) -> bool:
    """Whether an answer under these settings is drawn, so that another draw may differ."""
    if not isinstance(settings, Mapping):
        return False
    if "do_sample" in settings:
        return bool(settings["do_sample"])
    return bool(settings.get("temperature"))
