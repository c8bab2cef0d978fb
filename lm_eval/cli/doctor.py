"""`lm-eval doctor`: probes a server and prints what can be measured there."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from lm_eval.cli.options import add_table

if TYPE_CHECKING:
    from lm_eval.models.served.certificate import Certificate
    from lm_eval.models.served.model import ServedLM

HELP = "probe a server and show what can be measured there"

#: Families of tasks by the type of their requests, with examples.
_FAMILIES = {
    "generate_until": "generated answers (gsm8k, ifeval, humaneval, TASK@generate)",
    "loglikelihood": "multiple choice and targets (arc_easy, hellaswag, mmlu, lambada_openai)",
    "loglikelihood_rolling": "perplexity of texts (wikitext, pile)",
}
#: What is shown about `Certificate.sampling`.
_SAMPLING = {
    "yes": "has an effect",
    "no": "ignored; sampled answers are greedy",
    "perhaps not": "perhaps ignored; all sampled answers in the test were the greedy one",
    "unknown": "not tried",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval doctor` to the parser."""
    parser.add_argument(
        "--model",
        "-M",
        metavar="NAME",
        default="local-completions",
        help="a backend for served models (default: local-completions)",
    )
    add_table(parser, "--model_args", "-a", help="its arguments: base_url=…,model=…")
    parser.add_argument("--json", action="store_true", help="print the certificate as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Probes the server, prints its certificate, and returns 0 if it answers.

    A remembered certificate is not used. Raises `ConfigError` if the model is not served over HTTP.
    """
    from lm_eval.api.registry import get_model
    from lm_eval.config.run import RunConfig
    from lm_eval.errors import ConfigError
    from lm_eval.models.create import check_before_loading, check_model, create_model
    from lm_eval.models.location import location_of
    from lm_eval.models.served.model import ServedLM
    from lm_eval.redaction import hide_secrets

    run = RunConfig(arguments.model, arguments.model_args, apply_chat_template=True)
    check_model(run)
    location = location_of(arguments.model)
    model_class = get_model(arguments.model) if location is None else location.load()
    if not issubclass(model_class, ServedLM):
        raise ConfigError(
            f"--model {arguments.model} does not run on a server. `lm-eval validate --model NAME` "
            "tests other models."
        )
    check_before_loading(run)
    lm = create_model(run)
    assert isinstance(lm, ServedLM)
    certificate = lm.probe_again()
    if arguments.json:
        print(json.dumps(hide_secrets(vars(certificate)), indent=2))
    else:
        print(_report(lm, certificate), end="")
    return 0


def _report(lm: ServedLM, certificate: Certificate) -> str:
    """Returns the certificate as text: properties of the server, then families of tasks."""
    from lm_eval.markdown import table
    from lm_eval.redaction import hide_in_text

    properties = [
        ("address", hide_in_text(lm.base_url)),
        ("server", certificate.server),
        ("model", lm.model or "–"),
        ("dialect", certificate.dialect),
        ("context length", _shown(certificate.context_length, "not reported; set max_length=N")),
        ("token ids as prompts", _shown(certificate.tokens)),
        ("several prompts per request", _shown(certificate.lists)),
        ("several answers per request", _shown(certificate.samples)),
        ("stop strings", _shown(certificate.stop, no="ignored; answers are cut by lm_eval")),
        ("temperature", _SAMPLING[certificate.sampling]),
        ("seed repeats an answer", _shown(certificate.seed, "unknown; nothing was sampled")),
        ("reasoning", certificate.reasoning or "none seen"),
        ("tokenizer", certificate.tokenizer),
        ("log-probabilities of a prompt", certificate.alignment),
        ("log-probabilities of chosen next tokens", _shown(certificate.next_tokens)),
        ("requests sent", str(certificate.requests)),
    ]
    families = []
    for request_type, family in _FAMILIES.items():
        reason = lm.cannot_measure(request_type)
        families.append((family, "yes" if reason is None else "no", reason or ""))
    text = table(["property", "value"], properties)
    text += "\n" + table(["family of tasks", "measurable", "why not"], families)
    if lm.dialect_is_chat:
        text += "\nPrompts are sent as chats: run with --apply_chat_template.\n"
    if not certificate.can_score:
        text += (
            "\nMany multiple-choice tasks have a form in which the answer is generated: "
            "--tasks arc_easy@generate, or arc_easy@cot.\n"
        )
    return text


def _shown(value: Any, unknown: str = "not tried", no: str = "no") -> str:
    """Returns a property as text: yes, no, the value, or `unknown` for None."""
    if value is None:
        return unknown
    return {True: "yes", False: no}[value] if isinstance(value, bool) else str(value)
