"""The program of a worker process of `lm-eval sweep`: `python -m lm_eval.cli.sweep_worker`."""

from __future__ import annotations

from lm_eval.cli.trackers import Trackers
from lm_eval.logs import setup_logging
from lm_eval.sweeps.worker import connect, work


def main() -> int:
    """Evaluates the runs that the parent sends; returns 0, or 130 after an interrupt."""
    runs, send = connect()
    setup_logging(runs[0]["settings"].get("verbosity"))
    try:
        work(runs, send, lambda: [Trackers()])
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
