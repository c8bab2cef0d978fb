"""Checks whether an Arrow table has only plain values, which `datasets` would not decode."""

from __future__ import annotations

import json
from typing import Any


def is_plain(schema: Any) -> bool:
    """Returns whether `datasets` would return the values of a table with this Arrow schema as is.

    True if all columns are strings, numbers, booleans, or lists and structs of these, and the
    schema's metadata describes no features that `datasets` decodes, such as images.
    """
    features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    described = (features.get("info") or {}).get("features")
    return all(_plain_type(field.type) for field in schema) and _plain_features(described)


def _plain_type(kind: Any) -> bool:
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return _plain_type(kind.value_type)
    if types.is_struct(kind):
        return all(_plain_type(kind.field(number).type) for number in range(kind.num_fields))
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_null(kind)
    )


def _plain_features(features: Any) -> bool:
    """Returns whether reading with these `datasets` features leaves all values unchanged.

    `features` is the description that `datasets` stores in a Parquet file; None if there is none.
    """
    if features is None:
        return True
    if isinstance(features, list):  # old notation of a list
        return len(features) == 1 and _plain_features(features[0])
    kind = features.get("_type")
    if kind in ("Value", "ClassLabel"):
        return True
    if kind in ("List", "LargeList"):
        return _plain_features(features["feature"])
    if (
        kind == "Sequence"
    ):  # a Sequence of structs is read as a struct of lists: leave it to `datasets`
        inner = features["feature"]
        return isinstance(inner, dict) and "_type" in inner and _plain_features(inner)
    return kind is None and all(_plain_features(feature) for feature in features.values())
