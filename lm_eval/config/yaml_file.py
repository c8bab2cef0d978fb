"""Reads YAML files: merges `include`, keeps `!function` references, and records line numbers."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from lm_eval.config.functions import (
    FunctionRef,
    common_folder,
    function_refs,
    resolve_functions,
)
from lm_eval.config.regular_file import is_regular, read_regular
from lm_eval.config.yaml_limits import check_limits, decoded_text
from lm_eval.errors import ConfigError, at

logger = logging.getLogger(__name__)

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: How many files may include each other in a row.
_LONGEST_CHAIN = 50
_MOST_DIGITS = 1000


@dataclass(frozen=True)
class Source:
    """The file and line (from 1) in which a key is written; it may be an included file."""

    file: Path
    line: int

    def __str__(self) -> str:
        return at(self.file, self.line)


@dataclass
class YamlFile:
    """The content of a YAML file, merged over the files it includes.

    `sources` holds the file and line of each top-level key. For items of a list it has keys such
    as `task[0]`. `task_root` is the folder of task files that the file was found in; None if it was
    named directly.
    """

    path: Path
    values: dict[str, Any]
    sources: dict[str, Source]
    task_root: Path | None = None

    @property
    def root(self) -> Path | None:
        """The folder that must contain the Python files of the `!function` references.

        It is `task_root`, or else the nearest folder that contains this file, the files that it
        includes and the Python files. None if the configuration has neither file nor references.
        """
        if self.task_root is not None:
            return self.task_root
        refs = [ref for ref in function_refs(self.values) if not ref.module.startswith("/")]
        files = {source.file for source in self.sources.values()}
        return common_folder(files | {ref.file for ref in refs} | {ref.path for ref in refs})

    def where(self, key: str) -> str:
        """Returns `file:line` of a key or a list item (`task[0]`); only the file if unknown."""
        return str(self.sources.get(key, at(self.path)))


def load_yaml_file(path: str | Path, task_root: Path | None = None) -> YamlFile:
    """Returns the content of a YAML file, merged over the files it includes.

    Its own keys take precedence, and a later included file over an earlier one. No code is run:
    each `!function` value is a `FunctionRef`. `task_root` is the folder of task files that it was
    found in, if any. Raises `ConfigError` if a file cannot be read or is not valid, or if files
    include each other.
    """
    file = _load(resolved_path(path), (), {})
    # A link in the folder may lead to a file outside it, which has its Python files beside it.
    root = None if task_root is None else task_root.resolve()
    return replace(file, task_root=root) if root and file.path.is_relative_to(root) else file


def load_yaml(
    path: str | Path, *, resolve_func: bool = True, recursive: bool = True
) -> dict[str, Any]:
    """Returns the content of a YAML file as a dictionary.

    With `resolve_func`, `!function` values become Python objects, which runs code of the task
    folder; otherwise they are `FunctionRef`s. With `recursive`, included files are merged;
    otherwise the key `include` is kept. Raises `ConfigError` if a file or function cannot be read.
    """
    resolved = resolved_path(path)
    file = load_yaml_file(resolved) if recursive else YamlFile(resolved, *parse_yaml(resolved))
    return resolve_functions(file.values, file.root) if resolve_func else copy.deepcopy(file.values)


def resolved_path(path: str | Path) -> Path:
    """Returns `path` as an absolute path without links; raises `ConfigError` if it is invalid.

    `~` is the user's home folder. A file need not exist there.
    """
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, `~nobody`, a NUL
        raise ConfigError(
            f"{str(path)!r}: not the path of a file ({error}). Correct the path."
        ) from error


def _load(path: Path, including: tuple[Path, ...], loaded: dict[Path, YamlFile]) -> YamlFile:
    """Returns the content of `path`, merged over the files it includes.

    `including` is the chain of files that include it. `loaded` holds the files that are already
    merged; each is read only once, however often it is included. Raises `ConfigError` if `path` is
    in the chain (a cycle), or if a file is missing or not valid. The key `task_list` of an included
    file is dropped.
    """
    if path in including:
        chain = " -> ".join(str(p) for p in (*including[including.index(path) :], path))
        raise ConfigError(
            f"{path}: these files include each other in a cycle: {chain}. Remove one `include`."
        )
    if len(including) > _LONGEST_CHAIN:
        raise ConfigError(
            f"{path}: more than {_LONGEST_CHAIN} files include each other in a row, beginning with "
            f"{including[0]}. Merge some of them."
        )
    if path in loaded:
        return loaded[path]
    own, own_sources = parse_yaml(path)
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    included = own.get("include")
    # In a group, `include` may be a mapping of defaults for its tasks, which is not a file.
    if included is not None and not isinstance(included, dict):
        del own["include"]
        for name in included if isinstance(included, list) else [included]:
            part = _load(_included_file(path, name, own_sources), (*including, path), loaded)
            values |= {key: value for key, value in part.values.items() if key != "task_list"}
            sources |= part.sources
    loaded[path] = file = YamlFile(path, values | own, sources | own_sources)
    return file


def _included_file(path: Path, name: Any, sources: Mapping[str, Source]) -> Path:
    """Returns the file that `path` includes as `name`; raises `ConfigError` if there is none.

    `sources` are the lines of the keys of `path`.
    """
    where = sources.get("include", at(path))
    try:
        target = (path.parent / str(name)).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{where}: include: {str(name)!r} is no file name ({error}).") from error
    if not is_regular(target):
        raise ConfigError(
            f"{where}: include: there is no file {target}. "
            "The path must be absolute, or relative to the file that includes it."
        )
    return target


def nested_sources(file: YamlFile, key: str) -> dict[str, Source]:
    """Returns the lines of the keys inside the mapping `key` of a file that was loaded.

    Items of their lists have lines, too (`inner[0]`). Empty if the value is not a mapping.
    """
    source = file.sources.get(key)
    if source is None:
        return {}
    node, _ = read_yaml(source.file, TaskFileLoader)
    inside = [value for name, value in node.value if name.value == key]
    mapping = isinstance(inside[-1], yaml.MappingNode) if inside else False
    return _sources(inside[-1], source.file) if mapping else {}


def parse_yaml(path: Path) -> tuple[dict[str, Any], dict[str, Source]]:
    """Returns the content of one file, without its includes, and the line of each top-level key.

    Lines are counted from 1, and items of lists have lines too (`key[0]`). Raises `ConfigError` if
    the file cannot be read or is not a YAML mapping. The content is cached, since hundreds of tasks
    may include the same file. Callers must not modify nested values; `resolve_functions` returns a
    copy.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(
            f"{path}: this file cannot be read ({error.strerror}). Check its path and permissions."
        ) from error
    values, sources = _parse(path, status.st_mtime_ns, status.st_size)
    return dict(values), sources


@lru_cache(maxsize=512)
def _parse(path: Path, modified: int, size: int) -> tuple[dict[str, Any], dict[str, Source]]:
    """Returns the same as `parse_yaml`, from a cache if the file is unchanged.

    `modified` and `size` of the file only make the cache notice that it changed. Raises
    `ConfigError` if the file cannot be read, is not valid YAML, or is not a mapping.
    """
    node, values = read_yaml(path, TaskFileLoader)
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: expected `key: value` lines at the top level, "
            f"found {'nothing' if values is None else type(values).__name__}."
        )
    return values, _sources(node, path)


def read_yaml(path: Path, kind: type[TaskFileLoader]) -> tuple[Any, Any]:
    """Returns the root node of a YAML file and the value that a loader of this `kind` makes of it.

    Both are None if the file is empty. Raises `ConfigError` if it is no regular file, is too large,
    nested too deeply, repeated too often by aliases, not UTF-8, or not valid YAML.
    """
    text = decoded_text(path, read_regular(path))
    check_limits(path, text, _Base)
    try:
        loader = kind(text, path)
        try:
            node = loader.get_single_node()
            return node, loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        raise ConfigError(
            f"{path}: the file is not UTF-8 text, or has a character that YAML forbids "
            f"({error.reason}). Save it as UTF-8."
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = mark.line + 1 if mark is not None else None
        raise ConfigError(f"{at(path, line)}: not valid YAML: {problem}.") from error
    # PyYAML does not check the text of a value with an explicit type, such as `!!bool x`.
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        raise ConfigError(
            f"{path}: a value in this file cannot be read: {error}. Correct it, or put it in "
            "quotes if it is text."
        ) from error


class TaskFileLoader(_Base):  # type: ignore[misc]
    """A YAML loader that turns `!function` values of the file `path` into `FunctionRef`s."""

    def __init__(self, text: bytes, path: Path) -> None:
        super().__init__(text)
        self.path = path


def _function(loader: Any, node: Any) -> FunctionRef:
    name, path = loader.construct_scalar(node), loader.path
    return FunctionRef(str(name), path.parent, path, node.start_mark.line + 1)


def _number(loader: Any, node: Any) -> int | float:
    """Returns the number that a node contains; raises `ValueError` if it has too many digits.

    Python needs quadratic time to read such a number, and refuses to write it.
    """
    if len(loader.construct_scalar(node)) > _MOST_DIGITS:
        raise ValueError(f"a number of more than {_MOST_DIGITS} digits")
    kind = node.tag.rpartition(":")[2]
    number: int | float = getattr(loader, f"construct_yaml_{kind}")(node)
    return number


TaskFileLoader.add_constructor("!function", _function)
for _kind in ("int", "float"):
    TaskFileLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)


def _sources(node: Any, path: Path) -> dict[str, Source]:
    """Returns the line of every key of a mapping and, as `key[0]`, `key[1]` …, of its list items.

    Lines are counted from 1. For a key that occurs twice, logs a warning and returns its last line.
    """
    sources: dict[str, Source] = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            source = Source(path, key.start_mark.line + 1)
            if key.value in sources:
                logger.warning(
                    "%s: the key `%s` occurs a second time; its value in line %d is ignored.",
                    source,
                    key.value,
                    sources[key.value].line,
                )
            sources[key.value] = source
            items = value.value if isinstance(value, yaml.SequenceNode) else []
            for number, item in enumerate(items):
                sources[f"{key.value}[{number}]"] = Source(path, item.start_mark.line + 1)
    return sources
