"""Generates the JSON Schema of results files and the tables of docs/results.md from `schema.py`.

Run `python -m lm_eval.results.json_schema` to write both again after a change of `schema.py`.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from lm_eval.config.schema import schema_of
from lm_eval.results import schema as fields

FILE = Path(__file__).with_name("results.schema.json")
DOCUMENT = Path(__file__).parents[2] / "docs" / "results.md"

#: The parts of `EvalResults`. Each has a table in docs/results.md.
PARTS: tuple[Any, ...] = (
    fields.Scores,
    fields.OptionalScores,
    fields.TaskInputs,
    fields.RunStatistics,
    fields.RunDescription,
    fields.Reproduction,
)
#: A table in docs/results.md, between two comments. The first one names its TypedDict.
_TABLE = re.compile(r"(<!-- fields of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def results_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a results file. It allows additional keys."""
    made = _schema_of(fields.EvalResults)
    scores = {
        "_stderr,": {
            "description": "standard error of a score, or `N/A` if it has none",
            "anyOf": [{"type": "number"}, {"const": "N/A"}],
        },
        ",": {
            "description": "a score, under `metric,filter`: what the metric's aggregation returns"
        },
    }
    row, clean_row = _schema_of(fields.RowFields), _schema_of(fields.CleanRowFields)
    for name, kind in (("results", row), ("groups", row), ("decontaminated", clean_row)):
        rows = made["properties"][name]
        rows["additionalProperties"] = {**kind, "patternProperties": scores}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"lm_eval results, format {fields.FORMAT}",
        **made,
    }


def _schema_of(hint: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a type hint.

    Supported are TypedDicts, lists and dictionaries, and what `config.schema.schema_of` supports.
    Raises `TypeError` for any other type.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if typing.is_typeddict(hint):
        declared = dict(_declared(hint))
        return {
            "type": "object",
            "properties": {
                name: {"description": meaning, **_schema_of(kind)}
                for name, (kind, meaning, _) in declared.items()
            },
            "required": [name for name, (_, _, absent) in declared.items() if absent is None],
        }
    if origin is list:
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin is dict:
        values = _schema_of(arguments[1])
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    return schema_of(hint)


def _declared(part: Any) -> Iterator[tuple[str, tuple[Any, str, str | None]]]:
    """Yields `(name, (type, meaning, absent))` for every documented field of a TypedDict.

    `absent` describes in which results the field is missing; None if it is always present.
    """
    for name, hint in typing.get_type_hints(part, include_extras=True).items():
        if (
            typing.get_origin(hint) is Annotated
        ):  # `samples` is not annotated: it is not stored in the results file
            kind, meaning, *absent = typing.get_args(hint)
            yield name, (kind, meaning, absent[0] if absent else None)


def field_table(part: Any) -> str:
    """Returns a Markdown table of the documented fields of the TypedDict `part`.

    Fields that another TypedDict in `PARTS` has too are left out: `EvalResults` inherits all of
    them, and they have tables of their own.
    """
    others = {name for other in PARTS if other is not part for name, _ in _declared(other)}
    lines = ["| key | type | meaning | absent |", "|---|---|---|---|"]
    for name, (kind, meaning, absent) in _declared(part):
        if name not in others:
            type_name = _type_name(_schema_of(kind))
            lines.append(f"| `{name}` | {type_name} | {meaning} | {absent or 'never'} |")
    return "\n".join(lines) + "\n"


def _type_name(schema: dict[str, Any]) -> str:
    """Returns the type in a JSON Schema, such as "object" or "string or null".

    `schema` must have the key `type` or `anyOf`.
    """
    if "anyOf" in schema:
        return " or ".join(map(_type_name, schema["anyOf"]))
    return str(schema["type"])


def with_tables(text: str) -> str:
    """Returns the Markdown `text` with the tables between its marker comments generated again.

    The markers are `<!-- fields of NAME -->`, with the name of a TypedDict of `schema.py`, and
    `<!-- end -->`.
    """
    return _TABLE.sub(lambda m: f"{m[1]}\n{field_table(getattr(fields, m[2]))}\n{m[3]}", text)


if __name__ == "__main__":
    FILE.write_text(json.dumps(results_schema(), indent=2) + "\n", encoding="utf-8")
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
