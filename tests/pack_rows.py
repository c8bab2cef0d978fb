r"""Generated rows for benchmarks that the published harness has and our library does not have.

`FAMILIES` maps the folder of a benchmark to the tasks to run and the datasets that they read.
`write_rows` writes all rows as a mirror of the hub, which `--data_dir` reads.

The requests and scores of the published harness on these rows are stored in `tests/parity`:

    python -m tests.pack_rows FOLDER      # writes FOLDER/rows and FOLDER/cases.json
    MIRROR=FOLDER/rows PUBLISHED_VENV/bin/python ../shared/parity/record.py \
        FOLDER/cases.json FOLDER/record.json
    python tools/parity_record.py FOLDER/record.json tests/parity/pack_published.json
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.data.mirror import folder_name
from tests.library_rows import (
    Lots,
    Make,
    digits,
    number,
    one_of,
    passage,
    phrase,
    sentence,
    several,
    table,
)

COUNT = 10


@dataclass(frozen=True)
class Data:
    """A dataset, one or several configurations of it, and the function that makes a row."""

    path: str
    configs: tuple[str, ...]
    splits: tuple[str, ...]
    make: Make


@dataclass(frozen=True)
class Family:
    """The tasks, groups and tags of a benchmark that are run, and the datasets that they read.

    `shots` is the number of few-shot examples. It is 0 where examples come from the test split: the
    published harness may then show a question its own answer, and ours does not.
    """

    names: tuple[str, ...]
    data: tuple[Data, ...]
    shots: int = 0

    @property
    def case(self) -> dict[str, Any]:
        """The arguments of `simple_evaluate` for this benchmark."""
        shots = {"num_fewshot": self.shots} if self.shots else {}
        return {"tasks": list(self.names), **shots}


def _family(*names: str, data: Iterable[Data] | Data, shots: int = 0) -> Family:
    return Family(names, (data,) if isinstance(data, Data) else tuple(data), shots)


def _data(path: str, splits: str, make: Make, configs: str = "default") -> Data:
    return Data(path, tuple(configs.split()), tuple(splits.split()), make)


# -- rows that are more than a table ----------------------------------------------------------


def _pronoun(lots: Lots) -> dict[str, Any]:
    start = f"The baker thanked the fisherman because {phrase(lots)} pleased"
    pronoun = lots.choice(["him", "his"])
    return {
        "text": f"{start} {pronoun} at once.",
        "pronoun": pronoun,
        "pronoun_loc": len(start) + 1,
        "options": ["The baker", "The fisherman"],
        "label": lots.randrange(2),
    }


def _exam(lots: Lots) -> dict[str, Any]:
    answers = [{"aid": n, "atext": phrase(lots)} for n in range(1, 5)]
    return {"qtext": sentence(lots), "ra": lots.randint(1, 4), "answers": answers}


def _code(lots: Lots) -> dict[str, Any]:
    codes = [" ".join(lots.sample(["red", "blue", "green", "white"], 2)) for _ in range(4)]
    return {
        "instruction": passage(lots),
        "options": {"label": list("ABCD"), "text": codes},
        "answerKey": lots.choice("ABCD"),
    }


def _feelings(lots: Lots) -> dict[str, Any]:
    feelings = lots.sample(["Joy", "Anger", "Relief", "Envy", "Pride"], 4)
    told: dict[str, Any] = {f"emotion{n}": name for n, name in enumerate(feelings, start=1)}
    told |= {f"emotion{n}_score": lots.randrange(10) for n in range(1, 5)}
    return {"prompt": passage(lots), "reference_answer_fullscale": str(told)}


def _sums(lots: Lots) -> dict[str, Any]:
    letters = "abcde"
    listed = [f"{letter} ) {lots.randrange(900)}" for letter in letters]
    return {"Problem": sentence(lots), "options": " , ".join(listed), "correct": letters[2]}


def _gold_passage(language: str) -> Make:
    return lambda lots: {
        "id": f"{language}-{lots.randrange(10**6)}",
        "title": phrase(lots),
        "context": passage(lots),
        "question": sentence(lots),
        "answers": {"text": [phrase(lots), phrase(lots)], "answer_start": [0, 0]},
    }


def _either(*makes: Make) -> Make:
    return lambda lots: lots.choice(makes)(lots)


# -- the families -----------------------------------------------------------------------------

_LETTERED = table(question=sentence, A=phrase, B=phrase, C=phrase, D=phrase, answer=one_of(*"ABCD"))
_COMPLETION = table(text=passage, value=one_of("seven", "Paris", "a dog"))
_TOLD = table(input=passage, label=number(0, 1))
_CAUSE = table(
    premise=sentence,
    question=one_of("cause", "effect"),
    choice1=sentence,
    choice2=sentence,
    label=number(0, 1),
)
_PAIR = table(sentence_good=sentence, sentence_bad=sentence, sen=sentence, wrong_sen=sentence)
_SECURITY = table(question=sentence, choices=several(phrase, 4), answer=number(0, 3))
_KOREAN_ENDINGS = {f"ending_{n}": phrase for n in range(1, 5)}
#: A file on the hub that a task file names; a mirror keeps it by a digest of its name.
_PROST = "hf://datasets/corypaik/prost/data/default.jsonl"
_KINDS_OF_TEXT = [
    *("ao3_english", "ao3_nonenglish", "bbc_news", "biorxiv_all"),
    *("arxiv_cs", "arxiv_math", "arxiv_other", "arxiv_physics"),
    *("github_cpp", "github_javascript", "github_markdown", "github_other", "github_python"),
    *("wikipedia_english", "wikipedia_nonenglish"),
]

FAMILIES = {
    "aexams": _family(
        "aexams",
        data=_data(
            "Hennara/aexams",
            "dev test",
            _LETTERED,
            "Biology IslamicStudies Physics Science Social",
        ),
        shots=2,
    ),
    "afrimgsm": _family(
        "afrimgsm_swa_prompt_1",
        data=_data(
            "masakhane/afrimgsm",
            "test",
            table(question=sentence, answer=one_of(None), answer_number=number(0, 99)),
            "swa",
        ),
    ),
    "babi": _family(
        "babi",
        data=_data(
            "Muennighoff/babi",
            "train valid test",
            table(passage=passage, question=sentence, answer=one_of("left", "blue", "nothing")),
        ),
        shots=2,
    ),
    "ceval": _family(
        "ceval-valid_law",
        data=_data("ceval/ceval-exam", "dev val", _LETTERED, "law"),
        shots=2,
    ),
    "copal_id": _family(
        "copal_id", data=_data("haryoaw/COPAL", "test test_colloquial", _CAUSE, "id")
    ),
    "eq_bench": _family("eq_bench", data=_data("pbevan11/EQ-Bench", "validation", _feelings)),
    "fda": _family("fda", data=_data("hazyresearch/based-fda", "validation", _COMPLETION)),
    "french_bench": _family(
        "french_bench_fquadv2",
        "french_bench_opus_perplexity",
        data=[
            _data("manu/fquad2_test", "valid test", _gold_passage("fr")),
            _data("manu/opus100-en-fr", "validation test", table(text=passage)),
        ],
    ),
    "galician_bench": _family(
        "galician_bench_flores_en-gl",
        data=_data(
            "facebook/flores",
            "dev devtest",
            table(sentence_eng_Latn=sentence, sentence_glg_Latn=sentence),
            "all",
        ),
        shots=2,
    ),
    "groundcocoa": _family(
        "groundcocoa",
        data=_data(
            "harsh147/GroundCocoa",
            "validation test",
            table(
                **{
                    "query": sentence,
                    "Answer": one_of(*"ABCDE"),
                    **{f"Option {letter}": phrase for letter in "ABCDE"},
                }
            ),
        ),
    ),
    "headqa": _family(
        "headqa",
        data=_data("EleutherAI/headqa", "train validation test", _exam, "en es"),
        shots=2,
    ),
    "hendrycks_ethics": _family(
        "ethics_cm",
        "ethics_utilitarianism",
        "ethics_virtue",
        data=[
            _data("EleutherAI/hendrycks_ethics", "train test", _TOLD, "commonsense"),
            _data(
                "EleutherAI/hendrycks_ethics",
                "train test",
                table(activity=sentence, baseline=sentence),
                "utilitarianism",
            ),
            _data(
                "EleutherAI/hendrycks_ethics",
                "train test",
                table(scenario=sentence, trait=one_of("brave", "shy"), label=number(0, 1)),
                "virtue",
            ),
        ],
        shots=2,
    ),
    "kmmlu": _family(
        "kmmlu_direct_law",
        data=_data(
            "HAERAE-HUB/KMMLU",
            "dev test",
            table(question=sentence, A=phrase, B=phrase, C=phrase, D=phrase, answer=number(1, 4)),
            "Law",
        ),
        shots=2,
    ),
    "kobest": _family(
        "kobest_hellaswag",
        data=_data(
            "skt/kobest_v1",
            "train validation test",
            table(context=sentence, label=number(0, 3), **_KOREAN_ENDINGS),
            "hellaswag",
        ),
        shots=2,
    ),
    "lambada_multilingual": _family(
        "lambada_openai_mt_de",
        data=_data(
            "EleutherAI/lambada_openai",
            "test",
            table(text=lambda lots: passage(lots)[:-1]),
            "de",
        ),
    ),
    "mastermind": _family(
        "mastermind_24_easy",
        data=_data("flair/mastermind_24_mcq_random", "train validation test", _code),
        shots=2,
    ),
    "mathqa": _family(
        "mathqa", data=_data("regisss/math_qa", "train validation test", _sums), shots=2
    ),
    "mc_taco": _family(
        "mc_taco",
        data=_data(
            "CogComp/mc_taco",
            "validation test",
            table(sentence=sentence, question=sentence, answer=phrase, label=number(0, 1)),
        ),
    ),
    "multiblimp": _family(
        "multiblimp_deu", data=_data("jumelet/multiblimp", "train", _PAIR, "deu")
    ),
    "mutual": _family(
        "mutual",
        data=_data(
            "EleutherAI/mutual",
            "train validation",
            table(article=passage, options=several(sentence, 4), answers=one_of(*"ABCD")),
            "mutual",
        ),
        shots=2,
    ),
    "okapi": _family(
        "hellaswag_fr",
        data=_data(
            "alexandrainst/m_hellaswag",
            "val",
            table(
                activity_label=phrase,
                ctx_a=sentence,
                ctx_b=phrase,
                endings=several(lambda lots: f"[step] {sentence(lots)}", 4),
                label=digits(0, 3),
            ),
            "fr",
        ),
    ),
    "pile_10k": _family("pile_10k", data=_data("NeelNanda/pile-10k", "train", table(text=passage))),
    "prost": _family(
        "prost",
        data=_data(
            "json",
            "test",
            table(
                context=passage,
                ex_question=sentence,
                label=number(0, 3),
                **dict.fromkeys("ABCD", phrase),
            ),
            folder_name(None, {"data_files": {"test": _PROST}}),
        ),
    ),
    "simple_cooccurrence_bias": _family(
        "simple_cooccurrence_bias",
        "simple_cooccurrence_bias_gen",
        data=_data(
            "oskarvanderwal/simple-cooccurrence-bias",
            "test",
            table(sentence=lambda lots: f"The clerk who kept {phrase(lots)} was a"),
        ),
    ),
    "squad_completion": _family(
        "squad_completion", data=_data("hazyresearch/based-squad", "validation", _COMPLETION)
    ),
    "swde": _family("swde", data=_data("hazyresearch/based-swde-v2", "validation", _COMPLETION)),
    "tydiqa": _family(
        "tydiqa_goldp_en",
        "tydiqa_goldp_ko",
        data=_data(
            "google-research-datasets/tydiqa",
            "train validation",
            _either(_gold_passage("english"), _gold_passage("korean")),
            "secondary_task",
        ),
        shots=2,
    ),
    "uncheatable_eval": _family(
        "uncheatable_eval",
        data=_data(
            "Jellyfish042/UncheatableEval-2026-07",
            "test",
            table(content=passage),  # one a kind of text: see `rows_of`
        ),
    ),
    "unscramble": _family(
        "anagrams1",
        "reversed_words",
        data=_data(
            "EleutherAI/unscramble",
            "validation",
            table(context=sentence, completion=one_of("seven", "left", "yes")),
            "mid_word_1_anagrams reversed_words",
        ),
    ),
    "winogender": _family(
        "winogender_all",
        "winogender_female",
        data=_data(
            "oskarvanderwal/winogender",
            "test",
            table(
                sentence=sentence,
                pronoun=one_of("she", "he", "they"),
                occupation=one_of("baker", "clerk"),
                participant=one_of("guest", "neighbour"),
                gender=one_of("female", "male"),
                label=number(0, 1),
            ),
            "all",
        ),
    ),
    "wmdp": _family(
        "wmdp", data=_data("cais/wmdp", "test", _SECURITY, "wmdp-bio wmdp-chem wmdp-cyber")
    ),
    "wsc273": _family("wsc273", data=_data("lighteval/winograd_wsc", "test", _pronoun, "wsc273")),
}


def rows_of(data: Data, config: str, split: str) -> list[dict[str, Any]]:
    """Returns rows that are the same in every run and different for every config and split."""
    lots = random.Random(f"{data.path} {config} {split}")
    if "UncheatableEval" in data.path:
        return [{**data.make(lots), "category": kind} for kind in _KINDS_OF_TEXT]
    return [data.make(lots) for _ in range(COUNT)]


def write_rows(folder: Path) -> None:
    """Writes the rows of all benchmarks as Parquet files in the layout of a mirror."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for data in (data for family in FAMILIES.values() for data in family.data):
        for config in data.configs:
            home = folder / data.path / config
            home.mkdir(parents=True, exist_ok=True)
            for split in data.splits:
                rows = pa.Table.from_pylist(rows_of(data, config, split))
                pq.write_table(rows, home / f"{split}.parquet")


def main() -> None:
    folder = Path(sys.argv[1])
    write_rows(folder / "rows")
    # With `json` the published harness asks for files elsewhere, which no mirror keeps for it.
    cases = {
        name: family.case
        for name, family in FAMILIES.items()
        if not any(data.path == "json" for data in family.data)
    }
    (folder / "cases.json").write_text(json.dumps(cases, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
