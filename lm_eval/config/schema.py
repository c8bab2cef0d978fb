"""A JSON Schema of task and group files, made from the dataclasses, for editors to complete keys.

`python -m lm_eval.config.schema` writes it anew beside this module. In an editor that speaks YAML
a first line does it: `# yaml-language-server: $schema=PATH/task.schema.json`.
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
    """The schema of one type."""
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
    raise TypeError(f"no schema for {hint!r}")


def fields_schema(schema: Any, **beside: dict[str, Any]) -> dict[str, Any]:
    """The schema of a table with a dataclass's fields, and some keys beside them."""
    properties = {name: schema_of(hint) for name, hint in field_types(schema).items()}
    return {"type": "object", "properties": {**properties, **beside}, "additionalProperties": False}


def file_schema() -> dict[str, Any]:
    """The schema of a file: a group if it has the key `group`, else a task or a part of one."""
    include = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    task = fields_schema(TaskConfig, include=include, **{"class": _FUNCTION})
    task["properties"]["fewshot_config"] = fields_schema(FewshotConfig)
    group = fields_schema(GroupConfig)
    # Any field of a task may stand in a group file: it goes to every task below.
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
