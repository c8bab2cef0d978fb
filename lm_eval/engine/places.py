"""Which answer belongs to which document: a small table a task, kept with the run.

Answers are found by their request. A prompt that only the model could write, by its chat template,
cannot be written again without it, and a prompt may have been changed since; the table still knows
the document and the place of each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from lm_eval.engine.keys import SIZE, request_keys
from lm_eval.engine.repeats import repeated

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: Columns by name: `keys`, for each of them `document`, `place` and a hash of the `continuation`,
#: and `tokens` where counted.
Places = Mapping[str, "np.ndarray[Any, Any]"]

_NO_KEY = bytes(SIZE)
_hash: Callable[[bytes], int] = xxhash.xxh3_64_intdigest


def places_of(requests: Sequence[Instance], seed: object) -> dict[str, np.ndarray[Any, Any]]:
    """The table of one task's requests."""
    asked = repeated(requests)
    keys: list[Any] = request_keys(asked, seed)
    if None in keys:
        keys = [key or _NO_KEY for key in keys]
    documents, places = [], []
    for request in asked:  # once over all of them: it is memory that takes the time
        documents.append(request.doc_id)
        places.append(request.idx)
    lengths = [request.tokens for request in asked] if asked[0].tokens is not None else []
    try:  # nearly always plain texts: without a call for each, in half the time
        continuations = [_hash(request.arguments[1].strip().encode()) for request in asked]
    except (AttributeError, IndexError, UnicodeEncodeError):
        continuations = [continuation_hash(request) for request in asked]
    return {
        "keys": np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, SIZE),
        "document": np.array(documents, dtype=np.int64),
        "place": np.array(places, dtype=np.int32),
        "tokens": np.array(lengths, dtype=np.int32),
        "continuation": np.array(continuations, dtype=np.uint64),
    }


def continuation_hash(request: Instance) -> int:
    """Returns a hash of the text that is scored, by which a choice is known again; 0 without one.

    The space around it does not count: it moves between context and continuation.
    """
    arguments = request.arguments
    if request.request_type != "loglikelihood" or len(arguments) < 2:
        return 0
    return _hash(str(arguments[1]).strip().encode("utf-8", "surrogatepass"))


def continuations_by_place(places: Places) -> dict[tuple[int, int], int]:
    """Returns the hash of what was scored at each document and place; empty in older tables."""
    if "continuation" not in places:
        return {}
    columns = [places[name].tolist() for name in ("document", "place", "continuation")]
    return {(doc, place): value for doc, place, value in zip(*columns, strict=True)}


def keys_by_place(places: Places) -> dict[tuple[int, int], list[bytes]]:
    """The keys of each document and place, a repeat after the other."""
    packed = places["keys"].tobytes()
    found: dict[tuple[int, int], list[bytes]] = {}
    pairs = zip(places["document"].tolist(), places["place"].tolist(), strict=True)
    for number, pair in enumerate(pairs):
        found.setdefault(pair, []).append(packed[number * SIZE : (number + 1) * SIZE])
    return found


def tokens_by_place(places: Places) -> dict[tuple[int, int], int]:
    """The lengths of continuations, where the model was asked for them."""
    columns = [places[name].tolist() for name in ("document", "place", "tokens")]
    return {(doc, place): n for doc, place, n in zip(*columns, strict=False)}
