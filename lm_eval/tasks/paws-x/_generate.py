"""Write PAWS-X's member files, one a language. Run by `tools/generate_tasks.py`."""

from __future__ import annotations

#: What joins two sentences that do not mean the same, and two that do.
JOINED = {
    "en": (", right? No, ", ", right? Yes, "),
    "de": (", richtig? Nein, ", ", richtig? Ja, "),
    "es": (", verdad? No, ", ", verdad? Sí, "),
    "fr": (", n'est-ce pas? Non, ", ", n'est-ce pas? Oui, "),
    "ja": (", ですね? いいえ, ", ", ですね? はい, "),
    "ko": (", 맞죠? 아니요, ", ", 맞죠? 예, "),
    "zh": (", 对吧? 不是, ", ", 对吧? 是, "),
}


#: Languages whose sentences are not repaired: it would not suit their scripts.
AS_THEY_ARE = ("ja", "ko", "zh")


def files() -> dict[str, str]:
    made = {f"{code}.yaml": _member(code, no, yes) for code, (no, yes) in JOINED.items()}
    members = "".join(f"  - paws_{code}\n" for code in JOINED)
    made["pawsx.yaml"] = (
        f"group: pawsx\ntask:\n{members}aggregate_metric_list:\n  - metric: acc\n"
        "metadata:\n  version: 0.0\n"
    )
    return made


def _member(code: str, no: str, yes: str) -> str:
    choices = ", ".join(f'sentence1 ~ "{word}" ~ sentence2' for word in (no, yes))
    return (
        f"include: _paws-x.yaml\ntask: paws_{code}\ndataset_name: {code}\n"
        f"{'process_docs: null' + chr(10) if code in AS_THEY_ARE else ''}"
        f"doc_to_choice: '{{{{[{choices.replace(chr(39), chr(39) * 2)}]}}}}'\n"
    )
