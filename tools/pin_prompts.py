"""Records the prompt hash and version of every task of the library, for tests/test_library.py.

usage: python tools/pin_prompts.py [--force]

Refuses a task whose prompts have changed while its version has not: raise `metadata.version` in its
file. `--force` records it anyway, for prompts that changed for another reason, such as a changed
test document.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import test_library as battery


def main() -> int:
    """Writes the records; returns 1 if a task was refused, else 0."""
    force = "--force" in sys.argv
    known = json.loads(battery.PINNED.read_text()) if battery.PINNED.exists() else {}
    pins: dict[str, list[str]] = {}
    refused = []
    for name in battery.library.task_files():
        try:
            task = battery.task_named(name)
        except battery.pytest.skip.Exception as reason:
            print(f"{name}: skipped ({reason})", file=sys.stderr)
            if name in known:
                pins[name] = known[name]
            continue
        pin = [str(task.VERSION), battery.prompt_hash(battery.asked_by(name))]
        before = known.get(name, pin)
        if before != pin and before[0] == pin[0] and not force:
            refused.append(name)
            pin = before
        pins[name] = pin
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(pins[name])}" for name in sorted(pins))
    battery.PINNED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    for name in refused:
        print(
            f"{name}: its prompts have changed, but its version has not. "
            "Raise metadata.version in its file, or pass --force.",
            file=sys.stderr,
        )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
