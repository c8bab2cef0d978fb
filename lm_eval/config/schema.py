"""Generates the JSON Schema of task and group files, with which editors complete and check keys.

`python -m lm_eval.config.schema` writes `task.schema.json` in the folder of this module. To use it
in an editor with a YAML language server, begin a task file with the line
`# yaml-language-server: $schema=PATH/task.schema.json`.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Union

from lm_eval.config.group import GroupConfig
from lm_eval.config.task import FewshotConfig, TaskConfig
from lm_eval.config.types import field_types

FILE = Path(__file__).with_name("task.schema.json")

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_FUNCTION = {"type": "string", "description": "!function file.name"}


def schema_of(hint: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a type hint.

    Supported are `Any`, str, int, float, bool, None, dataclasses, unions, `Literal`, `list[T]`,
    `dict[K, V]` (any object, whatever K and V are), and `Callable[…]` and `type` (the string after
    `!function`). Raises `TypeError` for every other type, such as a TypedDict, a tuple or a bare
    `list`.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if dataclasses.is_dataclass(hint):
        return fields_schema(hint)
    if origin in (Union, types.UnionType):
        options = [schema_of(option) for option in arguments]
        return {"anyOf": [o for i, o in enumerate(options) if o not in options[:i]]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict:
        return {"type": "object"}
    if origin is typing.get_origin(Callable[..., Any]) or hint is type:
        return _FUNCTION
    raise TypeError(f"schema_of does not support the type {hint!r}; add a case for it.")


def fields_schema(schema: Any, **extra_keys: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of an object whose keys are the fields of the dataclass `schema`.

    `extra_keys` holds the schemas of additional keys. Other keys are not allowed, and none is
    required. Raises `TypeError` if `schema_of` does not support the type of a field.
    """
    properties = {name: schema_of(hint) for name, hint in field_types(schema).items()}
    return {
        "type": "object",
        "properties": {**properties, **extra_keys},
        "additionalProperties": False,
    }


def file_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a YAML file: of a group if it has the key `group`, else a task."""
    include = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    task = fields_schema(TaskConfig, include=include, **{"class": _FUNCTION})
    task["properties"]["fewshot_config"] = fields_schema(FewshotConfig)
    group = fields_schema(GroupConfig)
    # A group file may have any field of a task, which then applies to every task of the group.
    group["properties"] = {**task["properties"], **group["properties"]}
    group["required"] = ["group"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "lm_eval task or group",
        "if": {"required": ["group"]},
        "then": group,
        "else": task,
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(file_schema(), indent=2) + "\n", encoding="utf-8")
