"""Compares our task index with the published harness's: names and merged task configurations.

usage, with the same TASKS folder for both harnesses (lm_eval/tasks of the published wheel):

    PUBLISHED_PYTHON tools/compare_catalogue.py dump TASKS published.json
    PYTHONPATH=. PUBLISHED_PYTHON tools/compare_catalogue.py dump TASKS ours.json
    python tools/compare_catalogue.py compare published.json ours.json

Both dumps run under the published harness's Python, so that code in task folders finds the same
libraries; PYTHONPATH decides which `lm_eval` is imported. Functions are compared by name.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """Returns `value` as JSON data, with functions and classes replaced by their names."""
    if type(value).__name__ == "FunctionRef":
        return f"{value.folder}/{value.qualified_name}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if callable(value):
        return f"function {getattr(value, '__name__', type(value).__name__)}"
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def published_config(manager: Any, entry: Any) -> Any:
    """Returns a task's configuration as the published harness loads it."""
    from lm_eval.config.task import TaskConfig

    values = manager._factory._load_full_config(entry, None)
    for key in ("tag", "group", "task_list"):
        values.pop(key, None)
    return values if "class" in values else TaskConfig(**values)


def our_config(manager: Any, entry: Any) -> Any:
    """Returns a task's configuration as our harness loads it."""
    from lm_eval.config.task import TaskConfig
    from lm_eval.config.yaml_file import load_yaml_file
    from lm_eval.tasks.build import Builder, known_fields

    file = load_yaml_file(entry.path)
    values = Builder(manager.task_index).configure(entry, file)
    return values if "class" in values else TaskConfig(**known_fields(values, file))


def dump(tasks: str, out: str) -> None:
    """Writes all index entries and configurations of the folder `tasks` to the JSON file `out`.

    Works with either harness: whichever `lm_eval` is imported.
    """
    logging.disable(logging.ERROR)
    from lm_eval.config.group import GroupConfig
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=tasks, include_defaults=False)
    ours = hasattr(manager, "_builder") or not hasattr(manager, "_factory")
    configure = our_config if ours else published_config
    entries, configs = {}, {}
    for name, entry in manager.task_index.items():
        path = str(entry.yaml_path) if entry.yaml_path else None
        entries[name] = [entry.kind.name, path, sorted(entry.tags)]
        if entry.kind.name in ("TASK", "PY_TASK"):
            try:
                configs[name] = plain(configure(manager, entry))
            except (Exception, SystemExit) as error:
                # Usually a library is missing. Compare the files without importing functions.
                configs[name] = {
                    "cannot be configured": type(error).__name__,
                    "file contents": plain(_values(entry, ours, resolve=False)),
                }
        elif entry.kind.name == "GROUP":
            try:
                values = _values(entry, ours, resolve=True)
                known = {f.name for f in dataclasses.fields(GroupConfig)}
                config = GroupConfig(**{k: v for k, v in values.items() if k in known})
                rest = {k: v for k, v in values.items() if k not in known}
                configs[name] = plain(config) | {"for every task": plain(rest)}
            except (Exception, SystemExit) as error:
                configs[name] = {"cannot be configured": type(error).__name__}
    Path(out).write_text(json.dumps({"entries": entries, "configs": configs}, sort_keys=True))


def _values(entry: Any, ours: bool, resolve: bool) -> dict[str, Any]:
    """Returns a task file merged with its includes.

    With `resolve`, functions are imported; otherwise they stay paths.
    """
    if ours:
        from lm_eval.config.yaml_file import load_yaml

        return load_yaml(entry.path, resolve_func=resolve)
    from lm_eval.tasks._yaml_loader import load_yaml as published_load_yaml

    return published_load_yaml(entry.yaml_path, resolve_func=resolve)


def compare(published_file: str, our_file: str) -> int:
    """Prints the differences of two dumps; returns 1 if there are any, else 0."""
    published, ours = (json.loads(Path(f).read_text()) for f in (published_file, our_file))
    for kind in ("TASK", "PY_TASK", "GROUP", "TAG"):
        theirs = {n for n, e in published["entries"].items() if e[0] == kind}
        mine = {n for n, e in ours["entries"].items() if e[0] == kind}
        print(f"{kind:8} published {len(theirs)}, ours {len(mine)}, in one only: {theirs ^ mine}")
    others = [n for n, e in published["entries"].items() if ours["entries"].get(n) != e]
    print(f"entries that differ in kind, file or tags: {len(others)} {others[:10]}")
    differing = []
    failing: Counter[str] = Counter()
    for name, theirs in published["configs"].items():
        mine = ours["configs"].get(name)
        if "cannot be configured" in theirs or "cannot be configured" in (mine or {}):
            both = "cannot be configured" in theirs and "cannot be configured" in (mine or {})
            failing["in both" if both else "in one only"] += 1
            if not both or theirs.get("file contents") != (mine or {}).get("file contents"):
                differing.append((name, [str(theirs)[:300], str(mine)[:300]]))
            continue
        # A field that is missing in one schema and unset in the other counts as equal.
        fields = [k for k in {*theirs, *(mine or {})} if theirs.get(k) != (mine or {}).get(k)]
        if fields:
            differing.append((name, [(f, theirs.get(f), (mine or {}).get(f)) for f in fields]))
    print(f"configurations compared: {len(published['configs'])}; failed to load: {dict(failing)}")
    print(f"configurations that differ: {len(differing)}")
    for name, why in differing[:20]:
        print(f"  {name}: {str(why)[:600]}")
    return 1 if differing or others else 0


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "dump":
        dump(*arguments)
    else:
        sys.exit(compare(*arguments))
