"""Measures models behind servers, compared with a bare aiohttp loop and the published harness.

usage: python benchmarks/served.py [mock] [run] [memory] [vllm] [--rounds N] [--published PYTHON]
                                   [--mock FILE] [--requests N] [--documents N]

- `mock`: requests per second of greedy generation against a server that answers after 20 ms, 64
  requests at once (`../shared/bench/mock_server.py`); one prompt per HTTP request, as the server
  counts them. The bare loop is what aiohttp can do: 64 requests at once, one session, JSON.
- `run`: the same requests as a whole evaluation, by `simple_evaluate` on a task with as many
  documents: prompts are built, answers scored. Reading the catalog of tasks is not counted.
- `memory`: peak memory of our client, fed from a generator, with 20,000 and 200,000 requests.
- `vllm`: documents per second of multiple choice with five examples and the choices A to D, like
  MMLU, on a real vLLM server with the embedded model (`tests/servers`, which installs it). Every
  measurement has its own texts, so that none finds its prompts in the server's prefix cache.

Without a name, all are run. Each measurement is a process of its own, and the clients take
turns, so that noise affects all alike: rates are medians, and so are the ratios of rates of the
same round. PYTHON is that of an environment with lm-eval 0.4.13; by default `tests/servers`
installs one. Run it on a machine that does nothing else: client and server share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import comparison
from comparison import HERE, SHOTS, Rates, letters, load, report

SHARED = HERE.parent / "shared"
DELAY_MS, SLOTS = 20, 64
PATH = "/v1/completions"
MODEL = "demo"
ANSWER = "The answer is 4."
"""What the mock server answers to every prompt."""
SETTINGS = {"until": ["\n\n"], "do_sample": False, "max_gen_toks": 64}
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


def evaluate(given: argparse.Namespace) -> dict[str, Any]:
    """Evaluates a task on the mock server with whichever `lm_eval` is installed."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    folder = Path("task").absolute()
    folder.mkdir(exist_ok=True)
    rows = [{"text": text} for text in word_problems(given.requests)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "problems.yaml").write_text(TASK.format(data=folder / "problems.jsonl"))
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    arguments = {"model": MODEL, "base_url": given.url + PATH, "tokenizer_backend": "none"}
    if given.concurrent:
        arguments["num_concurrent"] = given.concurrent

    def work() -> list[str]:
        results = lm_eval.simple_evaluate(
            "local-completions",
            model_args=arguments,
            tasks=["problems"],
            task_manager=manager,
            log_samples=False,
        )
        assert results["results"]["problems"]["exact_match,none"] == 1.0
        return [ANSWER]

    return timed(work, given.url)


TASK = """\
task: problems
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "{{{{text}}}}"
doc_to_target: "The answer is 4."
generation_kwargs:
  until: ["\\n\\n"]
  do_sample: false
  max_gen_toks: 64
metric_list:
  - metric: exact_match
"""


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


def measure(python: str, work: str, cache: Path, **options: Any) -> Any:
    """Returns what one measurement under the interpreter `python` prints."""
    ours = python == sys.executable
    return comparison.measure(python, __file__, work, cache, ours, **options)


MEASURE = {
    "bare": bare,
    "generate": generate,
    "evaluate": evaluate,
    "stream": stream,
    "score": score,
}


# -- the processes ---------------------------------------------------------------------------------


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
            rates = take_turns(given, cache, url, clients, tokenizer)
            print(f"\n{given.requests} requests, prompts as {form}; {load()}")
            report(rates, "requests/s", references=[bare_loop, published])


def take_turns(
    given: argparse.Namespace,
    cache: Path,
    url: str,
    clients: dict[str, tuple[str, str, int]],
    tokenizer: str = "",
) -> Rates:
    """Returns requests per second of clients, given by Python, measurement and `num_concurrent`."""
    rates: Rates = {name: [] for name in clients}
    for _ in range(given.rounds):
        for name, (python, work, concurrent) in clients.items():
            options = {"url": url, "requests": given.requests, "concurrent": concurrent}
            found = measure(python, work, cache, **options, tokenizer=tokenizer)
            probes = 20 if work == "evaluate" else 0  # here, probing the server counts
            assert 0 <= found["sent"] - given.requests <= probes, (name, found["sent"])
            rates[name].append(given.requests / found["seconds"])
    return rates


def measure_run(given: argparse.Namespace, cache: Path) -> None:
    """Prints requests per second of whole evaluations."""
    clients = {
        "published, whole evaluation": (given.published, "evaluate", SLOTS),
        "ours, whole evaluation": (sys.executable, "evaluate", SLOTS),
        "ours, nothing given": (sys.executable, "evaluate", 0),
    }
    with mock_server(given.mock, DELAY_MS) as url:
        rates = take_turns(given, cache, url, clients)
    print(f"\nEvaluations with {given.requests} requests, prompts as text; {load()}")
    report(rates, "requests/s", references=["published, whole evaluation"])


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


WORK = {"mock": measure_mock, "run": measure_run, "memory": measure_memory, "vllm": measure_vllm}


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
