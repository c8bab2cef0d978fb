"""The answer index: one table per task that maps answers in the store to documents.

Answers are stored by the hash of their request. When a run is scored again, that hash cannot always
be recomputed: a prompt may have been rendered by the model's chat template, and the model is not
loaded, or the prompt has changed since. The index still finds each answer by the number of its
document and its position among the requests of the document (`Instance.idx`; for multiple choice,
the number of the choice).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from lm_eval.engine.keys import KEY_SIZE, request_keys
from lm_eval.engine.repeats import repeated

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: The columns of one task's table, with one row per request and repeat: `keys` (key in the store),
#: `document` (number), `place` (position of the request in the document), `continuation` (hash of
#: the scored text), and `tokens` (length of the continuation; empty if tokens were not counted).
AnswerIndex = Mapping[str, "np.ndarray[Any, Any]"]

_NULL_KEY = bytes(KEY_SIZE)
_hash: Callable[[bytes], int] = xxhash.xxh3_64_intdigest


def build_answer_index(
    requests: Sequence[Instance], seed: object
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the columns of one task's answer index (see `AnswerIndex`).

    `requests` are all requests of the task, at least one, with their digests set (`set_digests`).
    `seed` is that of sampled answers. The key of a request without a digest, whose answer cannot be
    stored, is `KEY_SIZE` zero bytes.
    """
    expanded = repeated(requests)
    keys: list[Any] = request_keys(expanded, seed)
    if None in keys:
        keys = [key or _NULL_KEY for key in keys]
    documents, positions = [], []
    for request in expanded:  # one pass for both columns: memory access takes most of the time
        documents.append(request.doc_id)
        positions.append(request.idx)
    lengths = [request.tokens for request in expanded] if expanded[0].tokens is not None else []
    try:  # fast path for plain strings: avoiding a function call per request halves the time
        continuations = [_hash(request.arguments[1].strip().encode()) for request in expanded]
    except (AttributeError, IndexError, UnicodeEncodeError):
        continuations = [continuation_hash(request) for request in expanded]
    return {
        "keys": np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_SIZE),
        "document": np.array(documents, dtype=np.int64),
        "place": np.array(positions, dtype=np.int32),
        "tokens": np.array(lengths, dtype=np.int32),
        "continuation": np.array(continuations, dtype=np.uint64),
    }


def continuation_hash(request: Instance) -> int:
    """Returns a 64-bit hash of a log-likelihood request's continuation, as an integer.

    Returns 0 for other request types and for a request without a continuation. The hash identifies
    a choice whose number has changed. Surrounding whitespace is ignored, because it may move
    between context and continuation.
    """
    arguments = request.arguments
    if request.request_type != "loglikelihood" or len(arguments) < 2:
        return 0
    return _hash(str(arguments[1]).strip().encode("utf-8", "surrogatepass"))


def continuations_by_position(index: AnswerIndex) -> dict[tuple[int, int], int]:
    """Returns the hash of each continuation by `(document number, position)`.

    The hash is that of `continuation_hash`. The position counts the requests of one document from 0
    (`Instance.idx`). Empty for tables of older versions, which lack this column.
    """
    if "continuation" not in index:
        return {}
    columns = [index[name].tolist() for name in ("document", "place", "continuation")]
    return {(doc, position): value for doc, position, value in zip(*columns, strict=True)}


def keys_by_position(index: AnswerIndex) -> dict[tuple[int, int], list[bytes]]:
    """Returns the store keys by `(document number, position)`: one key per repeat, in order.

    The position counts the requests of one document from 0 (`Instance.idx`). The key of a request
    whose answer cannot be stored is `KEY_SIZE` zero bytes.
    """
    packed = index["keys"].tobytes()
    found: dict[tuple[int, int], list[bytes]] = {}
    pairs = zip(index["document"].tolist(), index["place"].tolist(), strict=True)
    for number, pair in enumerate(pairs):
        found.setdefault(pair, []).append(packed[number * KEY_SIZE : (number + 1) * KEY_SIZE])
    return found


def tokens_by_position(index: AnswerIndex) -> dict[tuple[int, int], int]:
    """Returns the length of each continuation in tokens, by `(document number, position)`.

    The position counts the requests of one document from 0 (`Instance.idx`). Empty if tokens were
    not counted.
    """
    columns = [index[name].tolist() for name in ("document", "place", "tokens")]
    return {(doc, position): n for doc, position, n in zip(*columns, strict=False)}
