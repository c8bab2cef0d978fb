"""Model classes named on the command line by file (`my_models.py:Rest`) or by module."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lm_eval
from lm_eval.errors import ConfigError, ModelError, UnknownNameError
from tests.conftest import Folder

CLASS = """\
from lm_eval.api.model import LM
{imports}

class Rest(LM):
    def __init__(self, letter="a"):
        super().__init__()
        self.letter = letter

    def loglikelihood(self, requests):
        with open("{log}", "a") as file:
            print(len(requests), file=file)
        return [(float(r.args[1].count(self.letter)) - 99, False) for r in requests]

    def loglikelihood_rolling(self, requests):
        return [-1.0 for _ in requests]

    def generate_until(self, requests):
        return ["" for _ in requests]


class Leaves(Rest):
    def __init__(self):
        raise SystemExit(0)


class LeavesLater(Rest):
    def loglikelihood(self, requests):
        raise SystemExit(0)


class NotAModel:
    pass
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """A file with one line per call of the model: how many requests it was given."""
    return tmp_path / "calls.txt"


@pytest.fixture
def models(folder: Folder, calls: Path) -> Folder:
    """A folder with `my_models.py`, which imports the file beside it."""
    folder.write("helpers_beside.py", "CONSTANT = 1\n")
    text = CLASS.format(imports="from helpers_beside import CONSTANT", log=calls)
    folder.write("my_models.py", text)
    return folder


def command(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs `lm-eval` as the console script does: without `cwd` on the module search path."""
    installed = [p for p in sys.path if p.startswith((sys.prefix, sys.base_prefix))]
    path = [str(Path(lm_eval.__file__).parents[1]), *installed]
    code = f"import sys; sys.path[:] = {path!r}; from lm_eval.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def requests_of(calls: Path) -> list[int]:
    return [int(line) for line in calls.read_text().split()]


RUN = ("--tasks", "demo_choice", "--limit", "4")


def test_a_class_is_named_by_its_file(models: Folder) -> None:
    done = command("run", "--model", "my_models.py:Rest", *RUN, cwd=models.path)
    assert done.returncode == 0, done.stderr
    assert "my_models.py:Rest" in done.stdout


def test_a_class_is_named_by_its_module_in_the_current_directory(models: Folder) -> None:
    models.write("somewhere/__init__.py", "")
    shutil.move(models.path / "my_models.py", models.path / "somewhere" / "inner.py")
    done = command("run", "--model", "somewhere.inner:Rest", *RUN, cwd=models.path)
    assert done.returncode == 0, done.stderr


def test_a_class_of_an_installed_package_is_named_by_its_module() -> None:
    by_module = lm_eval.simple_evaluate(
        "lm_eval.models.dummy:DummyLM", tasks=["demo_choice"], limit=4
    )
    by_name = lm_eval.simple_evaluate("dummy", tasks=["demo_choice"], limit=4)
    assert by_module is not None
    assert by_name is not None
    assert by_module["results"] == by_name["results"]


def test_model_args_reach_the_class(models: Folder) -> None:
    scores = {}
    for letter in "ae":
        results = lm_eval.simple_evaluate(
            f"{models.path}/my_models.py:Rest",
            model_args=f"letter={letter}",
            tasks=["demo_choice"],
            limit=40,
        )
        assert results is not None
        scores[letter] = results["results"]["demo_choice"]["acc,none"]
    assert scores["a"] != scores["e"]


def test_a_run_resumes_and_is_scored_from_anywhere(
    models: Folder, calls: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    out = models.path / "out"
    done = command(
        "run", "--model", "my_models.py:Rest", *RUN, "--output_path", "out", cwd=models.path
    )
    assert done.returncode == 0, done.stderr
    assert (out / "my_models.py__Rest").is_dir()
    for words in (("resume", out), ("score", out)):
        again = command(*words, cwd=elsewhere)
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[-3:] == done.stdout.splitlines()[-3:]
    assert requests_of(calls) == [16]  # the answers were stored


def test_the_folder_of_results_is_named_after_the_file_without_its_path(models: Folder) -> None:
    results = lm_eval.simple_evaluate(
        f"{models.path}/my_models.py:Rest", tasks=["demo_choice"], limit=4
    )
    assert results is not None
    assert results["model_name"] == "my_models.py:Rest"
    assert results["config"]["model"] == f"{models.path}/my_models.py:Rest"


def test_an_edited_class_gets_no_stored_answers(models: Folder, calls: Path) -> None:
    run = ("run", "--model", "my_models.py:Rest", *RUN, "--output_path", "out")
    assert command(*run, cwd=models.path).returncode == 0
    file = models.path / "my_models.py"
    file.write_text(file.read_text() + "# changed\n")
    assert command(*run, cwd=models.path).returncode == 0
    assert requests_of(calls) == [16, 16]


def test_a_class_that_has_an_identity_decides_itself_when_it_is_another(
    models: Folder, calls: Path
) -> None:
    file = models.path / "my_models.py"
    identity = "    def identity(self):\n        return {'letter': self.letter}\n\n"
    file.write_text(file.read_text().replace("    def generate", identity + "    def generate"))
    run = ("run", "--model", "my_models.py:Rest", *RUN, "--output_path", "out")
    assert command(*run, cwd=models.path).returncode == 0
    file.write_text(file.read_text() + "# changed\n")
    assert command(*run, cwd=models.path).returncode == 0
    assert requests_of(calls) == [16]


def test_an_identity_replaces_only_the_source_not_arguments_and_files(
    models: Folder, calls: Path
) -> None:
    file = models.path / "my_models.py"
    identity = "    def identity(self):\n        return {}\n\n"
    file.write_text(file.read_text().replace("    def generate", identity + "    def generate"))
    run = ("run", "--model", "my_models.py:Rest", *RUN, "--output_path", "out", "--model_args")
    assert command(*run, "letter=letter.txt", cwd=models.path).returncode == 0
    models.write("letter.txt", "a file that the argument names")
    assert command(*run, "letter=letter.txt", cwd=models.path).returncode == 0
    assert command(*run, "letter=b", cwd=models.path).returncode == 0
    assert requests_of(calls) == [16, 16, 16]


def test_a_moved_file_keeps_its_answers(models: Folder, calls: Path) -> None:
    run = (*RUN, "--use_cache", "answers.sqlite")
    assert command("run", "--model", "my_models.py:Rest", *run, cwd=models.path).returncode == 0
    (models.path / "below").mkdir()
    for name in ("my_models.py", "helpers_beside.py"):
        shutil.move(models.path / name, models.path / "below")
    moved = command("run", "--model", "below/my_models.py:Rest", *run, cwd=models.path)
    assert moved.returncode == 0, moved.stderr
    assert requests_of(calls) == [16]


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("my_models.py", ConfigError, r"--model my_models\.py: give .*: my_models\.py:Rest or"),
        ("my_models.py:", ConfigError, r"give the file and the name of one of its model classes"),
        ("my_models.py:Rest.Inner", ConfigError, r"give the file and the name of one of its"),
        ("folder.py:Rest", ModelError, r"there is no file /.*folder\.py"),
        ("__main__:Rest", ModelError, r"there is no module '__main__'"),
        ("leaving.py:Rest", ModelError, r"leaving\.py failed: SystemExit: 0"),
        ("my_models.py:Leaves", ModelError, r"could not be created .*: SystemExit: 0"),
        ("my_models.py:LeavesLater", ModelError, r"LeavesLater.loglikelihood ended the program"),
        ("my_modls.py:Rest", ModelError, r"there is no file /.*my_modls\.py"),
        ("my_models.py:Rset", ModelError, r"no class 'Rset'\. Did you mean 'Rest'\?"),
        ("my_models.py:NotAModel", ModelError, r"derived from lm_eval\.api\.model\.LM; it is deri"),
        ("my_models.py:CONSTANT", ModelError, r"must be a class .*; it is of type int"),
        ("no_such_module:Rest", ModelError, r"no module 'no_such_module'\. Install the package"),
        ("lm_eval.no_such:Rest", ModelError, r"importing lm_eval\.no_such failed: No module named"),
        ("broken.py:Rest", ModelError, r"broken\.py failed: ZeroDivisionError.*\(broken\.py:2\)"),
        ("typo.py:Rest", ModelError, r"SyntaxError: invalid syntax \(typo\.py, line 1\)"),
        ("needy.py:Rest", ModelError, r"needy\.py failed: No module named 'no_such_package'"),
        ("hf:gpt2", ConfigError, r"'hf' is a registered model; give its arguments with --model hf"),
        ("http://localhost:8000", UnknownNameError, r"unknown model 'http://localhost:8000'"),
    ],
)
def test_a_location_that_leads_nowhere_is_refused_with_the_remedy(
    models: Folder,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    error: type[Exception],
    message: str,
) -> None:
    models.write("broken.py", "Rest = 1\n1 / 0\n")
    models.write("leaving.py", "import sys\nRest = sys.exit(0)\n")
    (models.path / "folder.py").mkdir()
    models.write("typo.py", "class Rest(:\n")
    models.write("needy.py", "from no_such_package import Rest\n")
    monkeypatch.chdir(models.path)
    with pytest.raises(error, match=message):
        lm_eval.simple_evaluate(model, tasks=["demo_choice"], limit=1)


def test_a_wrong_location_ends_before_anything_is_written(models: Folder) -> None:
    done = command(
        "run", "--model", "my_models.py:Rset", *RUN, "--output_path", "out", cwd=models.path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("lm-eval: error: --model my_models.py:Rset")
    assert "Traceback" not in done.stderr
    assert not (models.path / "out").exists()


def test_an_unknown_argument_of_the_class_is_named(models: Folder) -> None:
    done = command(
        "run", "--model", "my_models.py:Rest", "--model_args", "leter=b", *RUN, cwd=models.path
    )
    assert done.returncode == 2
    assert "Did you mean 'letter'?" in done.stderr


def test_a_results_file_with_such_a_model_is_reproduced(models: Folder) -> None:
    done = command(
        "run", "--model", "my_models.py:Rest", *RUN, "--output_path", "out", cwd=models.path
    )
    assert done.returncode == 0, done.stderr
    (results,) = (models.path / "out").rglob("results_*.json")
    assert json.loads(results.read_text())["config"]["model"] == "my_models.py:Rest"
    again = command("reproduce", results, cwd=models.path)
    assert again.returncode == 0, again.stderr + again.stdout


def test_an_edited_helper_gets_no_stored_answers(models: Folder, calls: Path) -> None:
    run = ("run", "--model", "my_models.py:Rest", *RUN, "--output_path", "out")
    assert command(*run, cwd=models.path).returncode == 0
    models.write("helpers_beside.py", "CONSTANT = 2\n")
    assert command(*run, cwd=models.path).returncode == 0
    assert requests_of(calls) == [16, 16]


def test_an_edited_class_that_inherits_an_identity_gets_no_stored_answers(folder: Folder) -> None:
    text = "from lm_eval.models.demo import DemoLM\n\nclass Mine(DemoLM):\n    pass\n"
    folder.write("mine.py", text)
    run = ("run", "--model", "mine.py:Mine", *RUN, "--output_path", "out")
    found = "16 of 16 answers"
    assert found not in command(*run, cwd=folder.path).stderr
    assert found in command(*run, cwd=folder.path).stderr
    folder.write("mine.py", text + "# changed\n")
    assert found not in command(*run, cwd=folder.path).stderr


def test_two_files_in_one_process_have_their_own_helpers(tmp_path: Path) -> None:
    for name, letter in (("first", "a"), ("second", "e")):
        folder = Folder(tmp_path / name)
        folder.write("shared_helper.py", f"LETTER = {letter!r}\n")
        text = CLASS.format(imports="from shared_helper import LETTER", log=tmp_path / "calls")
        folder.write("model.py", text.replace("self.letter = letter", "self.letter = LETTER"))
    scores = []
    for name in ("first", "second", "first"):
        results = lm_eval.simple_evaluate(
            f"{tmp_path}/{name}/model.py:Rest", tasks=["demo_choice"], limit=40
        )
        assert results is not None
        scores.append(results["results"]["demo_choice"]["acc,none"])
    assert scores[0] == scores[2] != scores[1]


def test_a_program_that_model_code_ends_is_an_error(models: Folder) -> None:
    file = models.path / "my_models.py"
    text = "class Rest(LM):\n    def identity(self):\n        raise SystemExit(0)\n"
    file.write_text(file.read_text().replace("class Rest(LM):\n", text))
    done = command(
        "run", "--model", "my_models.py:Rest", *RUN, "--output_path", "out", cwd=models.path
    )
    assert done.returncode == 2
    assert "ended the program (SystemExit: 0 (my_models.py:6))" in done.stderr


def test_a_run_is_resumed_after_the_directory_it_was_started_in_is_gone(models: Folder) -> None:
    work = models.path / "work"
    work.mkdir()
    run = ("run", "--model", "../my_models.py:Rest", *RUN, "--output_path", "../out")
    assert command(*run, cwd=work).returncode == 0
    work.rmdir()
    done = command("resume", "out", cwd=models.path)
    assert done.returncode == 0, done.stderr
