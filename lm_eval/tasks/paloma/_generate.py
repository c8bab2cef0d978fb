"""Generates Paloma's YAML files: one task per source. Run by `tools/generate_tasks.py`."""

from __future__ import annotations

#: Configuration names of the dataset, and the names of the sources in tables.
SOURCES = {
    "4chan_meta_sep": "4chan",
    "c4_100_domains": "C4 100 Domains",
    "c4_en": "C4",
    "dolma-v1_5": "Dolma V1.5",
    "dolma_100_programing_languages": "100 PLs",
    "dolma_100_subreddits": "100 Subreddits",
    "falcon-refinedweb": "Falcon",
    "gab": "Gab",
    "m2d2_s2orc_unsplit": "M2D2 S2ORC",
    "m2d2_wikipedia_unsplit": "M2D2 Wikipedia",
    "manosphere_meta_sep": "Manosphere",
    "mc4": "mC4",
    "ptb": "PTB",
    "redpajama": "RedPajama",
    "twitterAAE_HELM_fixed": "Twitter AAE",
    "wikitext_103": "Wikitext-103",
}


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    return {
        f"paloma_{name}.yaml": (
            f"include: _paloma_template\ntask: paloma_{name}\ntask_alias: {alias}\n"
            f'dataset_name: "{name}"\n'
        )
        for name, alias in SOURCES.items()
    }
