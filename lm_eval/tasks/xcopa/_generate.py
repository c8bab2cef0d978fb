"""Generates XCOPA's YAML files: one task per language, and their group.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

#: Per language: the words for "because" and "therefore" that join a premise and a choice.
CONNECTORS = {
    "et": ("sest", "seetõttu"),
    "ht": ("poukisa", "donk sa"),
    "id": ("karena", "maka"),
    "it": ("perché", "quindi"),
    "qu": ("imataq", "chaymi"),
    "sw": ("kwa sababu", "kwa hiyo"),
    "ta": ("காரணமாக", "எனவே"),
    "th": ("เพราะ", "ดังนั้น"),
    "tr": ("çünkü", "bu yüzden"),
    "vi": ("bởi vì", "vì vậy"),
    "zh": ("因为", "所以"),
}


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {f"default_{code}.yaml": _member(code, *words) for code, words in CONNECTORS.items()}
    members = "".join(f"  - xcopa_{code}\n" for code in CONNECTORS)
    made["_xcopa.yaml"] = (
        f"group: xcopa\ntask:\n{members}aggregate_metric_list:\n  - metric: acc\n"
        "metadata:\n  version: 1.0\n"
    )
    return made


def _member(code: str, because: str, therefore: str) -> str:
    """Returns the task file of one language."""
    connector = f"{{{{'{because}' if question == 'cause' else '{therefore}'}}}}"
    return (
        f"include: _template_yaml\ntask: xcopa_{code}\ndataset_name: {code}\n"
        f'doc_to_text: "{{{{premise.strip()[:-1]}}}} {connector}"\n'
    )
