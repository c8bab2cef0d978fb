"""Write the Pile's member files, one a part. Run by `tools/generate_tasks.py`."""

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
    return {
        f"{part}.yaml": f"include: _pile.yaml\ntask: pile_{part}\ndataset_name: pile_{part}\n"
        for part in PARTS
    }
