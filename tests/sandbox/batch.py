"""Runs all attacks and forgeries in a process of its own, and prints what came of it as JSON.

Started by the tests as another user, or with namespaces forbidden: `python -m tests.sandbox.batch
[--forbid-namespaces] [--only MECHANISMS]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from lm_eval.sandbox import Limits, isolation, seccomp
from lm_eval.sandbox.pool import run_all
from tests.sandbox.attacks import ATTACKS, TESTS
from tests.sandbox.forgeries import FORGERIES
from tests.sandbox.targets import SECRET_VARIABLE, Targets

LIMITS = Limits(wall_seconds=1.0, cpu_seconds=2.0, scratch_bytes=32 << 20)
RIGHT = ("def solve(a, b): return a + b", "assert solve(2, 3) == 5")

#: Writes a verdict to the pipes of the caller, of the same user, whatever they are for. Only here,
#: where the caller has no pipes but its standard ones.
PIPES = (
    """
import os, time
def parent(pid):
    return open('/proc/%s/stat' % pid).read().rpartition(')')[2].split()[1]
def solve(a, b):
    caller = parent(os.getppid())
    folder = '/proc/%s/fd/' % caller
    used = {os.readlink(folder + fd) for fd in '012'}
    for fd in os.listdir(folder):
        try:
            if os.readlink(folder + fd).startswith('pipe') and os.readlink(folder + fd) not in used:
                opened = os.open(folder + fd, os.O_WRONLY | os.O_NONBLOCK)
                os.write(opened, b'["passed", ""]')
                os.close(opened)
        except OSError:
            pass
    for pid in os.listdir('/proc'):
        try:
            if pid.isdigit() and int(pid) != os.getpid() and parent(pid) == str(os.getppid()):
                os.kill(int(pid), 9)  # the process of the tests, before it says otherwise
        except OSError:
            pass
    time.sleep(60)
""",
    "assert solve(2, 3) == 5",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--forbid-namespaces", action="store_true")
    parser.add_argument("--only", help="use these mechanisms, joined by +, not the strongest")
    args = parser.parse_args()
    if args.forbid_namespaces:
        # As in Docker, where the calls fail whether or not the kernel could do it.
        seccomp.install(seccomp.refusing("unshare", "setns"))
    levels = isolation().levels if args.only is None else tuple(filter(None, args.only.split("+")))
    os.environ[SECRET_VARIABLE] = "secret"
    # Others may fail or succeed: only what the mechanisms in use claim to stop is judged.
    claimed = {
        name: attack
        for name, attack in ATTACKS.items()
        if not attack.stopped_by or set(attack.stopped_by) & set(levels)
    }
    targets = Targets()
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    tempfile.tempdir = str(folder)
    jobs = {
        **{name: (targets.fill_in(attack.program), TESTS) for name, attack in claimed.items()},
        **FORGERIES,
        "a verdict written to the caller's pipes": PIPES,
        "right": RIGHT,
    }
    programs, tests = zip(*jobs.values(), strict=True)
    verdicts = run_all(programs, tests, LIMITS, levels)
    time.sleep(0.6)  # the time bomb
    try:
        targets.assert_untouched()
        touched = ""
    except AssertionError as error:
        touched = str(error)
    targets.close()
    result = {
        "isolation": isolation().name,
        "user": isolation().user,
        "passed": [name for name, verdict in zip(jobs, verdicts, strict=True) if verdict.passed],
        "touched": touched,
        "count": len(jobs),
        "left": [path.name for path in folder.iterdir()],
    }
    shutil.rmtree(folder, ignore_errors=True)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
