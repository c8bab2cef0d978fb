"""Plants a key in every place where one can be given, and looks for it in all that runs leave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from tests.conftest import Folder
from tests.served import faulty_server as faults
from tests.served.faulty_server import MODEL, Fault, FaultyServer
from tests.served.runs import CHAT, COMPLETIONS, environment, words, write_task

Captured = pytest.CaptureFixture[str]

#: No part of it occurs in any other text.
KEY = "sk-Plantedq7/Zx0123456789+vWkeyQ=="
#: Parts of it that must not occur either: cut off, or without the characters at which it is split.
PARTS = ("Plantedq7", "vWkeyQ", "Zx0123456789")

COUNT = 12

#: Where a key can be given: environment variables, and model arguments.
PLACES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "OPENAI_API_KEY": ({"OPENAI_API_KEY": KEY}, {}),
    "api_key_env": ({"MY_OWN_KEY": KEY}, {"api_key_env": "MY_OWN_KEY"}),
    "auth_token": ({}, {"auth_token": KEY}),
    "header": ({}, {"header": {"Authorization": f"Bearer {KEY}"}}),
    "another header": ({}, {"header": {"X-Gateway": KEY, "Accept": "application/json"}}),
}


@pytest.fixture
def work(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the working directory, with a task of a few documents."""
    write_task(folder, COUNT)
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(folder.path / "cache"))
    return folder.path


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


def command(server: FaultyServer, place: str, *others: str, **settings: Any) -> list[str]:
    """Returns a command with the key at a place; the model arguments are JSON."""
    model = settings.pop("model", COMPLETIONS)
    given = words(server, *others, model=model)
    arguments = {"base_url": server.url, "model": MODEL, "tokenizer_backend": "none"}
    arguments |= {"timeout": 1, **settings, **PLACES[place][1]}
    given[given.index("--model_args") + 1] = json.dumps(arguments)
    return given


def plant(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    for name, value in PLACES[place][0].items():
        monkeypatch.setenv(name, value)


def check(folder: Path, *texts: str) -> None:
    """Asserts that the key is in no text, in no file below a folder, and in no file's name."""
    for part in (KEY, *PARTS):
        for text in texts:
            assert part not in text
        for file in folder.rglob("*"):
            assert part not in file.name
            assert file.is_dir() or part.encode() not in file.read_bytes(), file


def was_sent(server: FaultyServer) -> bool:
    """Returns whether the server has got the key."""
    return any(KEY in str(attempt.headers) for attempt in server.attempts)


def test_the_search_finds_a_key(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"x{KEY}y")
    with pytest.raises(AssertionError):
        check(tmp_path)


#: Faults that repeat the headers of the request, in all ways in which a reply reaches a message.
ECHOES: dict[str, Fault] = {
    "refusal": faults.echo_headers(400),
    "refusal that is cut off within the key": faults.echo_headers(400, "x" * 260),
    "error": faults.echo_headers(500),
    "overload": faults.echo_headers(429),
    "plain text": faults.reply_with(400, f"Invalid token Bearer {KEY}", "text/plain"),
    "wrong content": faults.reply_with(200, json.dumps({"key": KEY})),
    "half-written JSON": faults.reply_with(200, f'{{"key": "{KEY}", "choices": [{{'),
    "answer": faults.echo_in_answer,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_key_that_the_server_repeats_is_nowhere(
    place: str,
    server: FaultyServer,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plant(monkeypatch, place)
    fault_of = dict(enumerate(ECHOES.values()))

    def plan(attempt: faults.Attempt) -> Fault | None:
        return fault_of.get(int(attempt.prompt.split()[2]) - 100)

    server.plan = plan
    options = ["--log_samples", "--verbosity", "DEBUG", "--max_failed", "0.9", "--write_out"]
    options += ["--show_config", "--use_cache", "store.sqlite", "--debug"]
    run = command(server, place, *options, deadline=1)
    assert main(run) == 1
    shown = capfd.readouterr()
    assert was_sent(server)
    assert "***" in shown.err
    assert len([*work.rglob("results_2*.json")]) == 1
    assert [*work.rglob("samples_*.jsonl")]
    assert [*work.rglob("run.json")]
    check(work, shown.out, shown.err)


@pytest.mark.parametrize("place", ["OPENAI_API_KEY", "auth_token", "header"])
@pytest.mark.parametrize("model", [COMPLETIONS, CHAT])
def test_a_key_that_is_refused_is_in_no_error_and_in_no_certificate(
    place: str,
    model: str,
    server: FaultyServer,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plant(monkeypatch, place)
    run = command(server, place, "--verbosity", "DEBUG", model=model)
    model_args = run[run.index("--model_args") + 1]
    doctor = ["doctor", "--model", model, "--model_args", model_args]
    certified = [doctor, [*doctor, "--json"]]
    for one in certified:
        assert main(one) == 0
    assert [*(work / "cache").rglob("*.json")]
    server.plan = faults.prompts_with("plus", faults.echo_headers(401))
    assert main(run) == 2
    server.plan, server.rules = None, lambda body: faults.echo_headers(403) if body else None
    assert main(run) == 2
    assert main(doctor) == 2
    server.rules = lambda body: faults.echo_headers(401)
    assert main(doctor) == 2
    shown = capfd.readouterr()
    check(work, shown.out, shown.err)
    assert "status 401: refused with" in shown.err


def test_a_key_in_a_refusal_of_a_parameter_is_not_logged(
    server: FaultyServer, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    plant(monkeypatch, "OPENAI_API_KEY")

    def rules(body: Mapping[str, Any]) -> Fault | None:
        if "temperature" in body:
            return faults.echo_headers(400, "temperature is not supported: ", param="temperature")
        if body.get("messages", [{}])[-1].get("role") == "assistant":
            return faults.echo_headers(400, "no prefill: ")
        return None

    file = work / "sums.yaml"
    file.write_text(file.read_text() + 'gen_prefix: "The sum is"\n')
    server.rules = rules
    assert main(command(server, "OPENAI_API_KEY", model=CHAT)) == 0
    shown = capsys.readouterr()
    assert "refuses the parameter temperature" in shown.err
    assert "does not continue an assistant message" in shown.err
    check(work, shown.out, shown.err)


@pytest.mark.parametrize("place", ["OPENAI_API_KEY", "auth_token", "header"])
def test_a_key_is_in_no_traceback(place: str, server: FaultyServer, work: Path) -> None:
    """Tracebacks are printed by a process of its own, with warnings of asyncio and aiohttp."""
    server.plan = faults.prompts_with("plus", faults.echo_headers(401))
    run = command(server, place, "--verbosity", "DEBUG", "--debug")
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "lm_eval", *run],
        capture_output=True,
        text=True,
        cwd=work,
        env=environment(work, **PLACES[place][0]),
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert was_sent(server)
    check(work, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "mistake",
    [
        {"timeout": "soon"},
        {"no_such_argument": 1},
        {"base_url": "ftp://example"},
        {"base_url": "http://127.0.0.1:1"},
        {"header": f"Authorization: Bearer {KEY}"},
        {"header": {"Authorization": f"Bearer {KEY}\nX-Other: 1"}},
        {"ca_cert_path": "no_such_file"},
    ],
    ids=lambda mistake: next(iter(mistake)),
)
def test_a_key_is_in_no_message_about_another_mistake(
    mistake: dict[str, Any], server: FaultyServer, work: Path, capsys: Captured
) -> None:
    run = command(server, "auth_token", **mistake)
    arguments = run.index("--model_args") + 1
    if "header" in mistake:
        run[arguments] = json.dumps({**json.loads(run[arguments]), **mistake})
    assert main(run) == 2
    shown = capsys.readouterr()
    assert "lm-eval: error: " in shown.err
    check(work, shown.out, shown.err)


@pytest.mark.parametrize(
    "given",
    [
        f'{{"auth_token": "{KEY}"',
        f"base_url=http://127.0.0.1:1,auth_token={KEY},oops",
        f"auth_token=first,{KEY.rstrip('=')}",
        f'header="Authorization: Bearer {KEY}",oops',
    ],
)
def test_a_key_is_in_no_message_about_the_form_of_arguments(
    given: str, work: Path, capsys: Captured
) -> None:
    run = ["run", "--model", COMPLETIONS, "--tasks", "sums", "--include_path", "."]
    assert main([*run, "--model_args", given]) == 2
    shown = capsys.readouterr()
    check(work, shown.out, shown.err)


def test_resuming_needs_the_command_with_the_key(
    server: FaultyServer, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    server.plan = faults.prompts_with("103 plus", faults.FILTERED)
    run = command(server, "auth_token")
    assert main(run) == 1
    assert main(["resume", "out"]) == 2
    assert (
        "secret settings (model_args auth_token), which are not stored" in capsys.readouterr().err
    )
    server.plan = None
    server.forget()
    assert main(run) == 0
    assert server.counts.asked.total() == 1

    plant(monkeypatch, "OPENAI_API_KEY")
    server.plan = faults.prompts_with("103 plus", faults.FILTERED)
    other = [*command(server, "OPENAI_API_KEY"), "--output_path", "other"]
    assert main(other) == 1
    server.plan = None
    server.forget()
    assert main(["resume", "other"]) == 0
    assert server.counts.asked.total() == 1
    assert was_sent(server)
    shown = capsys.readouterr()
    check(work, shown.out, shown.err)


def test_a_key_is_in_no_representation_of_the_model(server: FaultyServer) -> None:
    lm = lm_eval.models.create.create_model(
        lm_eval.config.run.RunConfig(
            COMPLETIONS, {"base_url": server.url, "model": "m", "auth_token": KEY}
        )
    )
    settings: Any = vars(lm.make_transport())["_settings"]  # type: ignore[attr-defined]
    assert KEY in settings.headers["Authorization"]
    assert KEY not in f"{settings!r} {lm!r} {lm.identity()}"  # type: ignore[attr-defined]


#: Registered backends, the variable of each, and the path that `base_url` ends with.
BACKENDS = {
    "local-completions": ("OPENAI_API_KEY", "/v1/completions"),
    "local-chat-completions": ("OPENAI_API_KEY", "/v1/chat/completions"),
    "openai-chat-completions": ("OPENAI_API_KEY", "/v1/chat/completions"),
    "anthropic-chat": ("ANTHROPIC_API_KEY", "/v1/messages"),
    "azure-openai-chat-completions": ("AZURE_OPENAI_API_KEY", "/openai/chat/completions"),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_registered_backend_shows_its_key(
    backend: str,
    server: FaultyServer,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    variable, path = BACKENDS[backend]
    monkeypatch.setenv(variable, KEY)
    seen: list[str] = []

    async def refuse(request: Any) -> Any:
        seen.append(str(dict(request.headers)))
        return await faults.echo_headers(401)(request)

    server.rules = lambda body: refuse if body else None
    run = words(server, "--verbosity", "DEBUG", model=CHAT)
    run[run.index("--model") + 1] = backend
    run[run.index("--model_args") + 1] = f"base_url={server.url}{path},model={MODEL}"
    if backend == "local-completions":
        run.remove("--apply_chat_template")
        run[run.index("--model_args") + 1] += ",tokenizer_backend=none"
    assert main(run) == 2
    assert any(KEY in headers for headers in seen)
    shown = capsys.readouterr()
    assert "lm-eval: error: " in shown.err
    check(work, shown.out, shown.err)
