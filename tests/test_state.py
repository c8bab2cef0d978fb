"""Tests that no function assigns attributes of objects that belong to another package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lm_eval"

#: Assignments that are meant, by file and target; each with its reason.
ALLOWED = {
    # Libraries that are configured through an attribute.
    ("helpers/ifeval_language.py", "langdetect.DetectorFactory.seed"): "it has no other switch",
    ("cli/__init__.py", "sys.excepthook"): "how tracebacks of --debug are printed without secrets",
    ("cli/run.py", "parser.argument_default"): "argparse takes it from nowhere else",
    ("logs.py", "logger.handlers"): "how logging is configured",
    ("logs.py", "logger.propagate"): "how logging is configured",
    ("data/hub.py", "module.HF_HUB_OFFLINE"): "the library's switch, set back afterwards",
    ("models/huggingface/loading.py", "huggingface_hub.constants.HF_HUB_OFFLINE"): (
        "the library's switch, set back afterwards"
    ),
    ("models/huggingface/model_state.py", "module.training"): "torch's switch, set back afterwards",
    ("models/huggingface/attention.py", "config._attn_implementation_internal"): (
        "transformers' switch, set back afterwards"
    ),
    ("models/huggingface/loading.py", "tokenizer.pad_token"): "as published; see the function",
    ("models/huggingface/loading.py", "tokenizer.pad_token_id"): "as published; see the function",
    ("models/huggingface/replaced_forwards.py", "module.'forward'"): "removed again afterwards",
    ("models/llama_cpp_engine.py", "engine.n_tokens"): "how llama_cpp forgets tokens",
}

#: Calls other than constructors whose result is a new object.
MAKERS = {"copy", "deepcopy", "replace", "from_string", "add_parser", "getLogger", "fromkeys"}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yields the AST nodes of a function without those of nested functions and classes."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
            yield from own_nodes(child)


def targets_of(node: ast.AST) -> Iterator[ast.expr]:
    """Yields the targets of an assignment, with tuples unpacked; for `setattr`, the attribute."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        found = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("setattr", "delattr"):
            yield ast.Attribute(value=node.args[0], attr=f"{{{ast.unparse(node.args[1])}}}")
    elif isinstance(node, ast.Delete):
        found = list(node.targets)
    while found:
        target = found.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            found += target.elts
        elif isinstance(target, ast.Subscript) and _is_vars(target.value):
            yield ast.Attribute(value=_holder(target.value), attr=ast.unparse(target.slice))
        else:
            yield target


def _is_vars(node: ast.expr) -> bool:
    """Returns whether a node is an object's attribute dictionary: `vars(x)` or `x.__dict__`."""
    called = isinstance(node, ast.Call) and ast.unparse(node.func) == "vars"
    return called or (isinstance(node, ast.Attribute) and node.attr == "__dict__")


def _holder(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Call):
        return node.args[0]
    assert isinstance(node, ast.Attribute)
    return node.value


def made_here(function: ast.AST) -> set[str]:
    """Returns the names (and attributes) that the function binds to objects it has created."""
    made: set[str] = set()
    for node in own_nodes(function):
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            pairs = [(node.optional_vars, node.context_expr)]
        else:
            continue
        made |= {ast.unparse(target) for target, value in pairs if makes(value)}
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return made | {n.name for n in ast.iter_child_nodes(function) if isinstance(n, inner)}


def makes(value: ast.expr) -> bool:
    """Returns whether an expression calls a class, or a function known to create an object."""
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func).rpartition(".")[2].partition("[")[0]
    return name.lstrip("_")[:1].isupper() or name in MAKERS


def annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, set[str]]:
    """Returns the class names in each variable's annotation; items get those of their container."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found = {
        argument.arg: _names(argument.annotation)
        for argument in every
        if argument.annotation is not None
    }
    for node in own_nodes(function):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = _names(node.annotation)
        target, source = None, None
        if isinstance(node, ast.For):
            target, source = node.target, node.iter
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            target, source = node.targets[0], node.value.value
        if isinstance(target, ast.Name) and source is not None:
            over = ast.unparse(source).partition(".")[0].partition("(")[0]
            if over in found:
                found.setdefault(target.id, found[over])
    return found


def _names(annotation: ast.expr) -> set[str]:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def imported(tree: ast.AST) -> dict[str, str]:
    """Returns the package of every name that a module imports from `lm_eval`."""
    rooms: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lm_eval."):
            room = str(node.module).split(".")[1]
            rooms |= {alias.asname or alias.name: room for alias in node.names}
    return rooms


def planted(file: Path) -> list[str]:
    """Returns every attribute of another package's objects that a function in `file` assigns."""
    return _planted_in(ast.parse(file.read_text(encoding="utf-8")), file)


def _planted_in(tree: ast.AST, file: Path) -> list[str]:
    path = str(file.relative_to(PACKAGE))
    room = file.relative_to(PACKAGE).with_suffix("").parts[0]
    rooms = imported(tree)
    rooms |= {node.name: room for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = []
    for function in functions(tree):
        made, typed = made_here(function), annotations(function)
        for node in own_nodes(function):
            for target in targets_of(node):
                if not isinstance(target, ast.Attribute):
                    continue
                holder, text = ast.unparse(target.value), ast.unparse(target)
                ours = any(rooms.get(name) == room for name in typed.get(holder, ()))
                if holder in ("self", "cls") or holder in made or ours or (path, text) in ALLOWED:
                    continue
                found.append(f"{path}:{getattr(node, 'lineno', 0)} {function.name}: {text} = …")
    return found


FILES = [
    file
    for file in sorted(PACKAGE.rglob("*.py"))
    # Benchmark folders are data with a few helpers.
    if not (file.relative_to(PACKAGE).parts[0] == "tasks" and file.parent != PACKAGE / "tasks")
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_function_plants_an_attribute_on_an_object_of_another_room(file: Path) -> None:
    assert not planted(file)


def test_every_exception_to_the_rule_is_still_needed() -> None:
    for path, target in ALLOWED:
        tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
        nodes = [node for function in functions(tree) for node in own_nodes(function)]
        found = {ast.unparse(assigned) for node in nodes for assigned in targets_of(node)}
        assert target in found, f"{path} no longer assigns {target}"


@pytest.mark.parametrize(
    ("code", "finds"),
    [
        ("def f(lm: LM):\n    lm.run_seed = 3", True),
        ("def f(lm):\n    setattr(lm, 'seed', 3)", True),
        ("def f(store: Store):\n    store.listener, x = g, 2", True),
        ("def f(task):\n    vars(task)['x'] = 1", True),
        ("def f(error):\n    error.answers = {}\n    raise error", True),
        ("class A:\n    def f(self, other: A):\n        other.x = 1", False),
        ("def f():\n    made = Thing()\n    made.x = 1", False),
        ("class A:\n    def f(self):\n        self.x = 1", False),
        ("def f(items: list[LM]):\n    for one in items:\n        one.x += 1", True),
    ],
)
def test_the_rule_finds_what_it_is_meant_to(code: str, finds: bool) -> None:
    file = PACKAGE / "engine" / "a_file_that_is_not_there.py"
    tree = ast.parse(code)
    assert bool(_planted_in(tree, file)) is finds
