"""Generates the translation tasks' YAML files: two directions per language pair.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

from typing import NamedTuple

LANGUAGES = {"ar": "Arabic", "de": "German", "en": "English", "fr": "French", "ro": "Romanian"}


class Pair(NamedTuple):
    """The dataset of one pair of languages: task name prefix, hub path, configuration, tags."""

    name: str
    path: str
    config: str
    tags: tuple[str, ...]


GPT3 = "gpt3_translation_benchmarks"
PAIRS = {
    ("ar", "en"): Pair("iwslt2017", "IWSLT/iwslt2017", "iwslt2017-en-ar", ("iwslt2017",)),
    ("fr", "en"): Pair("wmt14", "wmt/wmt14", "fr-en", ("wmt14", GPT3)),
    ("de", "en"): Pair("wmt16", "wmt/wmt16", "de-en", ("wmt16", GPT3)),
    ("ro", "en"): Pair("wmt16", "wmt/wmt16", "ro-en", ("wmt16", GPT3)),
}


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    made = {}
    for (one, other), pair in PAIRS.items():
        for source, target in ((one, other), (other, one)):
            made[f"{pair.name}_{source}-{target}.yaml"] = _member(pair, source, target)
    return made


def _member(pair: Pair, source: str, target: str) -> str:
    """Returns the task file that translates from `source` to `target` (language codes)."""
    tags = "".join(f"  - {tag}\n" for tag in ("translation", *pair.tags))
    return (
        f"include: wmt_common_yaml\ntask: {pair.name}-{source}-{target}\ntag:\n{tags}"
        f"dataset_path: {pair.path}\ndataset_name: {pair.config}\n"
        f'doc_to_text: "{LANGUAGES[source]} phrase: {{{{translation.{source}}}}}\\n'
        f'{LANGUAGES[target]} phrase:"\n'
        f'doc_to_target: " {{{{translation.{target}}}}}"\n'
    )
