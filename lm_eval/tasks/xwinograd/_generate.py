"""Generates XWinograd's YAML files: one task per language, and their group.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

LANGUAGES = ["en", "fr", "jp", "pt", "ru", "zh"]


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {
        f"xwinograd_{code}.yaml": (
            f"include: xwinograd_common_yaml\ntask: xwinograd_{code}\ndataset_name: {code}\n"
        )
        for code in LANGUAGES
    }
    members = "".join(f"  - xwinograd_{code}\n" for code in LANGUAGES)
    made["_xwinograd.yaml"] = (
        f"group: xwinograd\ntask:\n{members}aggregate_metric_list:\n  - metric: acc\n"
        "metadata:\n  version: 1.0\n"
    )
    return made
