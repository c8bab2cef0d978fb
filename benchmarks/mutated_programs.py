"""Compares verdicts of the sandbox with plain execution, on mutated solutions.

usage: python -m benchmarks.mutated_programs [--data ../shared/data] [--seed 1] [--humaneval 5]
           [--mbpp 2] [--seconds 6] [--report FILE]

Each canonical solution of HumanEval and MBPP is changed in several ways: another operator, another
constant, a negated condition, a statement left out, arguments swapped, the end cut off. Only what a
model would write is changed, not the prompt of HumanEval. Each program is judged twice: by the
sandbox, and by executing program and tests together in a fresh interpreter, which is what the
metric `code_eval` of the `evaluate` library does. The mutated programs do no harm, but the second
way has no isolation beyond limits of time and memory: run this in a place that can be thrown away.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import copy
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sandbox import HUMANEVAL, MBPP
from lm_eval.sandbox import Limits, isolation, run

MEMORY = 2 << 30
#: Executes what it reads from its input, and says at the end that it got there.
PLAIN = (
    "import sys\n"
    "text = sys.stdin.buffer.read().decode('utf-8', 'surrogatepass')\n"
    "out = sys.stdout\n"
    "class Silent:\n"
    "    def write(self, text): return len(text)\n"
    "    def flush(self): pass\n"
    "sys.stdout = sys.stderr = Silent()\n"
    "try:\n"
    "    exec(text, {})\n"
    "    result = 'passed'\n"
    "except BaseException as error:\n"
    "    result = 'failed: ' + type(error).__name__\n"
    "out.write('\\nresult ' + result)\n"
    "out.flush()\n"
)
#: Each operator with those that take its place.
SWAPPED: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv),
    ast.Div: (ast.FloorDiv, ast.Mult),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


@dataclass(frozen=True)
class Case:
    """A mutated program: a text that comes first unchanged (the prompt), the rest, and tests."""

    name: str
    prompt: str
    rest: str
    tests: str

    @property
    def program(self) -> str:
        return self.prompt + self.rest


def mutations(source: str, first_line: int, seed: str) -> Iterator[str]:
    """Yields changed versions of a program, in random order, of the lines from `first_line` on."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    places = [
        index
        for index, node in enumerate(ast.walk(tree))
        if getattr(node, "lineno", 0) >= first_line
    ]
    generator = random.Random(seed)
    generator.shuffle(places)
    pairs = [tuple(generator.choices(places, k=2)) for _ in range(100)]
    for chosen in [*((index,) for index in places), *pairs]:
        changed = copy.deepcopy(tree)
        nodes = list(ast.walk(changed))
        if all(change(nodes[index], generator) for index in chosen):
            yield "".join(lines[: first_line - 1]) + unparsed(changed, first_line)
    start = len("".join(lines[: first_line - 1]))
    for _ in range(100):
        yield source[: generator.randrange(start, len(source))]


def unparsed(tree: ast.Module, first_line: int) -> str:
    """Returns the code of the last function's body if it begins at `first_line`, else of all."""
    if first_line == 1:
        return ast.unparse(tree) + "\n"
    function = tree.body[-1]
    assert isinstance(function, ast.FunctionDef)
    body = [node for node in function.body if node.lineno >= first_line]
    text = "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in body) or "pass"
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


def change(node: ast.AST, generator: random.Random) -> bool:
    """Changes a node of a syntax tree in place; returns whether there was anything to change."""
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPPED:
        node.op = generator.choice(SWAPPED[type(node.op)])()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        node.ops[0] = generator.choice(SWAPPED[type(node.ops[0])])()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += generator.choice((-1, 1))
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        node.value = node.value[:-1]
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = generator.choice((ast.Constant(None), ast.List([node.value], ast.Load())))
    elif isinstance(node, ast.Call) and len(node.args) > 1:
        node.args.reverse()
    elif isinstance(node, (ast.For, ast.FunctionDef)) and len(node.body) > 1:
        del node.body[generator.randrange(len(node.body))]
    else:
        return False
    ast.fix_missing_locations(node)
    return True


def cases(data: Path, seed: int, humaneval: int, mbpp: int) -> Iterator[Case]:
    """Yields the mutated programs of HumanEval and MBPP, so many of each solution."""
    import pyarrow.parquet as parquet

    for row in parquet.read_table(data / HUMANEVAL).to_pylist():
        prompt, solution = row["prompt"], row["canonical_solution"]
        tests = f"{row['test']}\ncheck({row['entry_point']})"
        first_line = prompt.count("\n") + 1
        if not prompt.endswith("\n"):
            raise ValueError(f"{row['task_id']}: the prompt does not end a line")
        whole = prompt + solution
        yield from _chosen(row["task_id"], prompt, whole, tests, first_line, seed, humaneval)
    for split in ("train", "validation", "test", "prompt"):
        for row in parquet.read_table(data / MBPP / f"{split}.parquet").to_pylist():
            tests = "\n".join([row["test_setup_code"] or "", *row["test_list"]])
            yield from _chosen(f"MBPP/{row['task_id']}", "", row["code"], tests, 1, seed, mbpp)


def _chosen(
    name: str, prompt: str, whole: str, tests: str, first_line: int, seed: int, count: int
) -> Iterator[Case]:
    seen = {whole}
    for text in mutations(whole, first_line, f"{seed}/{name}"):
        if len(seen) > count:
            return
        if text not in seen and text.startswith(prompt):
            seen.add(text)
            yield Case(f"{name}#{len(seen) - 1}", prompt, text[len(prompt) :], tests)


def plain_result(case: Case, seconds: float) -> str:
    """Returns what executing program and tests together gives: `passed`, or why it failed."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))

    environment = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-c", PLAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            preexec_fn=limit,
            start_new_session=True,
        ) as process,
    ):
        text = f"{case.program}\n{case.tests}".encode("utf-8", "surrogatepass")
        try:
            output, _ = process.communicate(text, timeout=3 * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "timed out"
    if process.returncode == -signal.SIGXCPU:
        return "timed out"
    return output.decode(errors="replace").rpartition("\nresult ")[2] or "died"


def main() -> None:
    """Judges all programs both ways and prints how often they agree."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--humaneval", type=int, default=5, help="mutations of each solution")
    parser.add_argument("--mbpp", type=int, default=2, help="mutations of each solution")
    parser.add_argument("--seconds", type=float, default=6.0, help="the time limit of a program")
    parser.add_argument("--report", type=Path, help="a file for all verdicts, as JSON")
    args = parser.parse_args()
    made = list(cases(args.data, args.seed, args.humaneval, args.mbpp))
    print(f"{len(made)} mutated programs, isolation {isolation().name}")
    verdicts = run(
        [case.program for case in made],
        [case.tests for case in made],
        Limits().with_wall_seconds(args.seconds),
        given=[case.prompt for case in made],
    )
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        plain = list(pool.map(lambda case: plain_result(case, args.seconds), made))
    counts: Counter[tuple[str, str, bool]] = Counter()
    for case, verdict, result in zip(made, verdicts, plain, strict=True):
        source = "MBPP" if case.name.startswith("MBPP") else "HumanEval"
        agree = verdict.passed == (result == "passed")
        counts[source, "passed" if verdict.passed else "failed", agree] += 1
        if not agree:
            print(f"{case.name}: sandbox {verdict.outcome} ({verdict.detail}), plain {result}")
    for (source, outcome, agree), count in sorted(counts.items()):
        print(f"{source:10} {outcome:7} {'equal' if agree else 'DIFFERENT':10} {count}")
    if args.report:
        rows = [
            {"name": c.name, "program": c.program, "sandbox": v.outcome, "plain": r}
            for c, v, r in zip(made, verdicts, plain, strict=True)
        ]
        args.report.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
