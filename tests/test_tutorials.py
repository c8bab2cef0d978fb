"""The tutorials of docs/extending.md work: files, commands and the outputs that are shown."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "extending.md"
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LAYOUT = "layout"  # a text block that shows a folder, not an output
NOT_RUN = "not-run"  # commands that need the network, or a second terminal


def tutorials() -> list[object]:
    text = PAGE.read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return [pytest.param(section, id=section.partition("\n")[0]) for section in sections]


@dataclass
class Reader:
    """Does what a reader of a tutorial does: writes its files and gives its commands."""

    folder: Path
    site: Path
    output: str = ""
    shown: list[str] = field(default_factory=list)

    def follow(self, language: str, mark: str, code: str) -> None:
        if mark == NOT_RUN:
            return
        title = re.fullmatch(r'title="(.+)"', mark)
        if title:
            file = self.folder / title[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, encoding="utf-8")
        elif language == "bash":
            lines = [line for line in code.splitlines() if line.strip()]
            self.output = "".join(self.run(shlex.split(line)) for line in lines)
        elif language == "python":
            self.output = self.call([sys.executable, "-c", code])
        elif language == "text" and mark != LAYOUT:
            self.compare(code)
        else:
            assert mark == LAYOUT, f"nothing is done with a block of {language} {mark}"

    def run(self, words: list[str]) -> str:
        if words[:2] == ["pip", "install"]:
            # What pip would do, without the network, and beside the environment of the tests.
            into = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(self.site)]
            return self.call([sys.executable, "-m", "pip", "install", "--quiet", *into, words[2]])
        if words[0] == "python":
            return self.call([sys.executable, *words[1:]])
        assert words[0] == "lm-eval", words
        code = "import sys; from lm_eval.cli import main; sys.path.remove(''); sys.exit(main())"
        return self.call([sys.executable, "-c", code, *words[1:]])

    def call(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(self.site), str(REPOSITORY)]),
                "NO_PROXY": "127.0.0.1",  # a tutorial starts a server
            },
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def compare(self, expected: str) -> None:
        """Every line of an output that the page shows occurs in the real one, in the same order."""
        rest = squeezed(self.output)
        for line in filter(str.strip, expected.splitlines()):
            _, found, rest = rest.partition(squeezed(line))
            assert found, f"not in the output, or not in this order: {line}\n{self.output}"


def squeezed(text: str) -> str:
    """The text without the spaces and dashes that only align a table."""
    return re.sub(r" *\| *", "|", text)


@pytest.mark.parametrize("text", tutorials())
def test_a_tutorial_works_from_an_empty_directory(text: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    reader = Reader(work, tmp_path / "site")
    blocks = BLOCK.findall(text)
    assert len(blocks) > 4
    for language, mark, code in blocks:
        reader.follow(language, mark, code)


def test_tutorials_can_share_a_directory() -> None:
    """No two write to the same run folder, where `resume` would find several runs."""
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    folders = [set(re.findall(r"--output_path (\S+)", section)) for section in sections]
    assert sum(map(len, folders)) == len(set().union(*folders)) > 2


def files_of(tutorial: str, folder: Path) -> Reader:
    """Writes the files of a tutorial into `folder`, without running its commands."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {tutorial}\n")[2].partition("\n## ")[0]
    reader = Reader(folder, folder.parent / "site")
    for language, mark, code in BLOCK.findall(text):
        if mark.startswith("title="):
            reader.follow(language, mark, code)
    return reader


def test_the_api_class_ends_the_run_if_there_is_no_server(tmp_path: Path) -> None:
    reader = files_of("A model behind an HTTP API", tmp_path)
    with socket.socket() as unused:  # bound, but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        arguments = f"url=http://127.0.0.1:{unused.getsockname()[1]},max_retries=1"
        words = ["run", "--model", "api_model.py:ApiModel", "--tasks", "demo_sums", "--limit", "5"]
        with pytest.raises(AssertionError, match=r"ApiModel.generate_until failed.*refused"):
            reader.run(["lm-eval", *words, "--model_args", arguments])


def test_the_chat_class_sends_messages(tmp_path: Path) -> None:
    reader = files_of("A model behind an HTTP API", tmp_path)
    script = (tmp_path / "try_api.py").read_text(encoding="utf-8")
    script = script.replace("api_model.py:ApiModel", "chat_model.py:ChatModel")
    for line in ("", "    apply_chat_template=True,\n"):
        changed = script.replace("    limit=5,\n", f"    limit=5,\n{line}")
        assert "1.0\n{'demo_sums': 5} 4" in reader.call([sys.executable, "-c", changed])


def test_the_wheel_of_the_plug_in_has_the_name_that_the_page_gives(tmp_path: Path) -> None:
    reader = files_of("A plug-in package", tmp_path)
    (name,) = re.findall(r"writes dist/(\S+\.whl)", PAGE.read_text(encoding="utf-8"))
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    reader.call([sys.executable, "-m", "pip", "wheel", *offline, "./sums_plugin"])
    assert [file.name for file in tmp_path.glob("*.whl")] == [name]


def test_every_group_of_entry_points_is_named() -> None:
    source = (REPOSITORY / "lm_eval" / "api" / "registry.py").read_text(encoding="utf-8")
    groups = {*re.findall(r'"(lm_eval\.[a-z]+)"', source), "lm_eval.tasks"}
    text = PAGE.read_text(encoding="utf-8")
    assert len(groups) > 5
    for group in groups:
        assert f"`{group}`" in text, group
