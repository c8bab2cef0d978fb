"""Read a YAML file: `include` merged in, `!function` noted but not run, every key's line kept."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from lm_eval.config.functions import FunctionRef, resolve_functions
from lm_eval.errors import ConfigError, at

logger = logging.getLogger(__name__)

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Source:
    """Where a key was written, across includes."""

    file: Path
    line: int

    def __str__(self) -> str:
        return at(self.file, self.line)


@dataclass
class YamlFile:
    """The merged content of a file and its includes, and where each top-level key stands."""

    path: Path
    values: dict[str, Any]
    sources: dict[str, Source]

    def where(self, key: str) -> str:
        return str(self.sources.get(key, at(self.path)))


def load_yaml_file(path: str | Path) -> YamlFile:
    """Read and merge; runs no code from the folder. `!function` values are `FunctionRef`s."""
    return _load(Path(path).expanduser().resolve(), including=())


def load_yaml(
    path: str | Path, *, resolve_func: bool = True, recursive: bool = True
) -> dict[str, Any]:
    """The merged content as a dictionary, its functions looked up unless told otherwise."""
    resolved = Path(path).expanduser().resolve()
    values = load_yaml_file(resolved).values if recursive else parse_yaml(resolved)[0]
    return resolve_functions(values) if resolve_func else copy.deepcopy(values)


def _load(path: Path, including: tuple[Path, ...]) -> YamlFile:
    if path in including:
        chain = " -> ".join(str(p) for p in (*including[including.index(path) :], path))
        raise ConfigError(f"{path}: files include one another in a circle: {chain}.")
    own, own_sources = parse_yaml(path)
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    included = own.get("include")
    # An inline dictionary is a group's own defaults, not a file to merge.
    if included is not None and not isinstance(included, dict):
        del own["include"]
        for name in included if isinstance(included, list) else [included]:
            target = (path.parent / str(name)).resolve()
            if not target.is_file():
                raise ConfigError(
                    f"{own_sources['include']}: include: there is no file {target}. "
                    "The path is relative to the file it stands in, or absolute."
                )
            part = _load(target, (*including, path))
            part.values.pop("task_list", None)
            values |= part.values
            sources |= part.sources
    return YamlFile(path, values | own, sources | own_sources)


def parse_yaml(path: Path) -> tuple[dict[str, Any], dict[str, Source]]:
    """One file by itself: its content, and where each top-level key stands.

    What is inside the content is shared between calls, since hundreds of tasks may include one
    file: `resolve_functions` makes a copy before anybody changes anything.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    values, sources = _parse(path, status.st_mtime_ns, status.st_size)
    return dict(values), sources


@lru_cache(maxsize=512)
def _parse(path: Path, modified: int, size: int) -> tuple[dict[str, Any], dict[str, Source]]:

    class Loader(_Base):  # type: ignore[misc]
        """A loader that knows which folder its functions are relative to."""

    def function(loader: Any, node: Any) -> FunctionRef:
        name = loader.construct_scalar(node)
        return FunctionRef(str(name), path.parent, path, node.start_mark.line + 1)

    Loader.add_constructor("!function", function)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    try:
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            values = loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = mark.line + 1 if mark is not None else None
        raise ConfigError(f"{at(path, line)}: not valid YAML: {problem}.") from error
    except (UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: expected `key: value` lines at the top level, "
            f"found {'nothing' if values is None else type(values).__name__}."
        )
    return values, _sources(node, path)


def _sources(node: Any, path: Path) -> dict[str, Source]:
    """The line of every top-level key, and as `key[0]`, `key[1]` … of the items of its list."""
    sources: dict[str, Source] = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            source = Source(path, key.start_mark.line + 1)
            if key.value in sources:
                logger.warning(
                    "%s: `%s` is given a second time; what line %d says has no effect.",
                    source,
                    key.value,
                    sources[key.value].line,
                )
            sources[key.value] = source
            items = value.value if isinstance(value, yaml.SequenceNode) else []
            for number, item in enumerate(items):
                sources[f"{key.value}[{number}]"] = Source(path, item.start_mark.line + 1)
    return sources
