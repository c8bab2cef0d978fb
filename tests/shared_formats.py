"""JSON Schemas of the formats in which results are shared, written by us from their descriptions.

Each describes the fields that we write, with what the format requires of them; other fields that
the format knows are left out, so that a field in the wrong place is found.

- Every Eval Ever, version 0.3.0: `every_eval_ever/schemas/eval.schema.json` and
  `instance_level_eval.schema.json` in https://github.com/evaleval/every_eval_ever,
  as of August 2026
- evaluation results of models on the Hugging Face Hub (`.eval_results/*.yaml`):
  https://huggingface.co/docs/hub/eval-results; the format has no version
"""

from __future__ import annotations

from typing import Any

TEXT, NUMBER, COUNT = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def described(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the schema of an object without other fields."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


DETAILS = {"type": "object", "additionalProperties": TEXT}
BOUND = {"anyOf": [NUMBER, {"enum": ["Infinity", "-Infinity"]}]}
SOURCE = {
    "oneOf": [
        described(
            {"dataset_name": TEXT, "source_type": {"const": "hf_dataset"}},
            {
                "hf_repo": TEXT,
                "hf_split": TEXT,
                "samples_number": COUNT,
                "additional_details": DETAILS,
            },
        ),
        described(
            {"dataset_name": TEXT, "source_type": {"const": "other"}},
            {"additional_details": DETAILS},
        ),
    ]
}
UUID_4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
#: A record of Every Eval Ever: a task or group with its scores.
RECORD = described(
    {
        "schema_version": {"const": "0.3.0"},
        "evaluation_id": TEXT,
        "retrieved_timestamp": {"type": "string", "pattern": r"^\d+$"},
        "source_metadata": described(
            {
                "source_type": {"enum": ["documentation", "evaluation_run"]},
                "source_organization_name": TEXT,
                "evaluator_relationship": {
                    "enum": ["first_party", "third_party", "collaborative", "other"]
                },
            },
            {"source_name": TEXT, "source_organization_url": TEXT},
        ),
        "model_info": described(
            {
                "name": TEXT,
                "id": TEXT,
                "additional_details": {
                    **DETAILS,
                    "properties": {
                        "deployment_type": {
                            "enum": ["self_deployed", "externally_managed", "unknown"]
                        },
                        "model_availability": {
                            "enum": ["open_weights", "closed_weights", "unknown"]
                        },
                    },
                    "required": ["deployment_type", "model_availability"],
                },
            },
            {"developer": TEXT, "inference_engine": described({"name": TEXT})},
        ),
        "eval_library": described({"name": {"const": "lm_eval"}, "version": TEXT}),
        "evaluation_results": {
            "type": "array",
            "items": described(
                {
                    "evaluation_name": TEXT,
                    "source_data": SOURCE,
                    "metric_config": {
                        **described(
                            {"lower_is_better": {"type": "boolean"}},
                            {
                                "evaluation_description": TEXT,
                                "metric_id": TEXT,
                                "metric_name": TEXT,
                                "metric_unit": TEXT,
                                "score_type": {"enum": ["continuous"]},
                                "min_score": BOUND,
                                "max_score": BOUND,
                            },
                        ),
                        "dependentRequired": {"score_type": ["min_score", "max_score"]},
                    },
                    "score_details": described(
                        {"score": NUMBER},
                        {
                            "uncertainty": described(
                                {},
                                {
                                    "standard_error": described({"value": NUMBER}),
                                    "confidence_interval": described(
                                        {"lower": NUMBER, "upper": NUMBER},
                                        {
                                            "confidence_level": {
                                                "type": "number",
                                                "minimum": 0,
                                                "maximum": 1,
                                            }
                                        },
                                    ),
                                    "num_samples": COUNT,
                                },
                            )
                        },
                    ),
                },
                {
                    "evaluation_result_id": TEXT,
                    "evaluation_timestamp": TEXT,
                    "generation_config": described(
                        {},
                        {
                            "generation_args": described(
                                {},
                                {
                                    "temperature": NUMBER,
                                    "top_p": NUMBER,
                                    "top_k": NUMBER,
                                    "max_tokens": {"type": "integer", "minimum": 1},
                                },
                            ),
                            "additional_details": DETAILS,
                        },
                    ),
                },
            ),
        },
    },
    {
        "evaluation_timestamp": TEXT,
        "detailed_evaluation_results": described(
            {
                "format": {"const": "jsonl"},
                "file_path": {
                    "type": "string",
                    "pattern": rf"^data(/[^/]+){{3}}/{UUID_4}_samples\.jsonl$",
                },
            },
            {"hash_algorithm": {"const": "sha256"}, "checksum": TEXT, "total_rows": COUNT},
        ),
    },
)
TEXTS = {"type": "array", "items": TEXT}
#: A line of the file with the documents of a record; each has one turn, and so no messages.
DOCUMENT = described(
    {
        "schema_version": {"const": "0.3.0"},
        "evaluation_id": TEXT,
        "model_id": TEXT,
        "evaluation_name": TEXT,
        "sample_id": TEXT,
        "interaction_type": {"const": "single_turn"},
        "input": described({"raw": TEXT, "reference": TEXTS}, {"choices": TEXTS}),
        "output": described({"raw": TEXTS}),
        "answer_attribution": {
            "type": "array",
            "items": described(
                {
                    "turn_idx": {"type": "integer", "minimum": 0},
                    "source": TEXT,
                    "extracted_value": TEXT,
                    "extraction_method": TEXT,
                    "is_terminal": {"type": "boolean"},
                }
            ),
        },
        "evaluation": described({"score": NUMBER, "is_correct": {"type": "boolean"}}),
    },
    {"evaluation_result_id": TEXT, "sample_hash": TEXT},
)

#: A file of the folder `.eval_results`: a list of scores, each of one benchmark on the Hub.
HUB_RESULTS = {
    "type": "array",
    "minItems": 1,
    "items": described(
        {
            "dataset": described(
                {"id": {"type": "string", "pattern": r"^[\w.-]+/[\w.-]+$"}, "task_id": TEXT},
                {"revision": TEXT},
            ),
            "value": NUMBER,
        },
        {
            "date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?$"},
            "source": described({"url": {"type": "string", "pattern": "^https?://"}, "name": TEXT}),
            "notes": TEXT,
        },
    ),
}
