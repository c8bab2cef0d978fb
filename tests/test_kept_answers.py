"""A run without an output path that fails keeps the answers that the model has given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lm_eval import simple_evaluate
from lm_eval.api.instance import Failure
from lm_eval.api.model import LM
from lm_eval.cli import main
from lm_eval.errors import ModelError

MODEL = """\
import os
from lm_eval.api.model import LM

class Failing(LM):
    def loglikelihood(self, requests, **kwargs):
        for number, request in enumerate(requests):
            with open(os.environ["ASKED"], "a") as asked:
                asked.write(repr(request.args) + "\\n")
            if os.environ["HOW"] == ("error" if number == 5 else "at once"):
                raise RuntimeError("device lost")
            if number == 5 and os.environ["HOW"] == "interrupt":
                os.kill(os.getpid(), 2)
            yield -float(len(repr(request.args)) % 7) - 1, False

    def loglikelihood_rolling(self, requests, **kwargs):
        raise NotImplementedError

    generate_until = loglikelihood_rolling
"""


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> object:
    """Returns a function that runs `demo_choice` and returns exit code, output, requests asked."""
    (tmp_path / "failing.py").write_text(MODEL)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    asked = tmp_path / "asked"
    monkeypatch.setenv("ASKED", str(asked))

    def run(how: str, *options: str) -> tuple[int, str, list[str]]:
        monkeypatch.setenv("HOW", how)
        asked.write_text("")
        words = ["run", "--model", f"{tmp_path / 'failing.py'}:Failing", "--tasks", "demo_choice"]
        code = main([*words, "--limit", "4", *options])
        out, err = capsys.readouterr()
        return code, out + err, asked.read_text().splitlines()

    return run


@pytest.mark.parametrize(("how", "code"), [("error", 2), ("interrupt", 130)])
def test_a_run_without_output_path_continues_where_it_ended(command, how, code, tmp_path) -> None:  # type: ignore[no-untyped-def]
    done, expected, every = command("not at all")
    assert done == 0
    ended, text, first = command(how)
    assert ended == code
    assert "Traceback" not in text
    found = re.search(r"run the same command again with --output_path (\S+)\.", text)
    assert found is not None, text
    assert "(5)" in text
    done, again, rest = command("not at all", "--output_path", found[1])
    assert done == 0
    assert [*first[:5], *rest] == every  # no request is asked twice, and none is left out
    rows = [line for line in again.splitlines() if line.startswith("|")]
    assert rows == [line for line in expected.splitlines() if line.startswith("|")]


def test_nothing_is_written_if_the_model_gave_no_answer(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, text, asked = command("at once")
    assert (code, len(asked)) == (2, 1)
    assert "device lost" in text
    assert "stored" not in text
    assert not list((tmp_path / "tmp").glob("lm_eval_answers_*"))


class Refusing(LM):
    """Fails for every second request; reports the others."""

    def loglikelihood(self, requests, disable_tqdm=False):  # type: ignore[no-untyped-def]
        for number, _ in enumerate(requests):
            yield Failure("overloaded") if number % 2 else (-1.0, False)

    def loglikelihood_rolling(self, requests, disable_tqdm=False):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    generate_until = loglikelihood_rolling


def test_a_model_object_is_told_the_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ModelError, match=r"simple_evaluate again with output_path='[^']+'"):
        simple_evaluate(Refusing(), tasks=["demo_choice"], limit=4, max_failed=0)
    assert len(list(tmp_path.glob("lm_eval_answers_*/*/answers.sqlite"))) == 1
