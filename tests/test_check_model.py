"""Tests of `lm-eval check-model`: a faulty class is found out, and a sound one is not."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.model import LM
from lm_eval.cli import main
from lm_eval.errors import ConfigError
from lm_eval.models.contract.texts import FILLER, PAIRS, PROMPTS, TEXTS
from lm_eval.models.demo import DemoLM
from lm_eval.models.dummy import DummyLM
from lm_eval.models.scripted import ScriptedLM

CORPUS = " ".join([*("".join(pair) for pair in PAIRS), *(t for (t,) in TEXTS), *PROMPTS, FILLER])


class Sound(LM):
    """A character model that looks at the last two characters, and reads at most 200."""

    max_length = 200

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        for size in (0, 1, 2):
            for place in range(len(CORPUS) - size):
                self.counts[CORPUS[place : place + size]][CORPUS[place + size]] += 1

    def distribution(self, before: str) -> Counter[str]:
        known = (before[-size:] for size in (2, 1) if len(before) >= size)
        return next((self.counts[k] for k in known if k in self.counts), self.counts[""])

    def log_probability(self, before: str, character: str) -> float:
        counts = self.distribution(before[-self.max_length :])
        return math.log((0.9 * counts[character] + 0.001) / (counts.total() + 0.2))

    def likeliest(self, before: str) -> str:
        counts = self.distribution(before[-self.max_length :])
        return min(counts, key=lambda character: (-counts[character], character))

    def score(self, context: str, rest: str) -> tuple[float, bool]:
        total, greedy = 0.0, True
        for character in rest:
            total += self.log_probability(context, character)
            greedy = greedy and character == self.likeliest(context)
            context += character
        return total, greedy

    def text(self, context: str, settings: dict[str, Any]) -> str:
        stops = settings.get("until") or []
        stops = [stops] if isinstance(stops, str) else stops
        text = ""
        while len(text) < settings.get("max_gen_toks", 64):
            text += self.likeliest(context + text)
            if any(stop in text for stop in stops):
                break
        return min([text, *(text.partition(stop)[0] for stop in stops)], key=len)

    def loglikelihood(self, requests: Any) -> Any:
        found = [self.score(*request.args) for request in requests]
        return self.reported("loglikelihood", requests, found)

    def loglikelihood_rolling(self, requests: Any) -> Any:
        found = [self.score("", request.args[0])[0] for request in requests]
        return self.reported("loglikelihood_rolling", requests, found)

    def generate_until(self, requests: Any) -> Any:
        found = [self.text(*request.args) for request in requests]
        return self.reported("generate_until", requests, found)

    def reported(self, kind: str, requests: Any, answers: list[Any]) -> list[Any]:
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial(kind, request.args, answer)
        return answers

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        turns = "".join(f"<{turn['role']}>{turn['content']}" for turn in chat_history)
        return f"{turns}<assistant>" if add_generation_prompt else turns

    @property
    def tokenizer_name(self) -> str:
        return "characters"


def test_a_sound_class_has_no_problem() -> None:
    report = lm_eval.check_model(Sound())
    assert report.problems == []
    assert [check.name for check in report.checks if check.skipped] == []


# -- faults, each in a class of its own -----------------------------------------------------------

FAULTS: dict[str, type[Sound]] = {}


def fault(*checks: str) -> Any:
    """Registers a class with a fault, and the names of the checks that must find it."""

    def register(faulty: type[Sound]) -> type[Sound]:
        for check in checks:
            FAULTS[check] = faulty
        return faulty

    return register


@fault("answers (loglikelihood_rolling)")
class ReturnsPairsForTexts(Sound):
    def loglikelihood_rolling(self, requests: Any) -> Any:
        return [(score, False) for score in super().loglikelihood_rolling(requests)]


@fault("answers (loglikelihood)")
class ReturnsLosses(Sound):
    def loglikelihood(self, requests: Any) -> Any:
        return [(-score, greedy) for score, greedy in super().loglikelihood(requests)]


@fault("answers (generate_until)")
class ReturnsTokens(Sound):
    def generate_until(self, requests: Any) -> Any:
        return [list(text) for text in super().generate_until(requests)]


@fault("order (loglikelihood)")
class SortsRequests(Sound):
    def loglikelihood(self, requests: Any) -> Any:
        return super().loglikelihood(sorted(requests, key=lambda request: len(request.args[1])))


@fault("repeated requests (loglikelihood)")
class AnswersDistinctRequests(Sound):
    def loglikelihood(self, requests: Any) -> Any:
        return super().loglikelihood(list({request.args: request for request in requests}.values()))


@fault("same answers twice (generate_until)")
class Samples(Sound):
    generator = random.Random(0)

    def likeliest(self, before: str) -> str:
        counts = self.distribution(before)
        return self.generator.choices(list(counts), list(counts.values()))[0]


@fault("other requests of a call (loglikelihood)")
class ReadsPadding(Sound):
    def reported(self, kind: str, requests: Any, answers: list[Any]) -> list[Any]:
        if kind == "loglikelihood":
            lengths = [len("".join(request.args)) for request in requests]
            pads = [0.5 * (max(lengths) - length) for length in lengths]
            answers = [(a[0] - pad, a[1]) for a, pad in zip(answers, pads, strict=True)]
        return super().reported(kind, requests, answers)


@fault("arguments unchanged (generate_until)")
class TakesSettingsOut(Sound):
    def text(self, context: str, settings: dict[str, Any]) -> str:
        found = super().text(context, settings)
        settings.pop("until", None)
        return found


@fault("reported answers (generate_until)")
class ReportsBeforeCutting(Sound):
    def reported(self, kind: str, requests: Any, answers: list[Any]) -> list[Any]:
        longer = [f"{answer}." if kind == "generate_until" else answer for answer in answers]
        super().reported(kind, requests, longer)
        return answers


@fault("empty context")
class NeedsAContext(Sound):
    def score(self, context: str, rest: str) -> tuple[float, bool]:
        assert context[-1]
        return super().score(context, rest)

    def loglikelihood_rolling(self, requests: Any) -> Any:
        return [Sound.score(self, "", request.args[0])[0] for request in requests]


@fault("unusual characters")
class KnowsOneAlphabet(Sound):
    def log_probability(self, before: str, character: str) -> float:
        if ord(character) > 127:
            raise KeyError(character)
        return super().log_probability(before, character)


@fault("sums of log-likelihoods")
class Averages(Sound):
    def loglikelihood(self, requests: Any) -> Any:
        found = super().loglikelihood(requests)
        lengths = [len(request.args[1]) for request in requests]
        return [(score / n, greedy) for (score, greedy), n in zip(found, lengths, strict=True)]

    def reported(self, kind: str, requests: Any, answers: list[Any]) -> list[Any]:
        return answers


@fault("probabilities up to 1")
class ScoresTheFirstToken(Sound):
    def score(self, context: str, rest: str) -> tuple[float, bool]:
        return -0.1 * len(rest), super().score(context, rest)[1]


class AlwaysGreedy(Sound):
    def score(self, context: str, rest: str) -> tuple[float, bool]:
        return super().score(context, rest)[0], True


@fault("is_greedy")
class NeverGreedy(Sound):
    def score(self, context: str, rest: str) -> tuple[float, bool]:
        return super().score(context, rest)[0], False


@fault("rolling log-likelihood")
class AveragesTexts(Sound):
    def loglikelihood_rolling(self, requests: Any) -> Any:
        return [Sound.score(self, "", r.args[0])[0] / len(r.args[0]) for r in requests]


class SkipsTheFirstToken(Sound):
    def loglikelihood_rolling(self, requests: Any) -> Any:
        return [Sound.score(self, r.args[0][:1], r.args[0][1:])[0] for r in requests]


@fault("long context")
class KeepsTheBeginning(Sound):
    def score(self, context: str, rest: str) -> tuple[float, bool]:
        return super().score(context[: self.max_length], rest)


class FailsOnLongContexts(Sound):
    def score(self, context: str, rest: str) -> tuple[float, bool]:
        if len(context) > self.max_length:
            raise IndexError("index out of range in self")
        return super().score(context, rest)

    def loglikelihood_rolling(self, requests: Any) -> Any:
        return [Sound.score(self, "", request.args[0])[0] for request in requests]


@fault("long text")
class ReadsOneWindow(Sound):
    def loglikelihood_rolling(self, requests: Any) -> Any:
        return [Sound.score(self, "", r.args[0][-self.max_length :])[0] for r in requests]


@fault("long prompt")
class FailsOnLongPrompts(Sound):
    def text(self, context: str, settings: dict[str, Any]) -> str:
        assert len(context) < self.max_length
        return super().text(context, settings)


@fault("stop strings")
class KeepsTheStopString(Sound):
    def text(self, context: str, settings: dict[str, Any]) -> str:
        text = super().text(context, {**settings, "until": []})
        stops = settings.get("until") or []
        for stop in [stops] if isinstance(stops, str) else stops:
            head, found, _ = text.partition(stop)
            text = head + found
        return text


class TakesAStopStringForLetters(Sound):
    def text(self, context: str, settings: dict[str, Any]) -> str:
        return super().text(context, {**settings, "until": list(settings.get("until") or [])})


class StopsAtTheFirstInTheList(Sound):
    def text(self, context: str, settings: dict[str, Any]) -> str:
        stops = settings.get("until") or []
        first = stops if isinstance(stops, str) else stops[:1]
        return super().text(context, {**settings, "until": first})


@fault("maximum length")
class IgnoresTheLength(Sound):
    def text(self, context: str, settings: dict[str, Any]) -> str:
        return super().text(context, {**settings, "max_gen_toks": 64})


@fault("missing settings")
class NeedsStopStrings(Sound):
    def text(self, context: str, settings: dict[str, Any]) -> str:
        assert isinstance(settings["until"], (list, str))
        return super().text(context, settings)


@fault("only the answer")
class RepeatsThePrompt(Sound):
    def generate_until(self, requests: Any) -> Any:
        found = super().generate_until(requests)
        return [r.args[0] + text for r, text in zip(requests, found, strict=True)]

    def reported(self, kind: str, requests: Any, answers: list[Any]) -> list[Any]:
        return answers


@fault("chat template")
class DropsTurns(Sound):
    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        return super().apply_chat_template(chat_history[-1:], add_generation_prompt)


class ClosesTheLastMessage(Sound):
    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        return super().apply_chat_template(chat_history, True)


class HasNoTokenizerName(Sound):
    @property
    def tokenizer_name(self) -> str:
        raise NotImplementedError


MORE_FAULTS = [
    ("is_greedy", AlwaysGreedy),
    ("rolling log-likelihood", SkipsTheFirstToken),
    ("long context", FailsOnLongContexts),
    ("stop strings", TakesAStopStringForLetters),
    ("stop strings", StopsAtTheFirstInTheList),
    ("chat template", ClosesTheLastMessage),
    ("chat template", HasNoTokenizerName),
]


@pytest.mark.parametrize(
    ("check", "faulty"),
    [*FAULTS.items(), *MORE_FAULTS],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_fault_is_found_by_its_check(check: str, faulty: type[Sound]) -> None:
    report = lm_eval.check_model(faulty())
    found = {result.name for result in report.checks if result.problems}
    assert check in found, report


def test_a_class_with_twelve_faults_is_told_all_of_them() -> None:
    """The faults do not hide each other: none of them is in the form of the answers."""
    parts = (
        *(NeedsStopStrings, SortsRequests, ReadsPadding, ReportsBeforeCutting, TakesSettingsOut),
        *(KnowsOneAlphabet, NeverGreedy, AveragesTexts, KeepsTheBeginning, KeepsTheStopString),
        *(IgnoresTheLength, DropsTurns),
    )
    expected = {name for name, faulty in FAULTS.items() if faulty in parts}
    assert len(expected) == 12
    report = lm_eval.check_model(type("Faulty", parts, {})())
    assert expected <= {check.name for check in report.checks if check.problems}


@pytest.mark.parametrize(
    "lm",
    [
        DemoLM(),
        DemoLM(max_length=64),
        DummyLM(),
        ScriptedLM(
            loglikelihood=lambda context, continuation: (-1.0, False),
            rolling=lambda text: -2.0,
            generate=lambda context, settings: "42",
        ),
        ScriptedLM(generate=lambda context, settings: "42"),
    ],
    ids=["demo", "demo-short", "dummy", "scripted", "scripted-text-only"],
)
def test_the_models_of_the_package_have_no_problem(lm: Any) -> None:
    assert lm_eval.check_model(lm).problems == []


def test_a_class_that_answers_nothing_is_told_so() -> None:
    report = lm_eval.check_model(ScriptedLM())
    assert report.problems == ["answers: ScriptedLM answers none of the three types of requests."]


def test_only_an_object_can_be_checked() -> None:
    with pytest.raises(ConfigError, match="pass an instance"):
        lm_eval.check_model(Sound)  # type: ignore[arg-type]


def test_checking_leaves_the_random_state_alone() -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    lm_eval.check_model(ScriptedLM(generate=lambda *_: "x"))
    assert random.random() == expected


MODEL_FILE = """
from lm_eval.api.model import LM

class Constant(LM):
    def __init__(self, score=-1.0):
        super().__init__()
        self.score = score

    def loglikelihood(self, requests):
        return [(self.score, False) for _ in requests]

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError

    def generate_until(self, requests):
        raise NotImplementedError

class Fixed(Constant):
    stand_in = True
"""


def test_the_command_prints_a_report_and_its_exit_code_tells_the_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constant_model.py").write_text(MODEL_FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["check-model", "constant_model.py:Constant"]) == 1
    out = capsys.readouterr().out
    assert "have a probability of" in out
    assert "the class does not implement generate_until" in out
    assert main(["check-model", "constant_model:Fixed", "--model_args", "score=-3"]) == 0
    assert "Fixed: no problem found with" in capsys.readouterr().out
    assert main(["check-model", "dummy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert {"name", "outcome", "problems", "skipped"} == set(found["checks"][0])
    assert main(["check-model", "constant_model.py:Constant", "-a", "socre=1"]) == 2
    assert main(["check-model", "no_such_model"]) == 2
    assert "no_such_model" in capsys.readouterr().err
