"""Generates MGSM's YAML files: 11 languages, each in three prompting styles.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class Language(NamedTuple):
    """The phrases of a language that introduce a question, an answer, its steps and its result.

    Solutions in the dataset begin with the phrase `steps` too; the first `skipped` characters are
    removed from them. `result` is a regular expression that captures the number.
    """

    question: str
    answer: str
    steps: str
    skipped: int
    result: str


NUMBER = r"(\-?[0-9\.\,]+)"
LANGUAGES = {
    "bn": Language("প্রশ্ন:", "Answer:", "ধাপে ধাপে উত্তর:", 17, f"The answer is {NUMBER}"),
    "de": Language(
        "Frage:", "Antwort:", "Schritt-für-Schritt-Antwort:", 29, f"Die Antwort lautet {NUMBER}"
    ),
    "en": Language("Question:", "Answer:", "Step-by-Step Answer:", 21, f"The answer is {NUMBER}"),
    "es": Language(
        "Pregunta:", "Respuesta:", "Respuesta paso a paso:", 23, f"La respuesta es {NUMBER}"
    ),
    "fr": Language(
        "Question :", "Réponse :", "Réponse étape par étape :", 26, f"La réponse est {NUMBER}"
    ),
    "ja": Language("問題：", "Answer:", "ステップごとの答え:", 11, f"答えは{NUMBER}です。"),
    "ru": Language("Задача:", "Answer:", "Пошаговоерешение:", 18, f"Ответ — {NUMBER}"),
    "sw": Language("Swali:", "Answer:", "Jibu la Hatua kwa Hatua:", 25, f"Jibu ni {NUMBER}"),
    "te": Language("ప్రశ్న:", "Answer:", "దశలవారీగా సమాధానం:", 19, f"సమాధానం {NUMBER}"),
    "th": Language("โจทย์:", "Answer:", "คำตอบทีละขั้นตอน:", 18, f"คำตอบคือ {NUMBER}"),
    "zh": Language("问题：", "Answer:", "逐步解答:", 6, f"答案是 {NUMBER}。"),
}
ENGLISH = LANGUAGES["en"]


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {}
    for code, words in LANGUAGES.items():
        made[f"direct/mgsm_direct_{code}.yaml"] = _direct(code, words)
        made[f"native_cot/mgsm_native_cot_{code}.yaml"] = _steps(
            code, words, words, "native_cot", "4.0"
        )
        made[f"en_cot/mgsm_en_cot_{code}.yaml"] = _steps(code, words, ENGLISH, "en_cot", "3.0")
    return made


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _opening(code: str, style: str, words: Language, answer: str) -> str:
    """Returns the first keys of a task file, up to `doc_to_text`."""
    question = f"{{% if answer is none %}}{words.question} {{% endif %}}{{{{question}}}}\n{answer}"
    return (
        f"include: ../_mgsm.yaml\ntask: mgsm_{style}_{code}\n"
        f"tag: {'mgsm_direct' if style == 'direct' else 'mgsm_cot_native'}\ndataset_name: {code}\n"
        f"doc_to_text: {_quoted(question)}\n"
    )


def _until(words: Language) -> str:
    """Returns the generation settings with their stop sequences."""
    stops = "".join(f"    - {_quoted(stop)}\n" for stop in (words.question, "</s>", "<|im_end|>"))
    return f"generation_kwargs:\n  do_sample: false\n  until:\n{stops}"


def _direct(code: str, words: Language) -> str:
    """Returns a task file without chain of thought."""
    return _opening(code, "direct", words, words.answer) + _until(words)


def _steps(code: str, words: Language, reasoning: Language, style: str, version: str) -> str:
    """Returns a task file with chain of thought; `reasoning` is the language to reason in."""
    target = (
        f"{{% if answer is none %}}{{{{answer_number}}}}{{% else %}}"
        f"{{{{answer[{words.skipped}:]}}}}{{% endif %}}"
    )
    return (
        _opening(code, style, words, reasoning.steps)
        + f"doc_to_target: {_quoted(target)}\n"
        + 'target_delimiter: " "\n'
        + _until(words)
        + "filter_list:\n"
        + "  - name: strict-match\n    filter:\n      - function: regex\n"
        + f"        regex_pattern: {_quoted(reasoning.result)}\n      - function: take_first\n"
        + "  - name: flexible-extract\n    filter:\n      - function: regex\n"
        + "        group_select: -1\n"
        + '        regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"\n      - function: take_first\n'
        + f"metadata:\n  version: {version}\n"
    )
