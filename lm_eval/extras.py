"""Finds out which package to install when an import fails."""

from __future__ import annotations

import importlib.util
import shlex

#: For each module, the extra of this package that installs it.
EXTRAS = {
    "accelerate": "hf",
    "antlr4": "math",
    "evaluate": "metrics",
    "langdetect": "ifeval",
    "latex2sympy2_extended": "math",
    "litellm": "litellm",
    "llama_cpp": "llama-cpp",
    "math_verify": "math",
    "nltk": "ifeval",
    "ray": "ray",
    "rouge_score": "rouge",
    "sacrebleu": "metrics",
    "sglang": "sglang",
    "sklearn": "metrics",
    "sympy": "math",
    "tiktoken": "api",
    "torch": "hf",
    "transformers": "hf",
    "vllm": "vllm",
}
#: For each other module that published tasks import, the pip requirement that installs it. For a
#: module that is not listed no command is suggested: a package of the same name may be unrelated.
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


def install_command(extra: str) -> str:
    """Returns how to install an extra: "pip install -e '.[hf]' in the checkout of lm_eval".

    By the name `lm_eval`, pip would install the published harness from PyPI.
    """
    return f"pip install -e '.[{extra}]' in the checkout of lm_eval"


def remedy(error: BaseException) -> str:
    """Returns what to do about an import error, for example "pip install pandas".

    If a package is installed but lacks the module, the text says that another version is needed.
    For a module that is not in `EXTRAS` or `PACKAGES`, it names no command. Returns "" for errors
    that were not caused by a missing module, and if the module is one of lm_eval.
    """
    missing = _missing_module(error)
    if missing is None:
        return ""
    module = missing.partition(".")[0]
    if module != missing and importlib.util.find_spec(module) is not None:
        return f"the installed version of {module} has no {missing}; the task needs another version"
    if module in EXTRAS:
        return install_command(EXTRAS[module])
    if module in PACKAGES:
        return f"pip install {shlex.quote(PACKAGES[module])}"
    return f"install the package that has the module {module!r} (see the task's README)"


def _missing_module(error: BaseException | None) -> str | None:
    """Returns the name of the missing module that caused an import error; None for other errors.

    None as well if the module is one of lm_eval. Task code often catches the original error and
    raises another one, so the causes are searched.
    """
    if not isinstance(error, ImportError):
        return None
    if isinstance(error, ModuleNotFoundError) and error.name:
        return None if error.name.partition(".")[0] == "lm_eval" else error.name
    return _missing_module(error.__cause__ or error.__context__)
