"""`ServedBase`: the server of a model, as its arguments and the probe describe it."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from lm_eval.engine.progress import stage
from lm_eval.errors import ConfigError
from lm_eval.models.planned.model import PlannedLM
from lm_eval.models.planned.tokenizers import TokenCoder, load_tokenizer
from lm_eval.models.served.certificate import (
    CHAT_KINDS,
    NO_CHAT_SCORES,
    Certificate,
    certificate_file,
    remember,
    remembered,
    same_answers,
)
from lm_eval.models.served.client import Client
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.endpoint import Endpoint
from lm_eval.models.served.numbers import check_numbers
from lm_eval.models.served.probe import Probe
from lm_eval.models.served.retry import RetryPolicy
from lm_eval.models.served.server_facts import ServerFacts
from lm_eval.models.served.tokenizer_choice import TokenizerFinder
from lm_eval.models.served.tokenizers import load_tiktoken
from lm_eval.models.served.transport import HttpSettings, HttpTransport, Transport
from lm_eval.models.thinking import budget_settings, check_budget, read_budget
from lm_eval.redaction import credentials

logger = logging.getLogger(__name__)

#: The context length that is assumed if neither the user nor the server tells it.
DEFAULT_CONTEXT = 2048


class ServedBase(PlannedLM):
    """The server of a model: its address and key, what it can do, and the tokenizer.

    A subclass sets the class attributes below. What the server can do is found out by a probe
    before the first request (`certificate`), and the dialect is chosen accordingly.

    Args:
        model: the name of the model on the server.
        pretrained: the same; `model` takes precedence.
        base_url: the address of the server: its root, or the full address of an API.
        tokenizer: a folder or a name on the hub; by default found from the server and `model`.
        tokenizer_backend: "huggingface", "tiktoken", "remote" (the server's own), "none", or
            "auto".
        truncate: accepted for compatibility, without effect: long prompts are always cut.
        num_concurrent: the maximum number of requests in flight; by default found by trying.
        max_retries: how often a request is sent that the server fails to answer; default 6.
        max_gen_toks: the maximum length of an answer, if the request does not set it.
        batch_size: how many prompts a request contains, if the server accepts several.
        seed: the seed for sampled answers; None for that of the run.
        max_length: the context length in tokens; by default what the server reports, or 2048.
        add_bos_token: whether prompts begin with a beginning-of-text token; None for what the
            tokenizer does by default.
        custom_prefix_token_id: the token that stands for an empty context.
        tokenized_requests: whether prompts are sent as token ids; None to do so if possible.
        trust_remote_code, revision, use_fast_tokenizer: passed to transformers with the tokenizer.
        verify_certificate: whether the server's TLS certificate is verified.
        ca_cert_path: a file with additional trusted certificates.
        auth_token: a key; better set the environment variable of the backend.
        eos_string: the end-of-text token as text, which ends answers; by default the tokenizer's.
        timeout: seconds until a request without a reply is sent again.
        header: HTTP headers, in place of the one with the key.
        max_images: how many images of a document are sent.
        think_end_token: the string that ends the model's thinking text.
        api_key_env: the environment variable that contains the key.
        identity: a name that vouches for the weights: stored answers are used for every server
            with the same name here.
        price_in, price_out: the price of a million tokens, for the cost in the results.
        probe: whether the server is probed. False assumes what the published harness assumes.
        deadline: seconds after which a request is given up, all retries included; also how long a
            server that cannot be reached is waited for.
        thinking_budget: after how many tokens a thought is cut (docs/reasoning.md).
    """

    #: The API: "completions", "chat", "sglang", "gguf", or the name of a dialect.
    kind: ClassVar[str] = "completions"
    default_base_url: ClassVar[str | None] = None
    default_tokenizer_backend: ClassVar[str] = "auto"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    key_is_required: ClassVar[bool] = False
    #: When to retry a request; arguments of the model replace parts of it.
    retry_policy: ClassVar[RetryPolicy] = RetryPolicy()
    #: Arguments of the dialect.
    dialect_settings: ClassVar[Mapping[str, Any]] = {}
    #: Arguments that cannot change an answer; stored answers are used if only these differ.
    speed_arguments: ClassVar[frozenset[str]] = frozenset(
        {"base_url", "identity", "price_in", "price_out", "deadline", "probe", "verify_certificate"}
        | {"ca_cert_path", "api_key_env", "num_concurrent", "max_retries", "timeout", "batch_size"}
    )

    def __init__(
        self,
        model: str | None = None,
        pretrained: str | None = None,
        base_url: str | None = None,
        tokenizer: str | None = None,
        tokenizer_backend: str | None = None,
        truncate: bool = False,
        num_concurrent: int | None = None,
        max_retries: int | None = None,
        max_gen_toks: int = 256,
        batch_size: int | str = 1,
        seed: int | None = None,
        max_length: int | None = None,
        add_bos_token: bool | None = None,
        custom_prefix_token_id: int | None = None,
        tokenized_requests: bool | None = None,
        trust_remote_code: bool = False,
        revision: str | None = "main",
        use_fast_tokenizer: bool = True,
        verify_certificate: bool = True,
        ca_cert_path: str | None = None,
        auth_token: str | None = None,
        eos_string: str | None = None,
        timeout: float = 300,
        header: Mapping[str, str] | None = None,
        max_images: int = 1,
        think_end_token: str | None = None,
        api_key_env: str | None = None,
        identity: str | None = None,
        price_in: float | None = None,
        price_out: float | None = None,
        probe: bool = True,
        deadline: float = 600,
        thinking_budget: int | None = None,
    ) -> None:
        super().__init__()
        given = {
            "num_concurrent": num_concurrent,
            "max_retries": max_retries,
            "max_gen_toks": max_gen_toks,
            "batch_size": batch_size,
            "seed": seed,
            "max_length": max_length,
            "custom_prefix_token_id": custom_prefix_token_id,
            "timeout": timeout,
            "deadline": deadline,
            "max_images": max_images,
            "price_in": price_in,
            "price_out": price_out,
        }
        numbers = check_numbers(given)
        name = model or pretrained
        self.model = name or ""
        self.endpoint = self._parse_endpoint(base_url or self.default_base_url)
        self.base_url = self.endpoint.given or self.endpoint.root
        self._backend = self._read_backend(tokenizer_backend)
        self.add_bos_token = add_bos_token
        self.custom_prefix_token_id = numbers["custom_prefix_token_id"]
        self.tokenized_requests = tokenized_requests
        self.seed, self.timeout = numbers["seed"], numbers["timeout"]
        self.max_retries: int | None = numbers["max_retries"]
        self.verify_certificate, self.ca_cert_path = verify_certificate, ca_cert_path
        self.max_images = numbers["max_images"]
        self.think_end_token = think_end_token
        # A server with a chat API knows itself where thoughts end.
        mark = think_end_token or ("chat" if self.dialect_is_chat else None)
        self.thinking_budget = read_budget(thinking_budget, mark)
        self.auth_token = auth_token
        self._max_gen_toks = numbers["max_gen_toks"]
        size = numbers["batch_size"]
        self._batch_size = 1 if isinstance(size, str) else size
        self._concurrent = numbers["num_concurrent"]
        self._max_length: int | None = numbers["max_length"]
        if header is not None and not isinstance(header, Mapping):
            raise ConfigError("header must be a dictionary: header={'Name': 'value'}.")
        self._eos_string, self._header = eos_string, header
        self._api_key_env, self._identity = api_key_env, identity
        self._prices = (numbers["price_in"], numbers["price_out"])
        self._probes, self._deadline = probe, numbers["deadline"]
        self._tokenizer_name = tokenizer
        self._tokenizer_settings = {
            "trust_remote_code": trust_remote_code,
            "revision": revision,
            "use_fast": use_fast_tokenizer,
        }
        if not self.model and not identity and self._needs_name:
            raise ConfigError(
                f"the model {type(self).__name__!r} needs the name of the model on the server: "
                "pass --model_args model=NAME."
            )

    def _parse_endpoint(self, address: str | None) -> Endpoint:
        return Endpoint.parse(address, type(self).__name__)

    @property
    def _needs_name(self) -> bool:
        """Whether requests must name the model."""
        return self.kind != "gguf"

    def _read_backend(self, given: str | None) -> str | None:
        """Returns the tokenizer backend for the argument `given`; None for no tokenizer.

        `given` is None for the default of the class. Raises `ConfigError` if it is unknown.
        """
        chosen = self.default_tokenizer_backend if given is None else given
        known = ("auto", "huggingface", "tiktoken", "remote", "none", "None")
        if chosen not in known:
            names = ", ".join(known[:-1])
            raise ConfigError(f"tokenizer_backend must be one of {names}, not {given!r}.")
        return None if chosen in ("none", "None") else chosen

    @property
    def tokenizer_backend(self) -> str | None:
        """The tokenizer backend; None if there is no tokenizer."""
        return self._backend

    # -- key, client, certificate, dialect --------------------------------------------------------

    @property
    def api_key(self) -> str:
        """The API key: from the variable `api_key_env`, or `auth_token`, or the backend's variable.

        "" if there is none; raises `ConfigError` if the server needs one. What was passed comes
        first: the variable of the backend may contain the key of another server.
        """
        name = self._api_key_env or self.key_variable
        found = os.environ.get(name, "")
        given = (found, self.auth_token) if self._api_key_env else (self.auth_token, found)
        key = next(filter(None, given), "")
        if not key and (self.key_is_required or self._api_key_env):
            raise ConfigError(f"the API key is missing: set the environment variable {name}.")
        return key

    @property
    def header(self) -> dict[str, str]:
        """The HTTP headers of every request."""
        if self._header is not None:
            return dict(self._header)
        key = self.api_key
        return {"Authorization": f"Bearer {key}"} if key else {}

    def make_transport(self) -> Transport:
        """Returns what sends the requests; a subclass may replace HTTP by a client library."""
        return HttpTransport(
            HttpSettings(self.header, self.timeout, self.verify_certificate, self.ca_cert_path)
        )

    def make_client(self, policy: RetryPolicy | None = None) -> Client:
        """Returns a client; `policy` defaults to the retries that the arguments ask for."""
        secrets = [str(self.auth_token or ""), *credentials(self.header)]
        usual = replace(self.retry_policy, deadline=self._deadline, patience=self._deadline)
        if self.max_retries is not None:
            usual = replace(usual, attempts=max(1, self.max_retries))
        return Client(self.make_transport, policy or usual, self._concurrent, hide=secrets)

    @property
    def _probe_policy(self) -> RetryPolicy:
        """The retries of the probe: fewer than usual, so that a silent server is reported soon."""
        return replace(self.retry_policy, attempts=2, deadline=120.0, patience=0.0)

    @cached_property
    def certificate(self) -> Certificate:
        """What the server can do. On first access, the probe finds it out with a few requests.

        A recent certificate of an earlier run is used instead, if the same model still answers.
        With `probe=False`, it is `assumed_certificate`.
        """
        if not self._probes:
            return self.assumed_certificate()
        before = remembered(self._certificate_file)
        with stage("Probing the server"):
            if before is not None and self._still_holds(self._probe(), before):
                if refused := before.settings.get("refused"):
                    logger.warning(
                        "The server refuses the parameters %s, which are left out or renamed.",
                        ", ".join(refused),
                    )
                return before
            found = self.probe_again()
        logger.info(
            "The server %s is %s; log-likelihoods: %s (%d requests; `lm-eval doctor` shows more).",
            self.endpoint.root,
            found.server,
            found.no_scores or "can be measured",
            found.requests,
        )
        return found

    def probe_again(self) -> Certificate:
        """Probes the server, remembers and returns what it can do.

        If the same model was there before, its values are kept: they are part of `identity`, and
        may differ by a rounding error.
        """
        found = self._probe().run()
        before = remembered(self._certificate_file, max_age=math.inf)
        if before is not None and same_answers(before.values, found.values):
            found = replace(found, values=before.values)
        remember(self._certificate_file, found)
        vars(self)["certificate"] = found
        return found

    @property
    def _certificate_file(self) -> Path:
        tokenizer = (self._tokenizer_name, self._backend)
        settings = sorted(self.dialect_settings.items())
        return certificate_file(self.base_url, self.model, self.kind, tokenizer, settings)

    def _probe(self) -> Probe:
        return Probe(
            self.make_client(self._probe_policy),
            self.endpoint,
            self.model,
            self.kind,
            self._find_tokenizer,
            **self.dialect_settings,
        )

    def _still_holds(self, probe: Probe, before: Certificate) -> bool:
        """Returns whether `before`, of an earlier run, is about the model that answers now."""
        tokenizer_known = before.tokenizer == "agrees" or self.kind != "completions"
        return tokenizer_known and probe.is_same_model(before)

    def assumed_certificate(self) -> Certificate:
        """Returns the certificate that is assumed without a probe."""
        if self.kind == "completions":
            return Certificate(dialect="echo", tokens=True, alignment="aligned", tokenizer="agrees")
        return Certificate(dialect=self.kind, no_scores="the server was not probed", samples=False)

    @cached_property
    def dialect(self) -> Dialect:
        """How requests are written and replies read."""
        return self.certificate.make_dialect(self.model)

    def cannot_measure(self, request_type: str) -> str | None:
        """Returns why requests of a type cannot be answered; None if they can."""
        if request_type == "generate_until":
            return None if self.thinking_budget is None else self._cannot_cut(self.thinking_budget)
        if self.kind in CHAT_KINDS:
            return NO_CHAT_SCORES  # known without a request
        reason = self.certificate.no_scores
        if request_type == "loglikelihood_rolling":
            reason = reason or self.certificate.no_first_token
        return reason or None

    def _cannot_cut(self, budget: int) -> str | None:
        """Returns why thoughts of `budget` tokens cannot be cut; None if they can.

        Chats are cut by the server. Other prompts are continued after the cut by us.
        """
        length = self._max_length or self.certificate.context_length
        if length is not None and budget >= length - 1:
            return (
                f"thinking_budget={budget} leaves no room for a prompt and an answer in the "
                f"context of {length} tokens"
            )
        if self.dialect_is_chat and not budget_settings(self.certificate.server, budget):
            return (
                f"thinking_budget needs a chat API that can cut thoughts (vLLM, SGLang), and this "
                f"server is {self.certificate.server}; use its completions API, with "
                "--apply_chat_template and a tokenizer"
            )
        return None

    @classmethod
    def never_measures(cls, request_type: str) -> str | None:
        # A third-party subclass may score in its own way.
        ours = cls.__module__.startswith("lm_eval.models.")
        refused = ours and cls.kind in CHAT_KINDS and request_type != "generate_until"
        return NO_CHAT_SCORES if refused else None

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        if cls.kind in ("chat", "anthropic-messages") and not chat_template:
            raise ConfigError(
                "a chat API takes messages: add --apply_chat_template, so that prompts are sent as "
                "a chat."
            )
        # None stands for the default of an argument.
        check_numbers({name: value for name, value in arguments.items() if value is not None})
        Endpoint.parse(arguments.get("base_url") or cls.default_base_url, cls.__name__)
        is_chat = cls.kind in ("chat", "anthropic-messages")
        mark = arguments.get("think_end_token") or ("chat" if is_chat else None)
        check_budget({**arguments, "think_end_token": mark}, arguments.get("max_length"))

    # -- tokenizer --------------------------------------------------------------------------------

    @cached_property
    def served_tokenizer(self) -> TokenCoder | None:
        """The tokenizer of the model; None if there is none."""
        if not self._probes or self._backend != "auto" or self._tokenizer_name:
            return self._choose_tokenizer(ServerFacts())
        known = self.certificate
        # The probe chooses a tokenizer, too, unless the certificate is remembered or assumed.
        return self._find_tokenizer(
            ServerFacts.of(known) if known.time else self._probe().identify()
        )

    def _find_tokenizer(self, facts: ServerFacts) -> TokenCoder | None:
        """Returns the tokenizer that the arguments, the server or the model's name lead to.

        None if there is none. It is kept as `served_tokenizer`. `facts` is what the server tells.
        """
        if "served_tokenizer" in vars(self):
            return self.served_tokenizer
        found = self._choose_tokenizer(facts)
        vars(self)["served_tokenizer"] = found
        return found

    def _choose_tokenizer(self, facts: ServerFacts) -> TokenCoder | None:
        backend = self._backend
        if backend is None or self.kind in ("chat", "anthropic-messages"):
            return None
        if self._tokenizer_name:
            return load_tokenizer(self._tokenizer_name, **self._tokenizer_settings)
        if backend == "tiktoken":
            return load_tiktoken(self.model)
        if backend == "remote":
            return self._finder.remote()
        if backend == "huggingface":
            return load_tokenizer(self.model, **self._tokenizer_settings)
        return self._finder.find(facts)

    @property
    def _finder(self) -> TokenizerFinder:
        return TokenizerFinder(
            self.make_client,
            lambda: self.make_client(self._probe_policy),
            self.endpoint.root,
            self.model,
            self._tokenizer_settings,
        )

    @property
    def tokenizer_name(self) -> str:
        return self._tokenizer_name or self.model

    @property
    def max_length(self) -> int:
        """The number of tokens of a prompt: the context length less one token to generate."""
        length = self._max_length
        if length is None:
            length = self.certificate.context_length or DEFAULT_CONTEXT
        return length - 1

    @property
    def dialect_is_chat(self) -> bool:
        """Whether prompts are sent as messages; known without a probe."""
        return self.kind in ("chat", "anthropic-messages")
