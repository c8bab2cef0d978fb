"""Generated rows in the format of datasets that the tests have no copy of.

`ROWS` maps each dataset to its columns and what they contain. `write_mirror` writes rows as a
mirror of the hub, which `--data_dir` (and the published harness's mirror) reads.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Lots = random.Random
Make = Callable[[Lots], Any]
COUNT = 12

_WHO = [
    "the baker",
    "a quiet fisherman",
    "old Marta",
    "the new clerk",
    "my cousin",
    "Ulrich",
    "a tired nurse",
]
_DOES = [
    "paints",
    "carries",
    "forgets",
    "sells",
    "hides",
    "repairs",
    "counts",
    "borrows",
    "describes",
]
_WHAT = [
    "a green lamp",
    "seven ropes",
    "the wooden box",
    "some bread",
    "a map of the coast",
    "two keys",
]
_WHERE = [
    "near the mill",
    "at dawn",
    "in the cellar",
    "behind the school",
    "after the storm",
    "by boat",
]


def sentence(lots: Lots) -> str:
    words = " ".join(lots.choice(part) for part in (_WHO, _DOES, _WHAT, _WHERE))
    return f"{words[0].upper()}{words[1:]} on day {lots.randrange(1000)}."


def passage(lots: Lots) -> str:
    return " ".join(sentence(lots) for _ in range(4))


def phrase(lots: Lots) -> str:
    return f"{lots.choice(_WHAT)} {lots.choice(_WHERE)} {lots.randrange(1000)}"


def one_of(*values: Any) -> Make:
    return lambda lots: lots.choice(values)


def number(low: int, high: int) -> Make:
    return lambda lots: lots.randint(low, high)


def digits(low: int, high: int) -> Make:
    return lambda lots: str(lots.randint(low, high))


def several(make: Make, count: int) -> Make:
    return lambda lots: [make(lots) for _ in range(count)]


def table(**columns: Make) -> Make:
    return lambda lots: {name: make(lots) for name, make in columns.items()}


def _gap(lots: Lots) -> str:
    return f"{sentence(lots)[:-1]}, because _ was late for {phrase(lots)}."


def _solution(lots: Lots) -> str:
    return f"We add {lots.randrange(9)} and get $\\boxed{{{lots.randrange(100)}}}$."


def _boxed_table(level: str) -> Make:
    return table(problem=sentence, solution=_solution, level=one_of(level), answer=digits(0, 99))


def _race_problems(lots: Lots) -> str:
    def problem(question: str) -> dict[str, Any]:
        options = [phrase(lots) for _ in range(4)]
        return {"question": question, "answer": lots.choice("ABCD"), "options": options}

    gap = sentence(lots)[:-1] + "  _  ."
    return str([problem(sentence(lots)), problem(gap), problem(sentence(lots))])


def _bbq(lots: Lots) -> dict[str, Any]:
    old, young = "the grandfather", "the grandson"
    return {
        "context": passage(lots),
        "question": f"Who forgot {phrase(lots)}?",
        "ans0": old,
        "ans1": young,
        "ans2": lots.choice(["Not known", "Unknown"]),
        "answer_info": {
            "ans0": ["grandfather", "old"],
            "ans1": ["grandson", "nonOld"],
            "ans2": ["x", "unknown"],
        },
        "additional_metadata": {"stereotyped_groups": ["old"], "version": "a"},
        "label": lots.randrange(3),
        "question_polarity": lots.choice(["neg", "nonneg"]),
        "context_condition": lots.choice(["ambig", "disambig"]),
        "category": lots.choice(["Age", "SES"]),
    }


def _drop(lots: Lots) -> dict[str, Any]:
    date = {"day": "", "month": "May", "year": "1912"}
    kinds = [
        {"number": str(lots.randrange(90)), "date": date, "spans": []},
        {"number": "", "date": date, "spans": [phrase(lots), phrase(lots)][: lots.randint(1, 2)]},
        {"number": "", "date": date, "spans": []},
    ]
    answer, *others = (lots.choice(kinds) for _ in range(3))
    validated = {part: [other[part] for other in others] for part in ("number", "date", "spans")}
    return {
        "query_id": str(lots.randrange(10**6)),
        "passage": passage(lots),
        "question": sentence(lots),
        "answer": answer,
        "validated_answers": validated,
    }


def _coqa(lots: Lots) -> dict[str, Any]:
    turns = lots.randint(1, 4)
    said = table(input_text=several(phrase, turns))
    return {
        "story": passage(lots),
        "questions": {"input_text": several(sentence, turns)(lots)},
        "answers": said(lots),
        "additional_answers": {key: said(lots) for key in "012"},
    }


def _record(lots: Lots) -> dict[str, Any]:
    entities = [f"{name} {lots.randrange(99)}" for name in ("Tobias", "Mira", "Fritz", "Anna")]
    return {
        "passage": "\n@highlight\n".join([passage(lots), sentence(lots)[:-1], phrase(lots)]),
        "query": f"@placeholder {phrase(lots)}",
        "entities": [*entities, entities[0]],
        "answers": lots.sample(entities, 2),
        "idx": {"passage": lots.randrange(99), "query": lots.randrange(99)},
    }


def _squad(lots: Lots) -> dict[str, Any]:
    answers = several(phrase, lots.choice([0, 1, 3]))(lots)
    return {
        "id": str(lots.randrange(10**9)),
        "title": phrase(lots),
        "context": passage(lots),
        "question": sentence(lots),
        "answers": {"text": answers, "answer_start": [0] * len(answers)},
    }


def _instructions(lots: Lots) -> dict[str, Any]:
    told = {
        "keywords:existence": {"keywords": ["lamp", "boat"]},
        "length_constraints:number_words": {"num_words": 20, "relation": "at least"},
        "punctuation:no_comma": {},
        "startend:end_checker": {"end_phrase": "Is there anything else?"},
    }
    empty = {"keywords": None, "num_words": None, "relation": None, "end_phrase": None}
    names = lots.sample(sorted(told), 2)
    return {
        "key": lots.randrange(9999),
        "prompt": sentence(lots),
        "instruction_id_list": names,
        "kwargs": [{**empty, **told[name]} for name in names],
    }


def _plus(lots: Lots) -> dict[str, Any]:
    name = f"count_{lots.randrange(1000)}"
    return {
        "task_id": lots.randrange(999),
        "text": sentence(lots),
        "prompt": f'def {name}(words):\n    """{sentence(lots)}"""\n',
        "canonical_solution": "    return len(words)\n",
        "entry_point": name,
        "test": f"def check(candidate):\n    assert candidate([]) == {lots.randrange(9)}\n",
        "code": f"def {name}(words):\n    return len(words)",
        "test_list": [f"assert {name}({'x' * n!r}) == {n}" for n in range(3)],
    }


def _agieval(lots: Lots) -> dict[str, Any]:
    choices = [f"({label}){phrase(lots)}" for label in "ABCD"]
    return {
        "query": f"Q: {sentence(lots)} Answer Choices: {' '.join(choices)}\nA: Among A through D",
        "choices": choices,
        "gold": [lots.randrange(4)],
        "answer": str(lots.randrange(99)),
    }


def _quality(lots: Lots) -> dict[str, Any]:
    choices = several(phrase, 4)(lots)
    listed = " ".join(f"({label}) {text}" for label, text in zip("ABCD", choices, strict=True))
    return {
        "id": str(lots.randrange(10**9)),
        "pid": "0",
        "input": f"{sentence(lots)}\n\n{listed}\n\n{passage(lots)}",
        "output": lots.choice(choices),
    }


def _sum(lots: Lots) -> dict[str, Any]:
    a, b = lots.randrange(99), lots.randrange(99)
    return {"context": f"\n\nQ: What is {a} plus {b}?\n\nA:", "completion": f" {a + b}"}


def _scrolls(output: Make) -> Make:
    return lambda lots: {
        "id": str(lots.randrange(10**9)),
        "pid": "0",
        "input": f"{sentence(lots)}\n\n{passage(lots)}",
        "output": output(lots),
    }


_LETTERS = one_of(*"ABCD")
_STORY = table(
    **{f"input_sentence_{n}": sentence for n in range(1, 5)},
    sentence_quiz1=sentence,
    sentence_quiz2=sentence,
    answer_right_ending=number(1, 2),
)
_ENDINGS = {f"ending{n}": phrase for n in range(4)}
_TEXT = table(text=passage)

#: By data set, or by data set and configuration where these differ.
ROWS: dict[str, Make] = {
    "DigitalLearningGmbH/MATH-lighteval": _boxed_table("Level 5"),
    "EleutherAI/coqa": _coqa,
    "EleutherAI/drop": _drop,
    "EleutherAI/pile": _TEXT,
    "EleutherAI/race": table(article=passage, problems=_race_problems),
    "GBaker/MedQA-USMLE-4-options-hf": table(sent1=sentence, label=number(0, 3), **_ENDINGS),
    "HuggingFaceH4/MATH-500": _boxed_table("5"),
    "IWSLT/iwslt2017": table(translation=table(en=sentence, ar=sentence)),
    "Idavidrein/gpqa": table(
        **{
            "Question": sentence,
            "Correct Answer": phrase,
            **{f"Incorrect Answer {n}": phrase for n in (1, 2, 3)},
        }
    ),
    "LSDSem/story_cloze": _STORY,
    "Maxwell-Jia/AIME_2024": table(Problem=sentence, Answer=number(0, 999)),
    "Muennighoff/xwinograd": table(
        sentence=_gap, option1=phrase, option2=phrase, answer=one_of("1", "2")
    ),
    "TAUR-Lab/MuSR": lambda lots: {
        "narrative": passage(lots),
        "question": sentence(lots),
        "choices": str(choices := several(phrase, 3)(lots)),
        "answer_choice": lots.choice(choices),
    },
    "TIGER-Lab/MMLU-Pro": lambda lots: {
        "question": sentence(lots),
        "options": several(phrase, lots.randint(3, 10))(lots),
        "answer": lots.choice("ABC"),
        "category": "",  # set by `_by_category`
        "cot_content": f"A: Let's think step by step. {sentence(lots)} The answer is (B).",
    },
    "allenai/c4": _TEXT,
    "allenai/paloma": _TEXT,
    "allenai/swag": table(startphrase=sentence, label=number(0, 3), **_ENDINGS),
    "aps/super_glue/record": _record,
    "baber/logiqa2/logieval": table(content=passage, ideal=_LETTERS),
    "cimec/lambada": table(text=lambda lots: passage(lots)[:-1]),
    "evalplus/humanevalplus": _plus,
    "evalplus/mbppplus": _plus,
    "facebook/belebele": table(
        flores_passage=passage,
        question=sentence,
        correct_answer_num=one_of(*"1234"),
        **{f"mc_answer{n}": phrase for n in range(1, 5)},
    ),
    "facebook/xnli": table(premise=sentence, hypothesis=sentence, label=number(0, 2)),
    "gneubig/aime-1983-2024": table(Question=sentence, Answer=digits(0, 999)),
    "google-research-datasets/mbpp": _plus,
    "google-research-datasets/paws-x": table(
        sentence1=lambda lots: f"{phrase(lots)} , {phrase(lots)} .",
        sentence2=sentence,
        label=number(0, 1),
    ),
    "hails/agieval": _agieval,
    "jannalu/crows_pairs_multilingual": table(
        sent_more=sentence,
        sent_less=sentence,
        bias_type=one_of("age", "gender", "religion"),  # the rest by `_by_category`
    ),
    "juletxara/xstory_cloze": _STORY,
    "lighteval/squad_v2": _squad,
    "madrylab/gsm8k-platinum": table(
        question=sentence, answer=lambda lots: f"{sentence(lots)}\n#### {lots.randrange(99)}"
    ),
    "math-ai/aime25": table(problem=sentence, answer=digits(0, 999)),
    "nyu-mll/glue/mnli": table(premise=sentence, hypothesis=phrase, label=number(0, 2)),
    "nyu-mll/glue/qnli": table(question=sentence, sentence=sentence, label=number(0, 1)),
    "nyu-mll/glue/qqp": table(question1=sentence, question2=sentence, label=number(0, 1)),
    "nyu-mll/glue/wnli": table(sentence1=sentence, sentence2=sentence, label=number(0, 1)),
    "openlifescienceai/medmcqa": table(
        question=sentence, opa=phrase, opb=phrase, opc=phrase, opd=phrase, cop=number(0, 3)
    ),
    "oskarvanderwal/bbq": _bbq,
    "skg/toxigen-data": table(text=sentence, toxicity_ai=number(1, 5), toxicity_human=number(1, 5)),
    "stanfordnlp/web_questions": table(question=sentence, answers=several(phrase, 3)),
    "tau/scrolls/contract_nli": _scrolls(one_of("Not mentioned", "Entailment", "Contradiction")),
    "tau/scrolls/qasper": _scrolls(one_of("Yes", "no", "A lamp", "Unanswerable")),
    "tau/scrolls/quality": _quality,
    "tau/scrolls": _scrolls(sentence),
    "wis-k/instruction-following-eval": _instructions,
    "wmt/wmt14": table(translation=table(en=sentence, fr=sentence)),
    "wmt/wmt16/de-en": table(translation=table(en=sentence, de=sentence)),
    "wmt/wmt16/ro-en": table(translation=table(en=sentence, ro=sentence)),
    "EleutherAI/arithmetic": _sum,
}

#: Data sets of which a task keeps one category: all of them have rows.
_CATEGORIES = {
    "TIGER-Lab/MMLU-Pro": (
        "category",
        [
            "biology",
            "business",
            "chemistry",
            "computer science",
            "economics",
            "engineering",
            "health",
            "history",
            "law",
            "math",
            "other",
            "philosophy",
            "physics",
            "psychology",
        ],
    ),
    "jannalu/crows_pairs_multilingual": (
        "bias_type",
        [
            "age",
            "autre",
            "disability",
            "gender",
            "nationality",
            "physical-appearance",
            "race-color",
            "religion",
            "sexual-orientation",
            "socioeconomic",
        ],
    ),
}


def maker(path: str, config: str) -> Make | None:
    """Returns the generator of a dataset's rows, by the longest matching name; None without one."""
    full = f"{path}/{config}"
    fitting = [name for name in ROWS if full.startswith(name)]
    return ROWS[max(fitting, key=len)] if fitting else None


def rows_of(path: str, config: str, split: str) -> list[dict[str, Any]]:
    """Returns rows that are the same in every run and different for every split."""
    make = maker(path, config)
    assert make is not None, f"{path}: describe its rows in tests/library_rows.py"
    lots = random.Random(f"{path} {split}")
    column, values = _CATEGORIES.get(path, ("", []))
    if not values:
        return [make(lots) for _ in range(COUNT)]
    return [{**make(lots), column: value} for value in values for _ in range(COUNT // 2)]


def write_mirror(folder: Path, wanted: Iterable[tuple[str, str, str]]) -> None:
    """Writes splits `(path, config, split)` as Parquet files in the layout of a mirror."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made: dict[tuple[str, int], bytes] = {}
    for path, config, split in wanted:
        home = folder / path / config
        home.mkdir(parents=True, exist_ok=True)
        file = home / f"{split}.parquet"
        key = (f"{path} {split}", id(maker(path, config)))
        if key not in made:
            pq.write_table(pa.Table.from_pylist(rows_of(path, config, split)), file)
            made[key] = file.read_bytes()
        else:
            file.write_bytes(made[key])


def write_jsonl(file: Path, path: str) -> None:
    rows = rows_of(path, "default", "validation")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
