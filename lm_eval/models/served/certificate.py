"""What a server can measure, as found by the probe; remembered between runs."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from lm_eval.folders import cache_folder
from lm_eval.models.served.dialects.anthropic import AnthropicCompletions, AnthropicMessages
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.dialects.chat import Chat
from lm_eval.models.served.dialects.completions import Completions, EchoTokens
from lm_eval.models.served.dialects.echo_text import EchoText, LlamaCppPython
from lm_eval.models.served.dialects.llama_server import LlamaServer
from lm_eval.models.served.dialects.sglang import SGLang
from lm_eval.models.served.dialects.vllm import VLLM

logger = logging.getLogger(__name__)

#: The dialects by the names that a certificate contains.
DIALECTS: dict[str, type[Dialect]] = {
    "completions": Completions,
    "echo": EchoTokens,
    "echo-text": EchoText,
    "llama-cpp-python": LlamaCppPython,
    "vllm": VLLM,
    "sglang": SGLang,
    "llama-server": LlamaServer,
    "chat": Chat,
    "anthropic-messages": AnthropicMessages,
    "anthropic-completions": AnthropicCompletions,
}

#: Certificates of another format are not used.
FORMAT = 3
#: Seconds after which a remembered certificate is made anew.
MAX_AGE = 7 * 24 * 3600.0
#: How much the log-likelihood of a text may differ from one request to the next, times the square
#: root of its number of tokens: servers that compute in half precision are not exact.
DRIFT = 0.05
#: Why chat APIs cannot measure log-likelihoods, which is known without a probe.
NO_CHAT_SCORES = "chat APIs return no log-probabilities of a given text"
#: The kinds of APIs to which this applies.
CHAT_KINDS = ("chat", "anthropic-messages", "anthropic-completions")


@dataclass(frozen=True)
class Certificate:
    """What a server does with one model.

    Attributes:
        server: the kind of server and its version, as far as it tells; "unknown" if it does not.
        dialect: the name of the dialect that it speaks (`DIALECTS`).
        settings: arguments of the dialect that the probe found out.
        no_scores: why log-likelihoods cannot be measured; "" if they can.
        no_first_token: why the first token of a text cannot be scored; "" if it can. Texts without
            context, and perplexities, need it.
        alignment: whether the log-probabilities of a prompt belong to its tokens: "aligned",
            "shifted by one" (to the token before), "displaced", or "none" if there are none.
        next_tokens: whether log-probabilities of chosen next tokens can be asked for.
        tokens, lists, samples: whether a request may contain token ids, several prompts (`lists`),
            and ask for several answers (`samples`); None if it was not tried.
        stop, seed: whether stop strings end an answer, and whether a seed repeats a sampled answer;
            None if the trial did not tell.
        sampling: whether a temperature has an effect: "yes"; "no" if the answers are always greedy,
            "perhaps not" if there is little evidence for that; "unknown" if it was not tried.
        tokenizer: whether our tokenizer agrees with the server's: "agrees", or why it does not;
            "unknown" if it could not be compared.
        context_length: in tokens; None if the server does not tell.
        reasoning: the field in which reasoning is returned; None if none was seen.
        reported: what the server tells about the weights: path, revision, version.
        listed: what `/v1/models` says about the model: path, context length, size.
        values: log-likelihoods and texts measured on known prompts; another model has others.
        requests: how many requests the probe sent.
        time: when it was made, in seconds since 1970.
    """

    server: str = "unknown"
    dialect: str = "completions"
    settings: Mapping[str, Any] = field(default_factory=dict)
    no_scores: str = ""
    no_first_token: str = ""
    alignment: str = "none"
    next_tokens: bool = False
    tokens: bool | None = None
    lists: bool | None = None
    samples: bool | None = None
    stop: bool | None = None
    seed: bool | None = None
    sampling: str = "unknown"
    tokenizer: str = "unknown"
    context_length: int | None = None
    reasoning: str | None = None
    reported: Mapping[str, Any] = field(default_factory=dict)
    listed: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    requests: int = 0
    time: float = 0.0

    def make_dialect(self, model: str) -> Dialect:
        """Returns the dialect for requests to this server; `model` is the model's name on it."""
        features = {
            "accepts_tokens": self.tokens is not False,
            "accepts_lists": bool(self.lists),
            "accepts_samples": bool(self.samples),
            "next_tokens": self.next_tokens,
        }
        return DIALECTS[self.dialect](model, **{**features, **self.settings})

    @property
    def may_be_greedy(self) -> bool:
        """Whether the server answers greedily, or perhaps does, whatever the temperature."""
        return self.sampling in ("no", "perhaps not")

    @property
    def can_score(self) -> bool:
        """Whether log-likelihoods can be measured."""
        return not self.no_scores

    @property
    def fingerprint(self) -> str:
        """A hash of what the model answered to known prompts.

        The generated text alone would not do: many models continue the known prompt alike.
        """
        score = self.values.get("score")
        known = (self.values.get("greedy"), None if score is None else f"{score:.2f}")
        return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def same_answers(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Returns whether two certificates' `values` come from the same model.

    Log-likelihoods decide where there are some, since texts that are generated in half precision
    may differ from one time to the next.
    """
    if "score" not in first or "score" not in second:
        return first.get("greedy") == second.get("greedy")
    names = ("tokens", "start", "next")
    close = DRIFT * max(1, len(first.get("tokens") or ())) ** 0.5
    same_text = all(first.get(name) == second.get(name) for name in names)
    return same_text and abs(first["score"] - second["score"]) < close


def certificate_file(*key: Any) -> Path:
    """Returns the file in which a certificate is remembered.

    `key` is everything that a certificate depends on and that its contents do not tell: endpoint,
    name of the model, kind of API, tokenizer.
    """
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
    return cache_folder() / "servers" / f"{name}.json"


def remembered(file: Path, max_age: float = MAX_AGE) -> Certificate | None:
    """Returns the certificate in a file; None if there is none, or it is too old or unreadable.

    `max_age` is in seconds.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        age = time.time() - data["time"]
        if data.pop("format") != FORMAT or not 0 <= age < max_age:
            return None
        names = {one.name for one in fields(Certificate)}
        return Certificate(**{name: value for name, value in data.items() if name in names})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def remember(file: Path, certificate: Certificate) -> None:
    """Writes a certificate to a file, which is replaced as a whole; errors are only logged."""
    temporary = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(
            json.dumps({"format": FORMAT, **asdict(certificate)}), encoding="utf-8"
        )
        temporary.replace(file)
    except (OSError, TypeError, ValueError) as error:
        logger.debug("the certificate could not be stored in %s: %s", file, error)
