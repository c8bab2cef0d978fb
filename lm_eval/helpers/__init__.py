"""Functions that check answers, for use in task folders and elsewhere; see docs/helpers.md.

The names and the behavior are those of the published harness and of the papers. Modules are
imported on first use, so `import lm_eval.helpers` needs no optional package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports

if TYPE_CHECKING:
    from lm_eval.helpers.drop import drop_metrics as drop_metrics
    from lm_eval.helpers.ifeval_checks import IFEVAL_CHECKS as IFEVAL_CHECKS
    from lm_eval.helpers.ifeval_checks import follows_instruction as follows_instruction
    from lm_eval.helpers.latex_answers import is_equiv as is_equiv
    from lm_eval.helpers.latex_answers import last_boxed as last_boxed
    from lm_eval.helpers.latex_answers import last_boxed_only_string as last_boxed_only_string
    from lm_eval.helpers.latex_answers import remove_boxed as remove_boxed
    from lm_eval.helpers.latex_answers import strip_string as strip_string
    from lm_eval.helpers.squad import compute_exact as compute_exact
    from lm_eval.helpers.squad import compute_f1 as compute_f1
    from lm_eval.helpers.squad import normalize_answer as normalize_answer
    from lm_eval.helpers.symbolic_answers import get_unnormalized_answer as get_unnormalized_answer
    from lm_eval.helpers.symbolic_answers import is_symbolically_equiv as is_symbolically_equiv
    from lm_eval.helpers.symbolic_answers import normalize_final_answer as normalize_final_answer

_MODULES = {
    "drop": ("drop_metrics",),
    "ifeval_checks": ("IFEVAL_CHECKS", "follows_instruction"),
    "latex_answers": (
        "is_equiv",
        "last_boxed",
        "last_boxed_only_string",
        "remove_boxed",
        "strip_string",
    ),
    "squad": ("compute_exact", "compute_f1", "normalize_answer"),
    "symbolic_answers": (
        "get_unnormalized_answer",
        "is_symbolically_equiv",
        "normalize_final_answer",
    ),
}
__all__ = sorted(name for names in _MODULES.values() for name in names)
__getattr__, __dir__ = lazy_exports(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names},
)
