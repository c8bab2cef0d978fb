"""Generates the JSON Schema of sweep files, with which editors complete and check keys.

`python -m lm_eval.sweeps.schema` writes `sweep.schema.json` in the folder of this module. To use it
in an editor with a YAML language server, begin a sweep file with the line
`# yaml-language-server: $schema=PATH/sweep.schema.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lm_eval.config.run import RunConfig
from lm_eval.config.schema import fields_schema
from lm_eval.sweeps.matrix import MODELS, NOT_VARIED

FILE = Path(__file__).with_name("sweep.schema.json")


def file_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a sweep file."""
    run = fields_schema(RunConfig)["properties"]
    run["tasks"] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "object"]}}]
    }
    table = {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]}
    run |= dict.fromkeys(("model_args", "gen_kwargs", "metadata"), table)
    varied = {name: hint for name, hint in run.items() if name not in NOT_VARIED}
    several: dict[str, Any] = {
        "type": "object",
        "minProperties": 1,
        "properties": {"name": {"type": ["string", "number"]}, **varied},
        "additionalProperties": False,
    }
    texts = {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ]
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "lm_eval sweep",
        "type": "object",
        "properties": {
            **run,
            "matrix": {
                "type": "object",
                "minProperties": 1,
                "properties": {
                    **{name: _values(hint) for name, hint in varied.items()},
                    MODELS: _values({"anyOf": [{"type": "string"}, several]}),
                    **dict.fromkeys(NOT_VARIED, False),
                },
                "additionalProperties": _values(several),
            },
            "checkpoints": texts,
            "revisions": texts,
        },
        "additionalProperties": False,
    }


def _values(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a list with at least one value."""
    return {"type": "array", "items": schema, "minItems": 1}


if __name__ == "__main__":
    FILE.write_text(json.dumps(file_schema(), indent=2) + "\n", encoding="utf-8")
