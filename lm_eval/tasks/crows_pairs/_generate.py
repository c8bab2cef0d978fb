"""Generates CrowS-Pairs' YAML files: per language, one task with all pairs and one per bias type.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

KINDS = """age autre disability gender nationality physical_appearance race_color religion
    sexual_orientation socioeconomic"""


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {}
    for language in ("english", "french"):
        name = f"crows_pairs_{language}"
        head = f"include: _crows_pairs.yaml\ntask: {name}"
        tail = f"\ndataset_name: {language}\n"
        made[f"{name}.yaml"] = head + tail
        for kind in KINDS.split():
            made[f"{name}_{kind}.yaml"] = (
                f"{head}_{kind}{tail}process_docs: !function pairs.{kind}\n"
            )
    return made
