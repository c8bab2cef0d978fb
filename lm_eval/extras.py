"""What to install when a module that a task's code imports is not there."""

from __future__ import annotations

import importlib.util
import shlex

#: Our extras, by the modules that they bring.
EXTRAS = {
    "accelerate": "hf",
    "antlr4": "math",
    "evaluate": "metrics",
    "langdetect": "ifeval",
    "latex2sympy2_extended": "math",
    "math_verify": "math",
    "nltk": "ifeval",
    "rouge_score": "rouge",
    "sacrebleu": "metrics",
    "sklearn": "metrics",
    "sympy": "math",
    "torch": "hf",
    "transformers": "hf",
}
#: What else the published tasks import, as pip is asked for it. A module that is not here may be
#: called otherwise there, or be somebody else's: no command is offered for it.
PACKAGES = {
    "absl": "absl-py",
    "bert_score": "bert-score",
    "emoji": "emoji==2.14.0",
    "fugashi": "fugashi[unidic-lite]",
    "fuzzywuzzy": "fuzzywuzzy",
    "immutabledict": "immutabledict",
    "iso639": "iso639-lang",
    "jieba": "jieba",
    "jsonschema": "jsonschema[format]",
    "kstar_planner": "kstar-planner==1.4.2",
    "langcodes": "langcodes",
    "lark": "lark",
    "nagisa": "nagisa",
    "neologdn": "neologdn==0.5.3",
    "openai": "openai",
    "pandas": "pandas",
    "PIL": "pillow",
    "pddl": "pddl==0.4.2",
    "pycountry": "pycountry",
    "pymorphy2": "pymorphy2",
    "pymorphy3": "pymorphy3",
    "radgraph": "radgraph",
    "regex": "regex",
    "rouge": "rouge",
    "scipy": "scipy",
    "spacy": "spacy",
    "statsmodels": "statsmodels",
    "tarski": "tarski[clingo]==0.8.2",
    "tinyBenchmarks": "git+https://github.com/felipemaiapolo/tinyBenchmarks",
    "unitxt": "unitxt==1.22.0",
    "wonderwords": "wonderwords",
    "word2number": "word2number",
}


def remedy(error: BaseException) -> str:
    """What to do about an error that a missing module caused; nothing for any other."""
    missing = _missing_module(error)
    if missing is None:
        return ""
    module = missing.partition(".")[0]
    if module != missing and importlib.util.find_spec(module) is not None:
        return f"the installed version of {module} has no such part; the task wants another"
    if module in EXTRAS:
        return f"pip install 'lm_eval[{EXTRAS[module]}]'"
    if module in PACKAGES:
        return f"pip install {shlex.quote(PACKAGES[module])}"
    return f"install the package that has the module {module!r}; the task's README may name it"


def _missing_module(error: BaseException | None) -> str | None:
    """The module at the root: task code often says in words of its own what it misses."""
    if not isinstance(error, ImportError):
        return None
    if isinstance(error, ModuleNotFoundError) and error.name:
        return None if error.name.partition(".")[0] == "lm_eval" else error.name
    return _missing_module(error.__cause__ or error.__context__)
