"""Generates XStoryCloze's YAML files: one task per language, and their group.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

LANGUAGES = ["ar", "en", "es", "eu", "hi", "id", "my", "ru", "sw", "te", "zh"]


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {
        f"default_{code}.yaml": (
            f"include: _template_yaml\ntask: xstorycloze_{code}\ndataset_name: {code}\n"
        )
        for code in LANGUAGES
    }
    members = "".join(f"  - xstorycloze_{code}\n" for code in LANGUAGES)
    made["_xstorycloze.yaml"] = (
        f"group: xstorycloze\ntask:\n{members}aggregate_metric_list:\n  - metric: acc\n"
        "metadata:\n  version: 1.0\n"
    )
    return made
