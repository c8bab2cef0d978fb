"""Measures vLLM in the process of an evaluation, compared with the published harness.

usage: python benchmarks/engines.py [letters] [texts] [texts-0-shot] [--rounds N] [--documents N]

- `letters`: multiple choice with five examples and the choices A to D, like MMLU;
- `texts`: multiple choice with five examples and texts as choices, like ARC;
- `texts-0-shot`: the same without examples.

Without a name, all three are run. Both harnesses run `--model vllm` with the same vLLM (a build for
CPUs, which `tests/servers` installs), the embedded model, and the same arguments. Each measurement
is a process of its own, with texts of its own, so that nothing is found in a cache; the harnesses
take turns. Rates are medians, and so are the ratios of rates of the same round. Loading the model
and the first few documents are not counted. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comparison import HERE, SHOTS, Pairs, Rates, letters, load, measure, report, texts

CONTEXT = 1024
"""The context length of the embedded model."""
WARM_UP = 16
"""The number of documents before the time is taken; the same for all, so that answers can be
compared."""

WORK: dict[str, Callable[[int, str], Pairs]] = {
    "letters": letters,
    "texts": lambda documents, salt: texts(documents, salt, SHOTS),
    "texts-0-shot": lambda documents, salt: texts(documents, salt, 0),
}


# -- one measurement, in a process of its own -----------------------------------------------------


def counters(lm: Any) -> dict[str, float]:
    """Returns the counters of vLLM by name."""
    found: dict[str, float] = {}
    for metric in lm.model.llm_engine.get_metrics():
        if hasattr(metric, "value"):
            found[metric.name] = found.get(metric.name, 0.0) + metric.value
    return found


def score(given: argparse.Namespace) -> dict[str, Any]:
    """Scores the choices of documents with whichever `lm_eval` is installed."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.vllm_causallms import VLLM

    def requests(documents: int, salt: str) -> list[Any]:
        return [
            Instance("loglikelihood", {}, pair, i, (given.measure, i, 1))
            for i, pair in enumerate(WORK[given.measure](documents, salt))
        ]

    lm = VLLM(
        pretrained=given.model,
        dtype="float32",
        max_model_len=CONTEXT,
        enforce_eager=True,
        disable_log_stats=False,
    )
    answers = lm.loglikelihood(requests(WARM_UP, "warm-up"))
    asked = requests(given.documents, given.salt)
    before, start = counters(lm), time.perf_counter()
    lm.loglikelihood(asked)
    seconds = time.perf_counter() - start
    grown = {name: value - before.get(name, 0.0) for name, value in counters(lm).items()}
    tokens = [len(lm.tok_encode("".join(pair.args))) for pair in asked]
    return {
        "seconds": seconds,
        "answers": answers,
        "tokens": statistics.mean(tokens),
        "requests": grown["vllm:request_success"],
        "looked_up": grown["vllm:prefix_cache_queries"],
        "found": grown["vllm:prefix_cache_hits"],
    }


# -- the comparison -------------------------------------------------------------------------------


def compare(name: str, given: argparse.Namespace, model: Path, cache: Path) -> None:
    """Prints documents per second of both harnesses, and what vLLM counted."""
    from tests.servers.environments import python_of

    pythons = {"published": python_of("published-vllm"), "ours": python_of("vllm")}
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # Dynamo takes 20 seconds
    }
    rates: Rates = {client: [] for client in pythons}
    found: dict[str, Any] = {}
    for number in range(given.rounds):
        for client in [*pythons][:: 1 if number % 2 else -1]:
            found[client] = measure(
                str(pythons[client]),
                __file__,
                name,
                cache,
                client == "ours",
                variables,
                model=model,
                documents=given.documents,
                salt=f"{name} {client} {number}",
            )
            rates[client].append(given.documents / found[client]["seconds"])
    tokens = found["ours"]["tokens"]
    print(f"\n{name}: {given.documents} documents, {tokens:.0f} tokens per choice; {load()}")
    report(rates, "documents/s", references=["published"])
    for client, one in found.items():
        share = one["found"] / one["looked_up"] if one["looked_up"] else 0.0
        print(
            f"{client}: {one['requests']:.0f} requests to vLLM; {one['looked_up']:.0f} tokens "
            f"looked up in its prefix cache, {share:.0%} of them found"
        )
    pairs = list(zip(found["ours"]["answers"], found["published"]["answers"], strict=True))
    worst = max(abs(one[0] - other[0]) for one, other in pairs)
    same = all(one[1] == other[1] for one, other in pairs)
    print(f"Answers to {len(pairs)} equal requests agree within {worst:.1e}; greedy: {same}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORK)}")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each harness")
    parser.add_argument("--documents", type=int, default=400, help="documents per measurement")
    parser.add_argument("--measure", choices=list(WORK), help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--salt", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        logging.disable(logging.WARNING)
        print(json.dumps(score(given)))
        return
    sys.path.insert(0, str(HERE))  # for `tests.servers`; not in measurements of published code
    if unknown := set(given.names) - set(WORK):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(WORK)}")
    from tests.servers.start import write_demo

    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        model = write_demo(cache / "demo")
        for name in given.names or WORK:
            compare(name, given, model, cache)


if __name__ == "__main__":
    main()
