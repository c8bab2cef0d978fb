"""`ServedLM`: models that are reached over HTTP."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from lm_eval.api.instance import Failure, Instance
from lm_eval.api.model import move_spaces
from lm_eval.engine.progress import Progress, stage
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.conventions import read_generation, task_of
from lm_eval.models.planned.jobs import GenerationJob, Prompt, Window
from lm_eval.models.planned.model import Finished, FinishedJobs, PlannedLM
from lm_eval.models.planned.score_plan import ScorePlan
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
from lm_eval.models.served.exchange import Exchange
from lm_eval.models.served.numbers import check_numbers
from lm_eval.models.served.probe import Probe
from lm_eval.models.served.redaction import credentials
from lm_eval.models.served.retry import RetryPolicy, parsed_body
from lm_eval.models.served.server_facts import ServerFacts
from lm_eval.models.served.text_prompts import end_of_text, says_too_long, too_long_remedy
from lm_eval.models.served.tokenizers import RemoteTokenizer, load_tiktoken
from lm_eval.models.served.transport import (
    BrokenReplyError,
    HttpSettings,
    HttpTransport,
    TimedOutError,
    Transport,
    UnreachableError,
    is_local,
)

logger = logging.getLogger(__name__)

#: The context length that is assumed if neither the user nor the server tells it.
DEFAULT_CONTEXT = 2048
#: The names of the tokens at the ends of a text, as servers tell them.
_ENDS = ("bos_token", "eos_token")


class JsonChatStr(str):
    """The messages of a chat as JSON text. The published harness has a class of this name."""

    def __new__(cls, prompt: str = "") -> JsonChatStr:
        return super().__new__(cls, prompt)

    @property
    def prompt(self) -> str:
        """The JSON text."""
        return str(self)


class ServedLM(PlannedLM):
    """Base class of models that are reached over HTTP.

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
        """Returns the tokenizer backend, by default that of the class; None for no tokenizer."""
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
        """The key: from the variable that was named, or `auth_token`, or the backend's variable.

        What was passed comes first: the variable of the backend may contain the key of another
        server.
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
        """Fewer retries than usual: a server that does not answer is reported at once."""
        return replace(self.retry_policy, attempts=2, deadline=120.0, patience=0.0)

    @cached_property
    def certificate(self) -> Certificate:
        """What the server can do. The probe runs on first access, or is remembered from before."""
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
        """Returns whether a remembered certificate is about the model that answers now."""
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
            return None
        if self.kind in CHAT_KINDS:
            return NO_CHAT_SCORES  # known without a request
        reason = self.certificate.no_scores
        if request_type == "loglikelihood_rolling":
            reason = reason or self.certificate.no_first_token
        return reason or None

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
        """Returns the tokenizer that the arguments, the server or the model's name lead to."""
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
            return self._remote_tokenizer()
        if backend == "huggingface":
            return load_tokenizer(self.model, **self._tokenizer_settings)
        return self._tokenizer_of_server(facts)

    def _tokenizer_of_server(self, facts: ServerFacts) -> TokenCoder | None:
        """Returns the tokenizer of a folder that the server names, of the server, or of the hub."""
        names = [str(name) for name in (facts.reported.get("root"), self.model) if name]
        for name in names:
            if Path(name).expanduser().is_dir():
                return load_tokenizer(name, **self._tokenizer_settings)
        if facts.tokenizes:
            return self._remote_tokenizer(
                folder="/extras" if facts.name == "llama-cpp-python" else "",
                settings="/props" if facts.name == "llama-server" else "/tokenizer_info",
            )
        for name in names:
            if name.count("/") == 1 and not name.startswith("/"):
                try:
                    return load_tokenizer(name, **self._tokenizer_settings)
                except ModelError as error:
                    logger.info("%s", error)
        return None

    def _remote_tokenizer(self, folder: str = "", settings: str = "/tokenizer_info") -> TokenCoder:
        """Returns the tokenizer of the server, at the path `folder` + `/tokenize`.

        `settings` is the path at which the server may tell its special tokens.
        """
        # With the usual retries: prompts are tokenized during the run, too.
        client, root = self.make_client(), self.endpoint.root
        if folder:
            return RemoteTokenizer(client, root, self.model, folder=folder)
        info = self._server_settings(root + settings)
        bos, eos = (token if isinstance(token := info.get(name), str) else None for name in _ENDS)
        return RemoteTokenizer(client, root, self.model, bos, eos)

    def _server_settings(self, url: str) -> Mapping[str, Any]:
        """Returns what a server tells at a path that is optional; empty if it tells nothing."""
        try:
            reply = self.make_client(self._probe_policy).get(url)
        except (UnreachableError, BrokenReplyError, TimedOutError) as error:
            logger.debug("GET %s: %s", url, error)
            return {}
        found = parsed_body(reply) if reply.ok else None
        return found if isinstance(found, Mapping) else {}

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

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns the messages as JSON for a chat API, else the prompt that the template makes."""
        if self.dialect_is_chat:
            return JsonChatStr(json.dumps(chat_history, ensure_ascii=False))
        return super().apply_chat_template(chat_history, add_generation_prompt)

    @property
    def dialect_is_chat(self) -> bool:
        """Whether prompts are sent as messages; known without a probe."""
        return self.kind in ("chat", "anthropic-messages")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return "" if self.dialect_is_chat else super().chat_template(chat_template)

    # -- requests ---------------------------------------------------------------------------------

    @property
    def token_coder(self) -> TokenCoder | None:
        return self.served_tokenizer

    @property
    def gives_samples(self) -> bool:
        return self.dialect.accepts_samples

    @property
    def takes_tokens(self) -> bool:
        if self.tokenized_requests is False or self.dialect_is_chat:
            return False
        return self.dialect.accepts_tokens and self.served_tokenizer is not None

    def _score_windows(self, windows: Sequence[Window], finished: Finished, bar: Progress) -> None:
        dialect = self.dialect
        plan = ScorePlan(windows, dialect.abilities(self._batch_size))
        url = self._url(dialect.score_path or dialect.path)
        refused: list[Any] = []

        def exchange(job: Any) -> Exchange:
            return Exchange(
                url,
                lambda: dialect.job_payload(job, plan.windows),
                lambda reply: dialect.read_job(self._counted(reply), job, plan.windows),
                tag=job,
                adapt=dialect.adapt,
            )

        def take(batch: Sequence[tuple[Exchange, Any]]) -> None:
            results = []
            for one, found in batch:
                if isinstance(found, Failure) and not plan.is_single(one.tag):
                    refused.append(one.tag)  # one of its prompts was refused: send them one by one
                    continue
                results += plan.add(one.tag, self._with_remedy(found))
            finished(results)
            bar.update(len(results))

        self._exchange(map(exchange, plan.jobs()), take)
        while refused:
            singles = [single for job in refused for single in plan.split(job)]
            refused.clear()
            self._exchange(map(exchange, singles), take)

    def _with_remedy(self, found: Any) -> Any:
        """Returns a result; if a prompt was refused as too long, with what to do about it."""
        if not isinstance(found, Failure) or not says_too_long(found.reason):
            return found
        remedy = too_long_remedy(self.dialect_is_chat, self.served_tokenizer is not None)
        return Failure(f"{found.reason} ({remedy})")

    def _why_not(self, window: Window) -> str:
        """Returns why this server cannot score a window; "" if it can."""
        if not self.dialect.accepts_tokens and window.text is None:
            return "the server accepts only text, and this text is longer than its context"
        is_first = window.start == 1 and window.tokens[0] == self._known_prefix
        if is_first and not self.dialect.scores_first_token:
            return self.certificate.no_first_token
        return ""

    def _require(self, request_type: str) -> None:
        reason = self.cannot_measure(request_type)
        if reason is not None:
            raise ModelError(f"{self.base_url} cannot measure log-likelihoods: {reason}.")

    def _generate_answers(
        self, jobs: Iterable[GenerationJob], finished: FinishedJobs, bar: Progress
    ) -> None:
        dialect, url = self.dialect, self._url(self.dialect.path)
        refused: list[list[GenerationJob]] = []

        def exchange(batch: list[GenerationJob]) -> Exchange:
            given = batch[0].sampling
            sampling = replace(given, until=self._stops_to_send(given))
            return Exchange(
                url,
                lambda: dialect.generate_payload([job.prompt for job in batch], sampling),
                lambda reply: dialect.read_generated(
                    self._counted(reply), len(batch), sampling.samples
                ),
                tag=batch,
                adapt=dialect.adapt,
            )

        def take(results: Sequence[tuple[Exchange, Any]]) -> None:
            done: list[tuple[GenerationJob, Any]] = []
            for one, found in results:
                batch = one.tag
                if isinstance(found, Failure) and len(batch) > 1:
                    refused.append(batch)  # one of its prompts was refused: send them one by one
                    continue
                found = self._with_remedy(found)
                done += [
                    (job, found if isinstance(found, Failure) else found[number])
                    for number, job in enumerate(batch)
                ]
            finished(done)
            bar.update(sum(len(job.requests) for job, _ in done))

        self._exchange(map(exchange, self._batched(jobs)), take)
        while refused:
            singles = [[job] for batch in refused for job in batch]
            refused.clear()
            self._exchange(map(exchange, singles), take)

    def _generation_jobs(self, requests: Sequence[Instance]) -> Iterable[GenerationJob]:
        self._warn_if_greedy(requests)
        return super()._generation_jobs(requests)

    def _warn_if_greedy(self, requests: Sequence[Instance]) -> None:
        """Warns of tasks that ask for sampled answers, if the server does not sample."""
        if not self.certificate.may_be_greedy:
            return
        settings = {repr(request.args[1]): request.args[1] for request in requests}
        sampled = {
            key
            for key, given in settings.items()
            if read_generation(given, self._max_gen_toks).sampled
        }
        tasks = dict.fromkeys(task_of(r) for r in requests if repr(r.args[1]) in sampled)
        if tasks:
            logger.warning(
                "The server %s temperature and answers greedily. Tasks that ask for sampled "
                "answers: %s. Their answers are not sampled, and repeats of an answer are copies.",
                "ignores" if self.certificate.sampling == "no" else "perhaps ignores",
                ", ".join(tasks),
            )

    def _batched(self, jobs: Iterable[GenerationJob]) -> Iterator[list[GenerationJob]]:
        """Yields lists of prompts with equal settings, as many as a request may contain."""
        size = self._batch_size if self.dialect.accepts_lists else 1
        alike: dict[str, list[GenerationJob]] = {}
        for job in jobs:
            batch = alike.setdefault(key := repr(job.sampling) if size > 1 else "", [])
            batch.append(job)
            if len(batch) == size:
                yield alike.pop(key)
        yield from alike.values()

    @property
    def _cuts_text(self) -> bool:
        """Whether prompts are sent as text and can be cut.

        That needs a tokenizer which is not known to be another than the server's, and a context
        length: a prompt is not cut to a length that is only assumed.
        """
        if self.dialect_is_chat or self.takes_tokens or self.served_tokenizer is None:
            return False
        is_known = self._max_length is not None or self.certificate.context_length is not None
        return is_known and self.certificate.tokenizer in ("agrees", "unknown")

    def _prompts(self, requests: Sequence[Instance]) -> list[Prompt]:
        if not self._cuts_text:
            return super()._prompts(requests)
        coder, found = self._need_tokenizer(), []
        texts = [str(request.args[0]) for request in requests]
        for request, text, tokens in zip(requests, texts, self._encode(texts), strict=True):
            if len(tokens) > (room := self._room(request)):
                self.run_context.usage.truncated[task_of(request)] += 1
                text = end_of_text(text, tokens, room, coder, self._encode)
            found.append(Prompt(text))
        return found

    def _window(
        self, arguments: Any, context: list[int], continuation: list[int]
    ) -> tuple[Window, bool]:
        window, cut = super()._window(arguments, context, continuation)
        if not cut or arguments is None or self.dialect.accepts_tokens:
            return window, cut
        whole, text = [*context, *continuation], "".join(arguments)
        if not self._cuts_text:  # the server decides whether it is too long
            return Window(whole, len(context), text, len(arguments[0])), False
        text = end_of_text(text, whole, self.max_length, self._need_tokenizer(), self._encode)
        rest = move_spaces(*arguments)[1]
        if len(text) <= len(rest):
            return window, cut  # the continuation alone does not fit
        before, whole = self._encode([text[: -len(rest)], text])
        return Window(whole, len(before), text, len(text) - len(arguments[1])), cut

    def _prompt(self, request: Instance, tokens: list[int] | None) -> Prompt:
        text = str(request.args[0])
        if not self.dialect_is_chat:
            return Prompt(text, tokens)
        return Prompt(text, messages=self._messages(text, request))

    def _messages(self, text: str, request: Instance) -> list[dict[str, Any]]:
        """Returns the chat that a prompt contains as JSON; other text is a message of the user."""
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        is_chat = isinstance(found, list) and all(isinstance(m, dict) for m in found)
        messages = found if is_chat and found else [{"role": "user", "content": text}]
        return [{"role": m.get("role"), "content": m.get("content")} for m in messages]

    def _stops(self, until: Sequence[str]) -> list[str]:
        return list(until) if self.dialect_is_chat else super()._stops(until)

    # -- sending ----------------------------------------------------------------------------------

    def _url(self, path: str) -> str:
        """Returns the address of requests to a path of the API."""
        return self.endpoint.url(path)

    def _exchange(
        self,
        exchanges: Iterable[Exchange],
        take: Callable[[Sequence[tuple[Exchange, Any]]], None],
    ) -> None:
        """Sends requests and passes their results to `take` as they arrive.

        After Ctrl-C, no more are sent; the answers to those in flight are still taken.
        """
        with self.make_client().stream(exchanges) as stream:
            try:
                for batch in stream:
                    take(batch)
            except KeyboardInterrupt:
                logger.warning(
                    "Interrupted: waiting a few seconds for the answers to %d requests. Press "
                    "Ctrl-C again to stop at once.",
                    stream.in_flight,
                )
                for batch in stream.drain():
                    take(batch)
                raise

    def _counted(self, reply: Any) -> Any:
        """Counts the tokens that a reply reports, and returns the reply."""
        counted = self.dialect.usage(reply)
        usage = self.run_context.usage
        usage.count_prompt(counted.prompt, counted.prompt - counted.cached)
        usage.count_answer(counted.answer)
        usage.count_generated(counted.answer)
        return reply

    def usage(self) -> dict[str, Any]:
        """Returns token counts, and the cost if prices were given."""
        totals = super().usage()
        price_in, price_out = self._prices
        if price_in is not None or price_out is not None:
            cost = totals["tokens_in"] * (price_in or 0) + totals["tokens_out"] * (price_out or 0)
            totals["cost"] = round(cost / 1e6, 6)
        return totals

    # -- identity ---------------------------------------------------------------------------------

    def answer_settings(self) -> dict[str, Any]:
        return {
            **super().answer_settings(),
            "tokenizer_backend": self._backend,
            "tokenizer_settings": self._tokenizer_settings,
            "tokenized_requests": self.tokenized_requests,
            "max_length": self._max_length,
            "max_images": self.max_images,
        }

    def identity(self) -> dict[str, Any]:
        """Returns what tells this model from others, for stored answers.

        That is its name, what the server reports about the weights, and a hash of its answers to
        known prompts. The address is part of it unless the server reports a revision or file, or
        the user vouches for the model with `identity=NAME`. So is the length that prompts are cut
        to, which the server may report.
        """
        own: dict[str, Any] = {"model": self.model, "add_bos_token": self.add_bos_token}
        if self._identity is not None:
            return {**own, "identity": self._identity}
        certificate = self.certificate
        if not self.dialect_is_chat:
            own["max_length"] = self.max_length
        reported = dict(certificate.reported)
        if not {"revision", "file"} & set(reported):
            own["endpoint"] = self.endpoint.root
        # The texts that a hosted model generates differ from one time to the next.
        values = certificate.values
        if "score" in values or (values and is_local(self.base_url)):
            own["answers"] = certificate.fingerprint
        return {**own, "reported": reported, "dialect": certificate.dialect}
