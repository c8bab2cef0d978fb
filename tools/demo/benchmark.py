"""Writes the documents of the demo tasks, generated from the held-out content.

Run it from the root of the repository: `python -m tools.demo.benchmark`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.demo import lexicon as lex
from tools.demo.draw import PEOPLE, a, pick
from tools.demo.overlap import DATA
from tools.demo.scenes import KINDS, Scene, ask, draw_scene
from tools.demo.sentences import PHENOMENA, draw_pair
from tools.demo.stories import PLOTS, draw_story, draw_tale
from tools.demo.sums import draw_sum

BENCHMARK_SEED = 7
Doc = dict[str, Any]


def choice(rng: random.Random, number: int) -> Doc:
    """Returns a document of `demo_choice`: a scene, a question and four answers.

    The correct answer is a full description. One wrong answer is true of another person in the
    scene; in every second document it is in short form, which models tend to prefer without
    few-shot examples. The other two are not mentioned in the scene.
    """
    kind = KINDS[number % len(KINDS)]
    while True:
        scene = draw_scene(rng, test=True, sizes=(3, 4))
        asked = ask(rng, scene, kind)
        if asked is None or not asked.wrong:
            continue
        absent: list[str] = []
        while len(asked.wrong) + len(absent) < 3:
            extra = _absent(rng, scene, kind, "short")
            if extra not in absent:
                absent.append(extra)
        # Wrong answers have their own random generator. So scenes, questions and the training text
        # do not change when wrong answers are chosen differently.
        aside = random.Random(f"{scene.text} {asked.question}")
        absent = absent or [_absent(aside, scene, kind, "short")]
        present = aside.choice(asked.wrong)[("full", "short")[number % 2]]
        choices = [asked.answer["full"], present, _absent(aside, scene, kind, "full"), absent[0]]
        rng.shuffle(choices)
        return {
            "scene": scene.text,
            "question": asked.question,
            "choices": choices,
            "answer": choices.index(asked.answer["full"]),
            "kind": kind,
        }


def _absent(rng: random.Random, scene: Scene, kind: str, style: str) -> str:
    """Returns a random answer to a question of this `kind` that the scene does not mention.

    `style` is "short" or "full".
    """
    while True:
        if kind.startswith("where"):
            place = pick(rng, lex.PLACES)
            word, answer = place.noun, f"{place.prep} the {place.noun}"
            tails = list(lex.PLACE_TAILS)
        elif kind.startswith("who"):
            word = answer = pick(rng, PEOPLE).name
            tails = [f"the {job.one}" for job in lex.JOBS]
        else:
            word = pick(rng, lex.THINGS).one
            answer, tails = a(word), list(lex.THING_TAILS)
        if word in scene.text:
            continue
        if style == "short":
            return answer
        if kind == "what_has":
            answer = f"{a(rng.choice(lex.COLORS))} {word}"
        return f"{answer} {rng.choice(tails)}"


def pairs(rng: random.Random, number: int) -> Doc:
    """Returns a document of `demo_pairs`: a grammatical and an ungrammatical sentence."""
    phenomenon = list(PHENOMENA)[number % len(PHENOMENA)]
    pair = draw_pair(rng, phenomenon, test=True)
    return {"good": pair.good, "bad": pair.bad, "phenomenon": phenomenon}


def lastword(rng: random.Random, number: int) -> Doc:
    """Returns a document of `demo_lastword`: a story without its last word, and that word."""
    plot = list(PLOTS)[number % len(PLOTS)]
    context, _, word = draw_story(rng, test=True, plots=(plot,)).text.rpartition(" ")
    return {"context": context, "word": word.rstrip("."), "plot": plot}


def stories(rng: random.Random, number: int) -> Doc:
    """Returns a document of `demo_stories`: one to three chapters, or twelve in every fourth one.

    Twelve chapters are longer than the demo model's context.
    """
    return {"text": draw_tale(rng, 12 if number % 4 == 3 else 1 + number % 4, test=True)}


def sums(rng: random.Random, number: int) -> Doc:
    """Returns a document of `demo_sums`: a word problem with one or two calculation steps."""
    drawn = draw_sum(rng, test=True, steps=1 if number % 5 < 3 else 2)
    return {"question": drawn.question, "working": drawn.working, "answer": str(drawn.number)}


FILES: dict[str, tuple[Callable[[random.Random, int], Doc], int]] = {
    "choice_test": (choice, 240),
    "choice_fewshot": (choice, 40),
    "pairs_test": (pairs, 360),
    "lastword_test": (lastword, 240),
    "stories_test": (stories, 40),
    "sums_test": (sums, 200),
    "sums_fewshot": (sums, 40),
}


def make() -> dict[str, list[Doc]]:
    """Returns the documents of each file, by file name. No document occurs twice."""
    seen: set[str] = set()
    made: dict[str, list[Doc]] = {}
    for name, (maker, count) in FILES.items():
        rng = random.Random(f"benchmark {BENCHMARK_SEED} {name}")
        docs: list[Doc] = []
        while len(docs) < count:
            doc = maker(rng, len(docs))
            text = json.dumps(doc, ensure_ascii=False)
            if text not in seen:
                seen.add(text)
                docs.append(doc)
        made[name] = docs
    return made


def write(folder: Path = DATA) -> None:
    """Writes the documents to `folder`, one JSON Lines file per split."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, docs in make().items():
        lines = "".join(json.dumps(doc, ensure_ascii=False) + "\n" for doc in docs)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    write()
