"""Inputs for the functions that task code imports, and what a function returns for each.

`tools/record_helpers.py` runs them with the published harness; `tests/test_helpers.py` compares
ours with that record. The inputs are made of short pieces by a fixed random sequence; none is from
a benchmark.
"""

from __future__ import annotations

import functools
import importlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Inputs = Callable[[random.Random], Iterator[tuple[Any, ...]]]

_LATEX = (
    *["\\frac", "\\dfrac", "\\sqrt", "\\boxed{", "\\boxed ", "\\fbox{", "{", "}", "{}", "$", "/"],
    *["1", "2", "10", "0.5", ".5", "-3", "x", "y", " ", "=", "x = ", "\\text{ cm}", "\\left(", ")"],
    *["\\right", "^\\circ", "^{\\circ}", "\\%", "\\$", ",", "\\!", "\\\\", "\n", "1/2", "a/b"],
    *[
        "\\text{and}",
        "100,000",
        "0,1",
        "units",
        "cm",
        "\\pi",
        "an ",
        "a ",
        "\\mathrm{th}",
        "sqrt[3]",
    ],
    *["mbox", "\\overline{", "\\textbf{", "\\ ", ".$", "ft", "\\ldots", "square", "{,}", '"'],
)
_WORDS = (
    *["the", "a", "An", "cat", "Cat!", "dog's", "3", "3.0", "1,000", "-2", "U.S.", "red-hot", "x"],
    *["", " ", "\n", "  ", "(yes)", "no.", "I have no comment.", "é", "ß", "1e3", "nan", "May 5"],
)
_RESPONSE = (
    *["Yes, it is. ", "no ", "WORD ", "word ", "* point\n", "- point\n", "***", "******", "\n\n"],
    *["\n", "P.S. ", "P.P.S ", "[name] ", "<<title>> ", "Section 1 ", "SECTION 2\n", "*bold* "],
    *["**strong** ", '"', "My answer is yes.", "My answer is no. ", '{"a": 1}', "```json\n", "```"],
    *[
        "banana ",
        "Banana, ",
        "the end",
        "e",
        "E",
        "a",
        "1 2 3 ",
        "Is that all? ",
        "'quoted' ",
        "<<",
    ],
)


def _joined(rng: random.Random, pieces: tuple[str, ...], most: int) -> str:
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, most)))


def _latex(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(1500):
        yield (_joined(rng, _LATEX, rng.choice((2, 4, 8))),)


def _latex_pairs(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    """Yields pairs that are often alike: the second is the first with one piece changed."""
    yield from ((None, None), ("1", None), (None, "1"), ("", ""), (1, 1))
    for _ in range(1500):
        pieces = [rng.choice(_LATEX) for _ in range(rng.randint(1, 5))]
        other = list(pieces)
        if rng.random() < 0.7:
            other[rng.randrange(len(other))] = rng.choice(_LATEX)
        yield "".join(pieces), "".join(other)


_BALANCED = tuple(piece for piece in _LATEX if "{" not in piece and "}" not in piece)


def _solutions(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(600):
        answer = _joined(rng, _BALANCED, 3)
        solution = f"It is $\\boxed{{{answer}}}$."
        response = rng.choice((f"So ${answer}$.", answer, _joined(rng, _LATEX, 4)))
        yield {"problem": "?", "solution": solution}, [response]


def _final_answers(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(400):
        inside = _joined(rng, _LATEX, 3)
        told = f"Final Answer: The final answer is ${inside}$. I hope it is correct."
        yield (rng.choice((told, told[:-10], inside, f"{inside}\n{told}\n{told}")),)


def _formula(rng: random.Random) -> str:
    return rng.choice(("1", "2", "x", "\\frac{1}{2}", "0.5", "x+x", "2x", "\\sqrt{4}", "(1,2)"))


def _formulas(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(60):
        yield _formula(rng), _formula(rng)


def _responses(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(40):
        solution, told = f"So $\\boxed{{{(gold := _formula(rng))}}}$.", _formula(rng)
        doc = {"problem": "?", "solution": solution, "answer": gold}
        yield doc, [f"Final Answer: The final answer is ${told}$. I hope it is correct."]


def _answers(rng: random.Random, most: int = 4) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(0, most)))


def _drop_pairs(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(1500):
        sides = [[_answers(rng) for _ in range(rng.randint(1, 3))] for _ in range(2)]
        yield tuple(side[0] if rng.random() < 0.3 else side for side in sides)


def _drop_answer(rng: random.Random) -> dict[str, Any]:
    date = {"day": rng.choice(("", "5")), "month": rng.choice(("", "May")), "year": "1990"}
    spans = [_answers(rng, 2) for _ in range(rng.randint(0, 2))]
    return {"number": rng.choice(("", "", "3")), "date": date, "spans": spans}


def _drop_docs(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(300):
        others = [_drop_answer(rng) for _ in range(rng.randint(0, 2))]
        validated = {key: [one[key] for one in others] for key in ("number", "date", "spans")}
        yield ({"answer": _drop_answer(rng), "validated_answers": validated},)


def _drop_results(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(300):
        golds = [tuple(_answers(rng, 2) for _ in range(rng.randint(1, 2))) for _ in range(2)]
        yield {"answers": golds}, [_answers(rng)]


def _coqa_docs(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(300):
        turns = rng.randint(1, 3)
        said = [[rng.choice(_WORDS) for _ in range(turns)] for _ in range(4)]
        more = {str(n): {"input_text": said[n]} for n in range(2, rng.randint(2, 4))}
        doc = {
            "story": "Once.",
            "questions": {"input_text": said[0]},
            "answers": {"input_text": said[1]},
            "additional_answers": more,
        }
        yield doc, [_answers(rng)]


def _first(inputs: Inputs) -> Inputs:
    """Returns inputs with only the first argument of each."""
    return lambda rng: (arguments[:1] for arguments in inputs(rng))


def _gold_lists(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(300):
        yield [_answers(rng, 2) for _ in range(rng.randint(1, 4))], _answers(rng, 2)


def _texts(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    pieces = (" [title] ", "[step]", "[", "]", "  ", "word", " Word", ".", "\n")
    for _ in range(300):
        yield (_joined(rng, pieces, 7),)


def _choices(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(100):
        count = rng.randint(1, 4)
        labels = [1, *(rng.randint(0, 1) for _ in range(count - 1))]
        likelihoods = [(-rng.randint(0, 400) / 16, bool(rng.getrandbits(1))) for _ in labels]
        yield {"mc2_targets": {"labels": labels}}, likelihoods


def _questions(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(150):
        answers = [[_answers(rng, 3) + "x" for _ in range(rng.randint(1, 3))] for _ in range(2)]
        doc = {"question": f" {_answers(rng)} ", "correct_answers": answers[0]}
        yield {**doc, "incorrect_answers": answers[1]}, [_answers(rng, 5)]


def _exam_questions(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(100):
        example = {
            "question": _answers(rng),
            "options": [_answers(rng, 2) for _ in range(rng.randint(0, 12))],
            "cot_content": f"A: Let's think step by step. {_answers(rng)}",
        }
        yield example, bool(rng.getrandbits(1))


def _programs(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    pieces = ("```", "```python\n", "\n", "def f():", " return 1", "```text")
    for _ in range(200):
        yield (_joined(rng, pieces, 6),)


def _predictions(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for texts in _programs(rng):
        yield [list(texts)], [{"prompt": "def g():\n"}]


#: The settings of each instruction of IFEval that needs no download in the published harness.
_INSTRUCTIONS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "keywords:existence": lambda rng: {"keywords": rng.sample(["banana", "word", "end"], 2)},
    "keywords:frequency": lambda rng: {
        "keyword": rng.choice(("banana", " word ")),
        "frequency": rng.randint(1, 3),
        "relation": rng.choice(("less than", "at least")),
    },
    "keywords:forbidden_words": lambda rng: {
        "forbidden_words": rng.sample(["yes", "no", "all"], 2)
    },
    "keywords:letter_frequency": lambda rng: {
        "letter": rng.choice("aeE"),
        "let_frequency": rng.randint(1, 5),
        "let_relation": rng.choice(("less than", "at least")),
    },
    "language:response_language": lambda rng: {"language": rng.choice(("en", "de"))},
    "length_constraints:number_paragraphs": lambda rng: {"num_paragraphs": rng.randint(1, 3)},
    "length_constraints:number_words": lambda rng: {
        "num_words": rng.randint(1, 15),
        "relation": rng.choice(("less than", "at least")),
    },
    "length_constraints:nth_paragraph_first_word": lambda rng: {
        "num_paragraphs": (count := rng.randint(1, 3)),
        "nth_paragraph": rng.randint(1, count),
        "first_word": rng.choice(("Word", "yes", "banana")),
    },
    "detectable_content:number_placeholders": lambda rng: {"num_placeholders": rng.randint(1, 3)},
    "detectable_content:postscript": lambda rng: {
        "postscript_marker": rng.choice(("P.S.", "P.P.S", "the"))
    },
    "detectable_format:number_bullet_lists": lambda rng: {"num_bullets": rng.randint(1, 3)},
    "detectable_format:constrained_response": lambda rng: {},
    "detectable_format:number_highlighted_sections": lambda rng: {
        "num_highlights": rng.randint(1, 3)
    },
    "detectable_format:multiple_sections": lambda rng: {
        "section_spliter": rng.choice(("Section", "SECTION")),
        "num_sections": rng.randint(1, 2),
    },
    "detectable_format:json_format": lambda rng: {},
    "detectable_format:title": lambda rng: {},
    "combination:two_responses": lambda rng: {},
    "combination:repeat_prompt": lambda rng: {"prompt_to_repeat": rng.choice(("Yes, ", "no"))},
    "startend:end_checker": lambda rng: {"end_phrase": rng.choice((" the end ", "End", "all?"))},
    "change_case:english_capital": lambda rng: {},
    "change_case:english_lowercase": lambda rng: {},
    "punctuation:no_comma": lambda rng: {},
    "startend:quotation": lambda rng: {},
}


def _instructed(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for _ in range(600):
        names = rng.sample(sorted(_INSTRUCTIONS), 3)
        settings = [{**_INSTRUCTIONS[name](rng), "other": None} for name in names]
        doc = {"key": 1, "prompt": "?", "instruction_id_list": names, "kwargs": settings}
        yield doc, [_joined(rng, _RESPONSE, 8)]


def _checked(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for name in sorted(_INSTRUCTIONS):
        for _ in range(40):
            yield name, _INSTRUCTIONS[name](rng), _joined(rng, _RESPONSE, 8)


MATH = "hendrycks_math.utils"
#: For each function, its inputs.
CASES: dict[str, Inputs] = {
    f"{MATH}.last_boxed_only_string": _latex,
    f"{MATH}.remove_boxed": _latex,
    f"{MATH}.strip_string": _latex,
    f"{MATH}.fix_fracs": _latex,
    f"{MATH}.fix_sqrt": _latex,
    f"{MATH}.fix_a_slash_b": _latex,
    f"{MATH}.remove_right_units": _latex,
    f"{MATH}.is_equiv": _latex_pairs,
    f"{MATH}.process_results": _solutions,
    "minerva_math.utils.last_boxed_only_string": _latex,
    "minerva_math.utils.remove_boxed": _latex,
    "minerva_math.utils.normalize_final_answer": _latex,
    "minerva_math.utils.get_unnormalized_answer": _final_answers,
    "minerva_math.utils.doc_to_text": _first(_solutions),
    "minerva_math.utils.is_equiv": _formulas,
    "minerva_math.utils.process_results": _responses,
    "drop.utils.get_metrics": _drop_pairs,
    "drop.utils.get_answers": _drop_docs,
    "drop.utils.process_results": _drop_results,
    "coqa.utils.doc_to_text": _first(_coqa_docs),
    "coqa.utils.doc_to_target": _first(_coqa_docs),
    "coqa.utils.em": _gold_lists,
    "coqa.utils.compute_scores": _gold_lists,
    "coqa.utils.process_results": _coqa_docs,
    "hellaswag.utils.preprocess": _texts,
    "truthfulqa.utils.process_results_mc2": _choices,
    "truthfulqa.utils.preprocess_function": _first(_questions),
    "truthfulqa.utils.process_results_gen": _questions,
    "mmlu_pro.utils.format_cot_example": _exam_questions,
    "mmlu_pro.utils.format_cot_target": _exam_questions,
    "mmlu_pro.utils.doc_to_text": _first(_exam_questions),
    "mmlu_pro.utils.fewshot_to_target": _first(_exam_questions),
    "humaneval.utils.build_predictions": _predictions,
    "humaneval.utils.build_predictions_instruct": _predictions,
    "mbpp.utils.extract_code_blocks": _programs,
    "mbpp.utils.build_predictions": _predictions,
    "ifeval.utils.process_results": _instructed,
    "ifeval.utils.test_instruction_following_strict": _instructed,
    "ifeval.utils.test_instruction_following_loose": _instructed,
    "ifeval.instructions_registry.INSTRUCTION_DICT": _checked,
}


def outcomes(name: str) -> list[str]:
    """Returns what the function `name` returns for each of its inputs, as JSON, or "error"."""
    module, _, attribute = f"lm_eval.tasks.{name}".rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    function = found
    if attribute == "INSTRUCTION_DICT":
        function = functools.partial(_check_with_class, found)
    elif attribute.startswith("test_instruction"):
        function = functools.partial(_check_example, found)
    # A random sequence of its own for each function, so that cases can be added.
    return [_outcome(function, arguments) for arguments in CASES[name](random.Random(name))]


def _check_with_class(
    classes: dict[str, Any], name: str, settings: dict[str, Any], text: str
) -> Any:
    """Returns the settings of an instruction, and whether a response follows it."""
    instruction = classes[name](name)
    assert isinstance(instruction.build_description(**settings), str)
    keys, values = instruction.get_instruction_args_keys(), instruction.get_instruction_args()
    return [sorted(keys), values, bool(instruction.check_following(text))]


def _check_example(function: Callable[..., Any], doc: dict[str, Any], results: list[str]) -> Any:
    utils = importlib.import_module("lm_eval.tasks.ifeval.utils")
    return vars(function(utils.InputExample(**doc), results[0]))


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    try:
        return json.dumps(_plain(function(*arguments)), sort_keys=True)
    except Exception:
        return "error"


def _plain(value: Any) -> Any:
    """Returns a value made of plain Python types; numbers are rounded to twelve digits."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return round(float(value), 12)
