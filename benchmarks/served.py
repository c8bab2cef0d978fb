"""Measures models behind servers, compared with a bare aiohttp loop and the published harness.

usage: python benchmarks/served.py [mock] [memory] [vllm] [--rounds N] [--published PYTHON]
                                   [--mock FILE] [--requests N] [--documents N]

- `mock`: requests per second of greedy generation against a server that answers after 20 ms, 64
  requests at once (`../shared/bench/mock_server.py`); one prompt per HTTP request, as the server
  counts them. The bare loop is what aiohttp can do: 64 requests at once, one session, JSON.
- `memory`: peak memory of our client, fed from a generator, with 20,000 and 200,000 requests.
- `vllm`: documents per second of multiple choice with five examples and the choices A to D, like
  MMLU, on a real vLLM server with the embedded model (`tests/servers`, which installs it). Every
  measurement has its own texts, so that none finds its prompts in the server's prefix cache.

Without a name, all three are run. Each measurement is a process of its own, and the clients take
turns, so that noise affects all alike: rates are medians, and so are the ratios of rates of the
same round. PYTHON is that of an environment with lm-eval 0.4.13; by default `tests/servers`
installs one. Run it on a machine that does nothing else: client and server share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
SHARED = HERE.parent / "shared"
DELAY_MS, SLOTS = 20, 64
PATH = "/v1/completions"
MODEL = "demo"
ANSWER = "The answer is 4."
"""What the mock server answers to every prompt."""
SETTINGS = {"until": ["\n\n"], "do_sample": False, "max_gen_toks": 64}
LETTERS = "ABCD"
SHOTS, SUBJECTS = 5, 8
CONTEXT = 1024
"""The context length of the vLLM server: that of the embedded model."""
WARM_UP = 16
"""The number of documents that a client scores before its time is taken."""
PUBLISHED_CONCURRENT = 16
"""The `num_concurrent` of the published harness on vLLM; 8 to 64 make no difference there."""


# -- one measurement, in a process of its own -----------------------------------------------------


def stats(url: str) -> int:
    """Returns the number of requests that the mock server has received."""
    with urllib.request.urlopen(f"{url}/stats") as reply:
        return int(json.load(reply)["asked"])


def word_problems(count: int) -> list[str]:
    """Returns different prompts of about 260 characters."""
    story = "Ann has a red kite and Tom has two blue ones. " * 4
    return [f"Question {i}: {story}How many kites are there?\nAnswer:" for i in range(count)]


def bare(given: argparse.Namespace) -> dict[str, Any]:
    """Sends prompts with aiohttp alone. Token ids are made before the time is taken."""
    import aiohttp

    prompts: list[Any] = list(word_problems(given.requests))
    if given.tokenizer:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
        prompts = tokenizer(prompts, return_attention_mask=False)["input_ids"]

    async def send_all() -> list[str]:
        places = asyncio.Semaphore(SLOTS)
        async with aiohttp.ClientSession() as session:

            async def send(prompt: Any) -> str:
                body = {
                    "model": MODEL,
                    "prompt": prompt,
                    "max_tokens": SETTINGS["max_gen_toks"],
                    "temperature": 0,
                    "stop": SETTINGS["until"],
                }
                async with places, session.post(given.url + PATH, json=body) as reply:
                    return str((await reply.json())["choices"][0]["text"])

            return await asyncio.gather(*[send(prompt) for prompt in prompts])

    return timed(lambda: asyncio.run(send_all()), given.url)


def generate(given: argparse.Namespace) -> dict[str, Any]:
    """Generates with whichever `lm_eval` is installed."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    arguments: dict[str, Any] = {"model": MODEL, "base_url": given.url + PATH}
    if given.concurrent:
        arguments["num_concurrent"] = given.concurrent
    if given.tokenizer:
        arguments |= {"tokenizer": given.tokenizer, "tokenizer_backend": "huggingface"}
    else:
        arguments["tokenizer_backend"] = "none"
    lm = LocalCompletionsAPI(**arguments)
    if hasattr(lm, "certificate"):
        lm.certificate  # noqa: B018 (ours probes the server, which a run does once)
    requests = [
        Instance("generate_until", {}, (prompt, dict(SETTINGS)), i, ("mock", i, 1))
        for i, prompt in enumerate(word_problems(given.requests))
    ]
    return timed(lambda: lm.generate_until(requests), given.url)


def timed(work: Callable[[], list[str]], url: str) -> dict[str, Any]:
    """Returns the seconds that `work` takes, and how many HTTP requests it sends to the mock."""
    before, start = stats(url), time.perf_counter()
    answers = work()
    seconds = time.perf_counter() - start
    assert set(answers) == {ANSWER}, set(answers)
    return {"seconds": seconds, "sent": stats(url) - before}


def stream(given: argparse.Namespace) -> dict[str, Any]:
    """Sends requests from a generator with our client; returns the peak memory in MB."""
    from lm_eval.models.served.client import Client
    from lm_eval.models.served.exchange import Exchange
    from lm_eval.models.served.transport import HttpSettings, HttpTransport

    def exchanges() -> Iterator[Exchange]:
        for i in range(given.requests):
            body = {"model": MODEL, "prompt": f"Question {i}: {'Ann has a kite. ' * 16}"}
            yield Exchange(given.url + PATH, lambda body=body: body, lambda reply: reply, tag=i)

    answered = 0
    with Client(lambda: HttpTransport(HttpSettings())).stream(exchanges()) as results:
        for batch in results:
            answered += len(batch)
    assert answered == given.requests
    return {"megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def letters(documents: int, salt: str) -> list[tuple[str, str]]:
    """Returns requests for questions with five examples, which all of a subject share.

    The texts are made of words that the embedded model knows. `salt` decides about all of them.
    """
    draw = random.Random(salt)
    names = ("Ann", "Otto", "Vera", "Karl", "Greta", "Tom", "Lena", "Hugo", "Dora", "Max")
    things = ("kite", "lamp", "ring", "boat", "bell", "map", "hat", "clock", "knife", "flute")
    places = ("tower", "garden", "church", "mill", "cellar", "school", "river", "barn", "forest")

    def question(answered: bool) -> str:
        facts = [(draw.choice(names), draw.choice(things), draw.choice(places)) for _ in range(4)]
        told = " ".join(f"{who} has a {what} and is in the {where}." for who, what, where in facts)
        choices = "".join(
            f"{x}. in the {where}\n" for x, (_, _, where) in zip(LETTERS, facts, strict=True)
        )
        asked = draw.randrange(4)
        answer = f" {LETTERS[asked]}\n\n" if answered else ""
        return f"{told} Where is {facts[asked][0]}?\n{choices}Answer:{answer}"

    found = []
    for _ in range(SUBJECTS):
        examples = "".join(question(True) for _ in range(SHOTS))
        for _ in range(documents // SUBJECTS):
            prompt = examples + question(False)
            found += [(prompt, f" {letter}") for letter in LETTERS]
    return found


def score(given: argparse.Namespace) -> dict[str, Any]:
    """Scores letters with whichever `lm_eval` is installed; ours gets no setting but the model."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    def requests(documents: int, salt: str) -> list[Any]:
        return [
            Instance("loglikelihood", {}, pair, i, ("letters", i, 1))
            for i, pair in enumerate(letters(documents, salt))
        ]

    arguments: dict[str, Any] = {"model": MODEL, "base_url": given.url + PATH}
    if given.tokenizer:  # the published harness finds none by itself
        arguments |= {"tokenizer": given.tokenizer, "tokenizer_backend": "huggingface"}
        arguments |= {"num_concurrent": given.concurrent, "batch_size": given.batch}
        arguments |= {"max_length": CONTEXT}
    lm = LocalCompletionsAPI(**arguments)
    lm.loglikelihood(requests(WARM_UP, f"warm-up {given.salt}"))
    asked = requests(given.documents, given.salt)
    start = time.perf_counter()
    answers = lm.loglikelihood(asked)
    seconds = time.perf_counter() - start
    tokens = len(lm.tok_encode(asked[0].args[0]))
    return {"seconds": seconds, "answers": answers, "tokens": tokens}


MEASURE = {"bare": bare, "generate": generate, "stream": stream, "score": score}


# -- the processes ---------------------------------------------------------------------------------


def measure(python: str, work: str, cache: Path, **options: Any) -> Any:
    """Runs one measurement under the interpreter `python`; returns what it prints."""
    words = [f"--{name}={value}" for name, value in options.items()]
    # The published harness must not import our package, which PYTHONPATH may contain.
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if python == sys.executable:
        variables["PYTHONPATH"] = str(HERE)
    done = subprocess.run(
        [python, str(Path(__file__).resolve()), "--measure", work, *words],
        capture_output=True,
        text=True,
        cwd=cache,
        env={**variables, "HF_HUB_OFFLINE": "1", "LMEVAL_CACHE_DIR": str(cache)},
        check=False,
    )
    if done.returncode:
        sys.exit(f"The measurement {work} failed under {python}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def mock_server(file: Path, delay_ms: float) -> Iterator[str]:
    """Runs the mock server as long as the context lasts; gives its address."""
    from tests.servers.process import free_port

    url = f"http://127.0.0.1:{free_port()}"
    port = url.rpartition(":")[2]
    process = subprocess.Popen([sys.executable, str(file), port, str(delay_ms), str(SLOTS)])
    try:
        while True:
            try:
                stats(url)
                break
            except OSError:
                assert process.poll() is None, "the mock server ended"
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def load() -> str:
    """Returns the number of processes that wanted to run in the last minute, as text."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


Rates = dict[str, list[float]]
"""For each client its rate in every round."""


def report(rates: Rates, unit: str, references: list[str]) -> None:
    """Prints the median rate of each client, and the median ratio to others of the same round."""
    for name, values in rates.items():
        ratios = []
        for reference in references:
            same_round = zip(values, rates[reference], strict=True)
            ratio = statistics.median(value / other for value, other in same_round)
            ratios.append(f"{ratio:5.2f} × {reference.partition(',')[0]}")
        rounds = ", ".join(f"{value:.4g}" for value in values)
        rate = statistics.median(values)
        print(f"{name:29} {rate:7.1f} {unit}   {'   '.join(ratios)}   ({rounds})", flush=True)


def measure_mock(given: argparse.Namespace, cache: Path) -> None:
    """Prints requests per second of all clients, with prompts as text and as token ids."""
    ours, bare_loop, published = sys.executable, "bare loop", f"published, num_concurrent={SLOTS}"
    clients: dict[str, tuple[str, str, int]] = {
        bare_loop: (ours, "bare", 0),
        f"ours, num_concurrent={SLOTS}": (ours, "generate", SLOTS),
        "ours, nothing given": (ours, "generate", 0),
        published: (given.published, "generate", SLOTS),
    }
    forms = {"text": "", "token ids": given.tokenizer or str(SHARED / "tokenizers" / "gpt2")}
    with mock_server(given.mock, DELAY_MS) as url:
        for form, tokenizer in forms.items():
            rates: Rates = {name: [] for name in clients}
            for _ in range(given.rounds):
                for name, (python, work, concurrent) in clients.items():
                    options = {"url": url, "requests": given.requests, "concurrent": concurrent}
                    found = measure(python, work, cache, **options, tokenizer=tokenizer)
                    assert found["sent"] == given.requests, (name, found["sent"])
                    rates[name].append(given.requests / found["seconds"])
            print(f"\n{given.requests} requests, prompts as {form}; {load()}")
            report(rates, "requests/s", references=[bare_loop, published])


def measure_memory(given: argparse.Namespace, cache: Path) -> None:
    """Prints the peak memory of the client for few and many requests."""
    with mock_server(given.mock, 1) as url:
        few, many = (
            measure(sys.executable, "stream", cache, url=url, requests=count)["megabytes"]
            for count in (given.requests, 10 * given.requests)
        )
    print(
        f"\nPeak memory of our client: {few:.0f} MB with {given.requests} requests, {many:.0f} MB "
        f"with {10 * given.requests} ({many - few:+.1f} MB)",
        flush=True,
    )


def measure_vllm(given: argparse.Namespace, cache: Path) -> None:
    """Prints documents per second on a vLLM server, and how much the answers differ."""
    from tests.servers import start

    folder = start.write_demo(cache / "demo")
    home, work = cache / "home", cache / "vllm"
    home.mkdir()
    work.mkdir()
    published = {"tokenizer": folder, "concurrent": given.concurrent, "batch": given.batch}
    clients: dict[str, tuple[str, dict[str, Any]]] = {
        "published": (given.published, published),
        "ours": (sys.executable, {}),
    }
    with start.vllm(folder, start.offline_variables(home), work, CONTEXT) as server:
        rates: Rates = {name: [] for name in clients}
        for number in range(given.rounds):
            for name in [*clients][:: 1 if number % 2 else -1]:
                python, options = clients[name]
                salt = f"{name} {number}"
                common = {"url": server.url, "documents": given.documents, "salt": salt}
                found = measure(python, "score", cache, **common, **options)
                rates[name].append(given.documents / found["seconds"])
        answers = [
            measure(python, "score", cache, url=server.url, documents=40, salt="same", **options)
            for python, options in clients.values()
        ]
    print(
        f"\n{given.documents} documents with {SHOTS} examples, {answers[0]['tokens']} tokens; "
        f"published: num_concurrent={given.concurrent}, batch_size={given.batch}; {load()}"
    )
    report(rates, "documents/s", references=["published"])
    pairs = list(zip(*(found["answers"] for found in answers), strict=True))
    worst = max(abs(one[0] - other[0]) for one, other in pairs)
    print(f"Answers to {len(pairs)} equal requests agree within {worst:.1e}.", flush=True)


WORK = {"mock": measure_mock, "memory": measure_memory, "vllm": measure_vllm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORK)}")
    parser.add_argument("--published", help="Python of an environment with lm-eval 0.4.13")
    mock = SHARED / "bench" / "mock_server.py"
    parser.add_argument("--mock", type=Path, default=mock, help="the mock server")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each client")
    parser.add_argument("--requests", type=int, default=20_000, help="requests to the mock server")
    parser.add_argument("--documents", type=int, default=400, help="documents for vLLM")
    parser.add_argument(
        "--concurrent",
        type=int,
        default=PUBLISHED_CONCURRENT,
        help="num_concurrent of the published harness on vLLM",
    )
    parser.add_argument("--batch", type=int, default=1, help="its batch_size there")
    parser.add_argument("--tokenizer", default="", help="for the mock server (default: gpt2)")
    parser.add_argument("--measure", choices=list(MEASURE), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--salt", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        logging.disable(logging.WARNING)
        print(json.dumps(MEASURE[given.measure](given)))
        return
    sys.path.insert(0, str(HERE))  # for `tests.servers`; not in measurements of published code
    if unknown := set(given.names) - set(WORK):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(WORK)}")
    if given.published is None:
        from tests.servers.environments import python_of

        given.published = python_of("published")
    given.published = str(Path(given.published).absolute())
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names or WORK:
            WORK[name](given, Path(folder))


if __name__ == "__main__":
    main()
