"""Plants a secret in many spellings and places, and looks for it in all that a run leaves."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError
from lm_eval.redaction import (
    hide_in_text,
    hide_secrets,
    is_secret,
    is_secret_variable,
    known_redactor,
    remember_secrets,
    without_secrets,
)
from lm_eval.results.sample_log import read_samples_file, write_log
from lm_eval.runs.record import RunRecord

Captured = pytest.CaptureFixture[str]

#: No part of it occurs in any other text.
SECRET = "planted-Zq7x0123456789wVkQ"
PART = "Zq7x0123456789"

#: Names of model arguments, in many spellings.
NAMES = [
    *("openai_api_key", "API_KEY", "api-key", "apiKey", "ApiKey", "APIKEY", "x-api-key", "api.key"),
    *(
        "OPENAI-API-KEY",
        "api_key_2",
        "access_token",
        "accessToken",
        "ACCESS-TOKEN",
        "refresh_token",
    ),
    *("session_token", "slack_bot_token", "wandb_key", "password", "db_password", "PASSWD", "pwd"),
    *("passphrase", "secret", "client_secret", "clientSecret", "aws_secret_access_key", "bearer"),
    *("private_key", "credentials", "Authorization", "proxy-authorization", "cookie"),
]


def secret_at(number: int) -> str:
    """Returns a secret of its own for each place."""
    return f"planted-Zq7x{number:03}456789wVkQ"


#: Other places among the model arguments: a name and a value, given the secret.
ARGUMENTS: dict[str, Callable[[str], Any]] = {
    "nested mapping": lambda secret: {"auth": {"api_key": secret}},
    "list of mappings": lambda secret: [{"token": secret}],
    "list of keys": lambda secret: {"api_keys": [secret, secret]},
    "extra_headers": lambda secret: {"X-Gateway": secret},
    "headers in depth": lambda secret: {"headers": {"X-Any": secret}},
    "password of an address": lambda secret: f"http://user:{secret}@host/v1",
    "key as the user of an address": lambda secret: f"https://{secret}@host/v1",
    "parameter of an address": lambda secret: f"http://host/v1?api_key={secret}",
    "key of OpenAI under any name": lambda secret: f"sk-{secret}",
    "key of Hugging Face under any name": lambda secret: f"hf_{secret.replace('-', '')}",
    "key of Google under any name": lambda secret: f"AIza{secret}AAAAAAAAAAAAAAAA",
    "key of GitHub under any name": lambda secret: f"ghp_{secret.replace('-', '')}AAAA",
    "key of Amazon under any name": lambda secret: f"AKIA{secret[12:15]}ZQXWVKQZQXWVK",
    "token of the web": lambda secret: f"eyJhbGciOiJIUzI1.{secret}.AAAAAAAAAAAA",
    "header as text": lambda secret: f"Authorization: Bearer {secret}",
    "command in an argument": lambda secret: f"run --api_key {secret}",
    "pair in an argument": lambda secret: f"api_key={secret};x=1",
    "JSON in an argument": lambda secret: json.dumps({"a": {"api_key": secret}}),
    "private key": lambda secret: f"-----BEGIN RSA PRIVATE KEY-----\n{secret}\n-----END",
}
#: Places in other settings: the option, and a mapping.
OPTIONS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "metadata": ("--metadata", lambda secret: {"api_key": secret}),
    "metadata in depth": ("--metadata", lambda secret: {"judge": {"headers": {"Key": secret}}}),
    "metadata as text": ("--metadata", lambda secret: {"judge_url": f"https://me:{secret}@host"}),
    "generation settings": ("--gen_kwargs", lambda secret: {"api_key": secret}),
    "settings of a tracker": ("--hf_hub_log_args", lambda secret: {"token": secret}),
    "configuration of a tracker": ("--wandb_config_args", lambda secret: {"api_key": secret}),
}
ALL_PLACES = [*NAMES, *ARGUMENTS, *OPTIONS]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns all that runs with a secret at every place, and commands after them, leave behind.

    That is their output, the names of their files and the contents.
    """
    numbered = {place: secret_at(number) for number, place in enumerate(ALL_PLACES)}
    arguments = {name: numbered[name] for name in NAMES}
    arguments |= {name: place(numbered[name]) for name, place in ARGUMENTS.items()}
    tables: dict[str, dict[str, Any]] = {"--model_args": arguments}
    for name, (option, make) in OPTIONS.items():
        tables.setdefault(option, {}).update(make(numbered[name]))
    words = [word for option, table in tables.items() for word in (option, json.dumps(table))]
    out, shown = tmp_path_factory.mktemp("traces"), io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        assert run(*words, "--output_path", str(out)) == 0
        assert main(["resume", str(out)]) == 2
        assert main(["score", str(out), "--output_path", str(out / "scored")]) == 0
        assert main(["reproduce", str(out)]) == 2
    found = [file for file in out.rglob("*") if file.is_file()]
    assert len(found) > 6
    contents = [file.read_bytes().decode("utf-8", "replace") for file in found]
    return "\n".join([shown.getvalue(), *map(str, found), *contents])


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lm_eval.redaction.known._remembered", set())
    return tmp_path


def check(folder: Path, *texts: str) -> None:
    """Asserts that no part of the secret is in a text, or in a file or its name."""
    for text in texts:
        assert PART not in text
    for file in folder.rglob("*"):
        assert PART not in file.name
        assert file.is_dir() or PART.encode() not in file.read_bytes(), file


def run(*words: str) -> int:
    """Runs the dummy model; writes all that a run can write."""
    fixed = ["--model", "dummy", "--tasks", "demo_choice,demo_sums", "--limit", "1"]
    fixed += ["--log_samples", "--show_config", "--verbosity", "DEBUG", "--bootstrap_iters", "0"]
    return main(["run", *fixed, "--output_path", "out", *words])


@pytest.mark.parametrize("place", ALL_PLACES)
def test_a_secret_among_the_settings_is_in_no_file_and_in_no_output(
    place: str, traces: str
) -> None:
    secret = secret_at(ALL_PLACES.index(place))
    assert secret not in traces
    assert secret[8:] not in traces.replace("-", "")
    assert f"AKIA{secret[12:15]}" not in traces


@pytest.mark.parametrize("place", ALL_PLACES)
def test_a_secret_that_was_left_out_is_asked_for(place: str, traces: str) -> None:
    (asked,) = {line for line in traces.splitlines() if "the run had secret settings (" in line}
    names = {
        **{name: f"model_args {name}" for name in [*NAMES, *ARGUMENTS]},
        **{"metadata": "metadata api_key", "metadata in depth": "metadata judge.headers"},
        **{"metadata as text": "metadata judge_url", "generation settings": "gen_kwargs api_key"},
        **{"settings of a tracker": "hf_hub_log_args token"},
        **{"configuration of a tracker": "wandb_config_args api_key"},
    }
    assert names[place] in asked


def test_resuming_takes_a_secret_as_an_option(work: Path, capfd: Any) -> None:
    words = ["--model_args", json.dumps({"api_key": SECRET, "base_url": f"http://u:{SECRET}@h"})]
    assert run(*words) == 0
    assert main(["resume", "out", "--model_args", f"api_key={SECRET}"]) == 2
    said = capfd.readouterr().err
    assert "(model_args base_url), which are not stored. Pass them again: --model_args " in said
    assert main(["resume", "out", *words]) == 0
    said = capfd.readouterr().err
    assert "4 of 4 answers were found in the store" in said
    (file,) = work.rglob("run.json")
    assert len(json.loads(file.read_text())["runs"]) == 1
    check(work, said)


def test_reproducing_asks_for_a_secret(work: Path, capfd: Any) -> None:
    assert run("--model_args", f"api_key={SECRET}") == 0
    assert main(["reproduce", "out"]) == 2
    assert "Pass them again: --model_args api_key=…" in capfd.readouterr().err
    assert main(["reproduce", "out", "--model_args", f"api_key={SECRET}"]) == 0
    shown = capfd.readouterr()
    check(work, shown.out, shown.err)


# -- secrets of the environment ---------------------------------------------------------------

VARIABLES = [
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY"),
    *("AWS_SECRET_ACCESS_KEY", "MY_SERVICE_KEY", "DB_PASSWORD", "GITHUB_TOKEN", "CLIENT_SECRET"),
]

#: A model that repeats a secret wherever a model can write something.
LEAKY = """\
import logging
import os

from lm_eval.api.instance import Completion, Failure
from lm_eval.models.dummy import DummyLM

SECRET = os.environ[{name!r}]


class Leaky(DummyLM):
    def __init__(self, where="", **others):
        super().__init__()
        self.where = where
        if where == "constructor":
            raise RuntimeError(f"wrong key: {{SECRET}}")

    def identity(self):
        return {{"endpoint": f"http://host/{{SECRET}}", "nested": [SECRET]}}

    def get_model_info(self):
        return {{"model_sha": SECRET}}

    def loglikelihood(self, requests, disable_tqdm=False):
        logging.getLogger("lm_eval.leaky").warning("the key is %s", SECRET)
        if self.where == "answers":
            return [Failure(f"status 401: {{SECRET}}"), *super().loglikelihood(requests[1:])]
        return super().loglikelihood(requests)

    def generate_until(self, requests, disable_tqdm=False):
        if self.where == "error":
            try:
                raise KeyError(SECRET)
            except KeyError as error:
                raise RuntimeError(f"refused {{SECRET!r}}") from error
        if self.where == "reasoning":
            return [Completion("4", reasoning=f"I see {{SECRET}}") for request in requests]
        return [f"The key is {{SECRET}}, so 4" for request in requests]
"""


@pytest.mark.parametrize("samples_format", ["jsonl", "zst", "parquet"])
@pytest.mark.parametrize("where", ["answers", "reasoning", "error", "constructor"])
def test_what_a_model_repeats_is_hidden_everywhere(
    where: str,
    samples_format: str,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", SECRET)
    Path("leaky.py").write_text(LEAKY.format(name="MY_SERVICE_TOKEN"))
    words = ["--model", "leaky.py:Leaky", "--model_args", f"where={where}", "--max_failed", "9"]
    done = run(*words, "--samples_format", samples_format, "--use_cache", "store.sqlite")
    assert done == {"answers": 1, "reasoning": 0}.get(where, 2)
    shown = capfd.readouterr()
    if where != "constructor":
        assert "the key is ***" in shown.err
    if samples_format != "jsonl" and done != 2:  # compressed
        for log in work.rglob("samples_*"):
            assert PART not in json.dumps(read_samples_file(log))
            assert (
                where != "reasoning"
                or "choice" in log.name
                or "I see ***" in json.dumps(read_samples_file(log))
            )
    check(work, shown.out, shown.err)


@pytest.mark.parametrize("name", VARIABLES)
def test_the_value_of_a_secret_variable_is_in_no_message(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert main(["run", "--model", "dummy", "--tasks", f"{SECRET}_task"]) == 2
    with pytest.raises(ConfigError) as caught:
        RunConfig(limit=f"{SECRET}")  # type: ignore[arg-type]
    logging.getLogger("lm_eval.x").warning("seen %s", SECRET)
    shown = capfd.readouterr()
    assert "***" in shown.err
    check(work, shown.out, shown.err, str(caught.value))


def test_a_secret_is_in_no_traceback(work: Path) -> None:
    Path("leaky.py").write_text(LEAKY.format(name="MY_SERVICE_TOKEN"))
    words = ["--model", "leaky.py:Leaky", "--model_args", f"where=error,api_key={SECRET}2"]
    words += ["--tasks", "demo_sums", "--limit", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "run", *words, "--debug"],
        capture_output=True,
        text=True,
        env={**os.environ, "MY_SERVICE_TOKEN": SECRET},
        check=False,
    )
    assert "Traceback" in done.stderr
    assert "KeyError: '***'" in done.stderr
    check(work, done.stdout, done.stderr)


def test_a_mistyped_option_does_not_show_its_secret(work: Path, capfd: Any) -> None:
    for words in (["--api_key", SECRET], [f"--api-key={SECRET}"], ["--hf_tokn", f"token={SECRET}"]):
        with pytest.raises(SystemExit):
            main(["run", "--model", "dummy", *words])
    shown = capfd.readouterr()
    assert "unrecognized arguments" in shown.err
    check(work, shown.out, shown.err)


def test_the_results_in_python_have_no_secret(work: Path) -> None:
    results: Any = lm_eval.simple_evaluate(
        "dummy",
        model_args={"api_key": SECRET, "server": {"password": SECRET}},
        metadata={"judge": {"api_key": SECRET}},
        tasks=["demo_choice"],
        limit=1,
    )
    check(work, json.dumps(results, default=str))
    assert results["configs"]["demo_choice"]["metadata"]["judge"] == {"api_key": "***"}


def test_a_task_still_gets_the_secret_of_its_metadata() -> None:
    run = RunConfig(metadata={"judge": {"api_key": SECRET}}, model_args={"token": SECRET})
    assert run.task_metadata == {"judge": {"api_key": SECRET}}


# -- what is ordinary -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("max_tokens", 12), ("max_tokens", "12"), ("tokenizer", "gpt2"), ("eos_token", "</s>")],
        *[("token_count", 3), ("pad_token", "[PAD]"), ("think_end_token", "</think>")],
        *[("add_bos_token", True), ("add_bos_token", "yes"), ("user_token", "<|user|>")],
        *[("api_key_env", "MY_KEY"), ("use_auth_token", True), ("token", None), ("token", "")],
        *[("tokenized_requests", "x"), ("key", "answer"), ("sort_key", "name"), ("header", True)],
        *[("header", "infer"), ("answer_key", "A"), ("secretary", "Bob"), ("author", "Ann")],
        *[("max_gen_toks", 64), ("tokens_per_second", 5.0), ("password_file", "x.txt")],
        *[("prefix_token_id", 3), ("secret", [0, 3]), ("monkey", "a1" * 10), ("api_version", "1")],
    ],
)
def test_ordinary_settings_are_no_secrets(name: str, value: Any) -> None:
    assert not is_secret(name, value)
    assert without_secrets({name: value}) == {name: value}


@pytest.mark.parametrize(
    "text",
    [
        "api_key: must be set",
        "the token is wrong",
        "add token=… to the arguments, or set HF_TOKEN",
        "max_tokens=256 and pad_token='<pad>'",
        "the stop token <|im_end_of_text_1|> is unknown",
        "Basic arithmetic is easy; bearer of good news",
        "https://huggingface.co/datasets/x?split=test&key=",
        "mail me@example.org about password: nothing",
        "task-1 has hf_things and sk-learn",
    ],
)
def test_ordinary_messages_stay_as_they_are(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval.redaction.known._remembered", set())
    assert hide_in_text(text) == text
    assert hide_secrets(text) == text


@pytest.mark.parametrize(
    "name", ["PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "KEYBOARD", "MAX_TOKENS"]
)
def test_ordinary_variables_are_no_secrets(name: str) -> None:
    assert not is_secret_variable(name)


def test_short_values_are_not_replaced_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "1")
    monkeypatch.setenv("MY_SECRET", "no")
    monkeypatch.setenv("POSTGRES_PASSWORD", "postgres")
    monkeypatch.setenv("MY_CREDENTIALS", str(Path(__file__)))
    remember_secrets(["x", "EMPTY"])
    text = f"no. 1 is EMPTY in postgres: {__file__}"
    assert hide_in_text(text) == text
    assert known_redactor().text(text) == text


def test_redacting_twice_changes_nothing_more() -> None:
    settings = {
        "base_url": f"http://u:{SECRET}@h/?api_key={SECRET}",
        "note": f"Bearer {SECRET} api_key={SECRET}",
        "tasks": ["a", {"task": "b", "metadata": {"token": SECRET}}],
    }
    once = without_secrets(settings)
    assert PART not in json.dumps(once)
    assert without_secrets(once) == once


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "a=b " * 10**5, "://" * 10**5, "eyJ" * 10**5, "Bearer " * 10**5]
)
def test_long_texts_are_redacted_quickly(text: str) -> None:
    start = time.process_time()
    hide_in_text(text)
    assert time.process_time() - start < 2


def test_a_sample_log_is_searched_for_known_secrets_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    sample = {
        **{
            "doc_id": 0,
            "doc": {"password": "abc", "url": "http://a:b@c"},
            "target": f"sk-{'a' * 20}",
        },
        **{"arguments": [(f"key {SECRET}", {})], "resps": [["x"]], "filtered_resps": ["x"]},
        **{"filter": "none", "metrics": []},
    }
    with (tmp_path / "log.jsonl").open("wb") as file:
        write_log(file, [sample], "jsonl")
    line = (tmp_path / "log.jsonl").read_text()
    check(tmp_path)
    assert "key ***" in line
    assert '"password": "abc", "url": "http://a:b@c"' in line
    assert "sk-aaaa" in line


def test_a_known_secret_is_found_in_escaped_form() -> None:
    remember_secrets(['a"b/c\\dé-0123456789'])
    redactor = known_redactor()
    for written in (json.dumps('a"b/c\\dé-0123456789'), "a%22b%2Fc%5Cd%C3%A9-0123456789"):
        assert "0123456789" not in redactor.text(written)
    assert redactor.data({"x": ['a"b/c\\dé-0123456789', 3]}) == {"x": ["***", 3]}


def test_a_secret_in_the_working_directory_is_hidden_and_the_record_stays_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abracadabra-4711")
    state = {"model": "m", "tasks": {"abracadabra-4711": {}}}
    record = RunRecord({"tasks": ["a"]}, state, 0.0, "/abracadabra-4711").without_secrets()
    written = json.dumps(record.to_json())
    assert "abracadabra-4711" not in written
    assert RunRecord.read(json.loads(written), Path("run.json")).directory == "/***"
