"""Generates PAWS-X's YAML files: one task per language, and their group.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

#: Per language: the text that joins two sentences of different, and of the same meaning.
CONNECTORS = {
    "en": (", right? No, ", ", right? Yes, "),
    "de": (", richtig? Nein, ", ", richtig? Ja, "),
    "es": (", verdad? No, ", ", verdad? Sí, "),
    "fr": (", n'est-ce pas? Non, ", ", n'est-ce pas? Oui, "),
    "ja": (", ですね? いいえ, ", ", ですね? はい, "),
    "ko": (", 맞죠? 아니요, ", ", 맞죠? 예, "),
    "zh": (", 对吧? 不是, ", ", 对吧? 是, "),
}


#: Languages whose sentences are used as they are: English detokenization does not fit them.
NOT_DETOKENIZED = ("ja", "ko", "zh")


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {f"paws_{code}.yaml": _member(code, no, yes) for code, (no, yes) in CONNECTORS.items()}
    members = "".join(f"  - paws_{code}\n" for code in CONNECTORS)
    made["_pawsx.yaml"] = (
        f"group: pawsx\ntask:\n{members}aggregate_metric_list:\n  - metric: acc\n"
        "metadata:\n  version: 0.0\n"
    )
    return made


def _member(code: str, no: str, yes: str) -> str:
    """Returns the task file of one language; `no` and `yes` join the two sentences."""
    choices = ", ".join(f'sentence1 ~ "{word}" ~ sentence2' for word in (no, yes))
    return (
        f"include: pawsx_template_yaml\ntask: paws_{code}\ndataset_name: {code}\n"
        f"{'process_docs: null' + chr(10) if code in NOT_DETOKENIZED else ''}"
        f"doc_to_choice: '{{{{[{choices.replace(chr(39), chr(39) * 2)}]}}}}'\n"
    )
