"""Generates the Pile's YAML files: one task per part of the dataset.

Run by `tools/generate_tasks.py`.
"""

from __future__ import annotations

PARTS = [
    "arxiv",
    "bookcorpus2",
    "books3",
    "dm-mathematics",
    "enron",
    "europarl",
    "freelaw",
    "github",
    "gutenberg",
    "hackernews",
    "nih-exporter",
    "opensubtitles",
    "openwebtext2",
    "philpapers",
    "pile-cc",
    "pubmed-abstracts",
    "pubmed-central",
    "stackexchange",
    "ubuntu-irc",
    "uspto",
    "wikipedia",
    "youtubesubtitles",
]


def files() -> dict[str, str]:
    """Returns the text of every generated file, keyed by its path relative to this folder."""
    return {
        f"pile_{part}.yaml": f"include: _pile.yaml\ntask: pile_{part}\ndataset_name: pile_{part}\n"
        for part in PARTS
    }
