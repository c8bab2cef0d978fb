"""Write XNLI's member files, one a language. Run by `tools/generate_tasks.py`."""

from __future__ import annotations

#: A tag question, and what says that the hypothesis follows, may follow, does not.
WORDS = {
    "ar": (", صحيح?", "نعم", "لذا", "رقم"),
    "bg": (", правилно?", "да", "така", "не"),
    "de": (", richtig?", "Ja", "Auch", "Nein"),
    "el": (", σωστός?", "Ναί", "Έτσι", "όχι"),
    "en": (", right?", "Yes", "Also", "No"),
    "es": (", correcto?", "Sí", "Asi que", "No"),
    "fr": (", correct?", "Oui", "Aussi", "Non"),
    "hi": (", सही?", "हाँ", "इसलिए", "नहीं"),
    "ru": (", правильно?", "Да", "Так", "Нет"),
    "sw": (", sahihi?", "Ndiyo", "Hivyo", "Hapana"),
    "th": (", ถูกต้อง?", "ใช่", "ดังนั้น", "ไม่"),
    "tr": (", doğru?", "Evet", "Böylece", "Hayır"),
    "ur": (", صحیح?", "جی ہاں", "اس لئے", "نہیں"),
    "vi": (", đúng?", "Vâng", "Vì vậy", "Không"),
    "zh": (", 正确?", "是的", "所以", "不是的"),
}


def files() -> dict[str, str]:
    made = {f"{code}.yaml": _member(code, *words) for code, words in WORDS.items()}
    members = "".join(f"  - xnli_{code}\n" for code in WORDS)
    made["xnli.yaml"] = (
        f"group: xnli\ntask:\n{members}aggregate_metric_list:\n  - metric: acc\n"
        "metadata:\n  version: 1.0\n"
    )
    return made


def _member(code: str, tag: str, *answers: str) -> str:
    choices = ", ".join(f"premise ~ '{tag} {answer}, ' ~ hypothesis" for answer in answers)
    return (
        f"include: _xnli.yaml\ntask: xnli_{code}\ndataset_name: {code}\n"
        f'doc_to_choice: "{{{{[{choices}]}}}}"\n'
    )
