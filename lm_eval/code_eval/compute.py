"""`CodeEval`, which stands in for the metric `code_eval` of the `evaluate` library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.code_eval.estimate import estimate_pass_at_k
from lm_eval.code_eval.session import Job, session_for_task_code
from lm_eval.code_eval.task_programs import DEFAULT_SECONDS
from lm_eval.errors import DataError
from lm_eval.sandbox import Verdict

#: For each problem: the number of each sample, and what became of it.
Samples = dict[int, list[tuple[int, dict[str, Any]]]]


class CodeEval:
    """The metric `code_eval`: runs samples of programs against tests, in the sandbox."""

    name = "code_eval"

    def compute(
        self,
        *,
        predictions: Sequence[Sequence[str]],
        references: Sequence[str],
        k: int | Sequence[int] = (1, 10, 100),
        num_workers: int = 4,
        timeout: float = DEFAULT_SECONDS,
    ) -> tuple[dict[str, float], Samples]:
        """Returns pass@k over all problems, and what became of every sample.

        Args:
            predictions: for each problem, a list of sampled programs.
            references: for each problem, the tests, as Python code.
            k: for which k to compute pass@k. A k that exceeds the number of samples of a problem is
                left out.
            num_workers: accepted and ignored; there is one worker per core.
            timeout: the time limit of one program in seconds. It is longer if the canonical
                solutions of the task need more on this machine.

        Returns:
            A dictionary such as `{"pass@1": 0.5}`, and for each problem, by its number, a list of
            `(sample, {"task_id": …, "passed": …, "result": …, "completion_id": …})`.

        Raises:
            ConfigError: running programs was not confirmed.
            DataError: the arguments are not of this form.
        """
        if len(predictions) != len(references):
            raise DataError(
                f"code_eval: there are {len(predictions)} lists of programs, but "
                f"{len(references)} tests; give one list per test."
            )
        if any(isinstance(samples, str) for samples in predictions):
            raise DataError("code_eval: predictions must be a list of lists of programs.")
        jobs = [
            Job(str(program), str(test), float(timeout))
            for samples, test in zip(predictions, references, strict=True)
            for program in samples
        ]
        verdicts = iter(session_for_task_code().verdicts(jobs))
        results: Samples = {}
        for problem, samples in enumerate(predictions):
            for sample in range(len(samples)):
                verdict = next(verdicts)
                found = {
                    "task_id": problem,
                    "passed": verdict.passed,
                    "result": "passed" if verdict.passed else _result(verdict),
                    "completion_id": sample,
                }
                results.setdefault(problem, []).append((sample, found))
        counts = [
            (len(judged), sum(one["passed"] for _, one in judged)) for judged in results.values()
        ]
        scores = {
            f"pass@{one}": sum(estimate_pass_at_k(n, c, one) for n, c in counts) / len(counts)
            for one in ([k] if isinstance(k, int) else k)
            if counts and all(n >= one for n, _ in counts)
        }
        return scores, results


def _result(verdict: Verdict) -> str:
    """Returns why a program failed, in the words of the metric where it has some."""
    if verdict.outcome == "timed out":
        return "timed out"
    return f"failed: {verdict.detail or verdict.outcome}"


def pass_at_k(
    references: Sequence[str],
    predictions: Sequence[str | Sequence[str]],
    k: int | Sequence[int] | None = None,
) -> dict[str, float]:
    """Returns pass@k for each `k`, by name (`{"pass@1": …}`); a metric function for task files.

    Args:
        references: for each problem, the tests, as Python code.
        predictions: for each problem, a list of sampled programs, or a single one.
        k: one or more numbers. A k that exceeds the number of samples is left out.

    Raises:
        ConfigError: running programs was not confirmed.
        DataError: `k` is missing, or the arguments are not of this form.
    """
    if k is None:
        raise DataError("pass_at_k needs k, for example `k: [1]` in the metric_list.")
    samples = [[one] if isinstance(one, str) else one for one in predictions]
    scores, _ = CodeEval().compute(references=references, predictions=samples, k=k)
    return scores
