"""Pin what every task of the library asks to its version, for tests/test_library.py.

usage: python tools/pin_prompts.py [--force]

A task whose prompts have changed while its version has not is refused: raise `metadata.version`
in its file. `--force` pins it all the same, for a change that no number can tell (a row made by
the tests, say).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import test_library as battery


def main() -> int:
    force = "--force" in sys.argv
    known = json.loads(battery.PINNED.read_text()) if battery.PINNED.exists() else {}
    pins: dict[str, list[str]] = {}
    refused = []
    for name in battery.library.task_files():
        try:
            task = battery.task_named(name)
        except battery.pytest.skip.Exception as reason:
            print(f"{name}: not looked at ({reason})", file=sys.stderr)
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
        print(f"{name}: its prompts have changed and its version has not", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
