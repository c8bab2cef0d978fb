"""The result of checking a model: one entry per check, with the problems found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lm_eval.markdown import table


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Attributes:
        name: the name of the check, a few words.
        problems: what is wrong, one sentence each; empty if nothing was found.
        skipped: why the check was not made; "" if it was.
    """

    name: str
    problems: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def outcome(self) -> str:
        """Returns "ok", "problem" or "skipped"."""
        return "skipped" if self.skipped else "problem" if self.problems else "ok"


@dataclass
class ContractReport:
    """What `check_model` found.

    Attributes:
        model: the name of the model's class.
        checks: the results, in the order of the checks.
        requests: how many requests the model got.
    """

    model: str
    checks: list[CheckResult] = field(default_factory=list)
    requests: int = 0

    @property
    def problems(self) -> list[str]:
        """All problems, each with the name of its check."""
        return [f"{check.name}: {text}" for check in self.checks for text in check.problems]

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dictionary that can be written as JSON."""
        return {
            "model": self.model,
            "ok": self.ok,
            "requests": self.requests,
            "checks": [{**vars(check), "outcome": check.outcome} for check in self.checks],
        }

    def __str__(self) -> str:
        """Returns a table of the checks, the problems, and a summary."""
        rows = [(check.name, check.outcome, check.skipped) for check in self.checks]
        text = table(["check", "outcome", "why not"], rows)
        text += "".join(f"\n{' '.join(problem.split())}" for problem in self.problems)
        text += "\n" if self.problems else ""
        count = len(self.problems)
        found = "no problem" if not count else f"{count} problem{'s' if count != 1 else ''}"
        return f"{text}\n{self.model}: {found} found with {self.requests} requests.\n"
