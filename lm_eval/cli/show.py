"""`lm-eval show`: prints the exact requests of a document without loading a model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lm_eval.cli.options import (
    add_data_dir,
    add_include_path,
    add_prompt_options,
    include_paths,
)

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.task import Task
    from lm_eval.config.run import RunConfig
    from lm_eval.models.tokenizer import Tokenizer

HELP = "show the exact requests that a model gets for a document"
#: Number of tokens shown from the end of a context. `--json` prints all of them.
TOKENS_SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval show` to the parser."""
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="tasks, groups, tags or files")
    parser.add_argument(
        "--doc", type=int, default=0, metavar="N", help="number of the document (default: 0)"
    )
    add_prompt_options(parser)
    parser.add_argument("--seed", metavar="N", help="seed of the few-shot examples, as for `run`")
    parser.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="folder or hub name of a tokenizer: show tokens, and use its chat template",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with prompts unchanged")
    add_data_dir(parser)
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the requests of the document `--doc`, counted from 0, of every task; returns 0.

    Raises `ConfigError` if a task has no such document, or if `--apply_chat_template` is given
    without `--tokenizer`.
    """
    from lm_eval.config.run import RunConfig
    from lm_eval.data import mirror_at
    from lm_eval.errors import ConfigError
    from lm_eval.models.tokenizer import Tokenizer
    from lm_eval.preparation import load_tasks
    from lm_eval.prompts.template import render_limit
    from lm_eval.tasks import TaskManager

    given = {k: v for k, v in vars(arguments).items() if k in _RUN_SETTINGS and v is not None}
    run = RunConfig(**given, include_path=include_paths(arguments.include_path))
    tokenizer = None if arguments.tokenizer is None else Tokenizer(arguments.tokenizer)
    if run.apply_chat_template:
        if tokenizer is None:
            raise ConfigError(
                "--apply_chat_template needs --tokenizer, which contains the chat template."
            )
        tokenizer.choose_template(run.apply_chat_template)
    manager = TaskManager(include_path=run.include_path, metadata=run.metadata)
    with mirror_at(arguments.data_dir):
        tasks = load_tasks(run, manager)["tasks"]
    with render_limit():
        return _show(arguments, run, tasks.values(), tokenizer)


def _show(
    arguments: argparse.Namespace,
    run: RunConfig,
    tasks: Iterable[Task],
    tokenizer: Tokenizer | None,
) -> int:
    """Prints the requests of one document of each task and returns 0; see `execute`."""
    from lm_eval.errors import ConfigError

    shown = []
    for task in tasks:
        count = len(task.eval_docs)
        if not 0 <= arguments.doc < count:
            raise ConfigError(
                f"task {task.task_name!r} has no document {arguments.doc}: "
                f"--doc must be between 0 and {count - 1}."
            )
        # The few-shot examples of a document depend on the random draws for those before it.
        task.build_all_requests(
            limit=arguments.doc + 1,
            system_instruction=run.system_instruction,
            apply_chat_template=bool(run.apply_chat_template),
            fewshot_as_multiturn=bool(run.fewshot_as_multiturn),
            chat_template=tokenizer.apply_chat_template if tokenizer else None,
        )
        requests = [r for r in task.instances if r.doc_id == arguments.doc]
        if arguments.json:
            shown.append(_as_data(task, requests, tokenizer))
        else:
            print("\n".join(_as_text(task, requests, tokenizer)), end="\n\n")
    if arguments.json:
        print(json.dumps(shown, indent=2, ensure_ascii=False, default=str))
    return 0


_RUN_SETTINGS = (
    "tasks",
    "num_fewshot",
    "apply_chat_template",
    "fewshot_as_multiturn",
    "system_instruction",
    "gen_kwargs",
    "metadata",
    "seed",
)


def _as_data(
    task: Task, requests: Sequence[Instance], tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """Returns the requests of one document and what is known about its task, to be printed as JSON.

    Requests contain token ids if there is a `tokenizer`.
    """
    first = requests[0]
    return {
        "task": task.task_name,
        "version": task.VERSION,
        "document": first.doc_id,
        "num_fewshot": task.config.num_fewshot,
        "requests": [
            {
                "type": request.request_type,
                "arguments": list(request.args),
                **({"tokens": _tokens(request, tokenizer)} if tokenizer else {}),
            }
            for request in requests
        ],
        "target": task.doc_to_target(first.doc),
        "metrics": list(task.aggregation()),
        "filters": [pipeline.name for pipeline in task._filters],
    }


def _tokens(request: Instance, tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Returns the token ids of a request as `{"context": […], "continuation": […]}`.

    The continuation is empty unless the request is for a log-likelihood of one.
    """
    if request.request_type == "loglikelihood":
        context, continuation = tokenizer.encode_pair(*request.args[:2])
        return {"context": context, "continuation": continuation}
    return {"context": tokenizer.encode(request.args[0]), "continuation": []}


# -- readable output --------------------------------------------------------------------------


def _as_text(
    task: Task, requests: Sequence[Instance], tokenizer: Tokenizer | None
) -> Iterator[str]:
    """Yields the lines that describe the requests of one document."""
    from lm_eval.prompts.visible import visible

    first, higher = requests[0], task.higher_is_better()
    arrows: dict[Any, str] = {True: " ↑", False: " ↓"}
    metrics = [f"{name}{arrows.get(higher.get(name), '')}" for name in task.aggregation()]
    shots = task.config.num_fewshot or 0
    yield f"task      {task.task_name} (version {task.VERSION})"
    yield f"document  {first.doc_id} of {len(task.eval_docs)}"
    yield f"requests  {len(requests)} × {first.request_type}, {shots}-shot"
    yield f"metrics   {', '.join(metrics)}"
    yield f"filters   {', '.join(pipeline.name for pipeline in task._filters)}"
    if first.request_type == "loglikelihood":
        gold = _gold(task, first.doc)
        for context, grouped in groupby(requests, key=lambda request: request.args[0]):
            with_context = list(grouped)
            yield _rule("context")
            yield visible(context)
            if tokenizer:
                yield _context_tokens(_tokens(with_context[0], tokenizer)["context"], tokenizer)
            yield _rule("continuations" if len(with_context) > 1 else "continuation")
            for request in with_context:
                choice = request.args[1].removeprefix(task.config.target_delimiter)
                is_gold = request.idx in gold or choice.strip() in gold
                mark = "  ◀ gold" if is_gold else ""
                yield f"{request.idx:>2}  {visible(request.args[1])}{mark}"
                if tokenizer:
                    tokens = _tokens(request, tokenizer)["continuation"]
                    yield f"    {_pieces(tokens, tokenizer)}"
    else:
        yield _rule("text" if first.request_type == "loglikelihood_rolling" else "context")
        yield visible(first.args[0])
        if tokenizer:
            yield _context_tokens(_tokens(first, tokenizer)["context"], tokenizer)
        if len(first.args) > 1:
            yield _rule("generation")
            yield json.dumps(first.args[1], ensure_ascii=False)
    yield _rule("target")
    yield visible(str(task.doc_to_target(first.doc)))


def _rule(name: str) -> str:
    """Returns a horizontal line of 60 characters with a title."""
    return f"──── {name} ".ljust(60, "─")


def _gold(task: Task, doc: Any) -> list[Any]:
    """Returns a list of the gold answers of a document, as indices (from 0) or texts of choices.

    In a task whose choices are different inputs, it is the index of the right input.
    """
    chooses_input = getattr(task, "multiple_input", 0)
    gold = task.doc_to_text(doc) if chooses_input else task.doc_to_target(doc)
    return gold if isinstance(gold, list) else [gold]


def _context_tokens(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    """Returns a line with the number of tokens and the last `TOKENS_SHOWN` of them.

    The last tokens show how text is split at the boundary between context and continuation.
    """
    more = "… " if len(tokens) > TOKENS_SHOWN else ""
    return f"    {len(tokens)} tokens: {more}{_pieces(tokens[-TOKENS_SHOWN:], tokenizer)} ‖"


def _pieces(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    """Returns the tokens as one text: the id of each token, followed by its string in quotes."""
    pairs = zip(tokens, tokenizer.pieces(tokens), strict=True)
    return " ".join(f"{token}{piece!r}" for token, piece in pairs)
