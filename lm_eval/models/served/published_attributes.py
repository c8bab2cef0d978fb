"""The attributes and the tokenizer that classes written for the published harness use."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.conventions import sampling_seed
from lm_eval.models.planned.given_tokenizer import wrap_tokenizer
from lm_eval.models.planned.tokenizers import TokenCoder, load_tokenizer
from lm_eval.models.served.argument_checks import WITHOUT_EFFECT
from lm_eval.models.served.endpoint import Endpoint
from lm_eval.models.served.messages import JsonChatStr
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.published import (
    BATCH_HOOK,
    CALL_HOOKS,
    PAYLOAD_HOOKS,
    is_overridden,
)
from lm_eval.models.served.server_facts import ServerFacts
from lm_eval.models.served.tokenizers import RemoteTokenizer

logger = logging.getLogger(__name__)


class PublishedAttributes(ServedLM):
    """A served model with the attributes and the tokenizer of the published `TemplateAPI`.

    Code of subclasses reads and assigns them. They depend on whether a subclass overrides hooks:
    such a model is not probed.

    The arguments are those of `ServedBase`; others are ignored with a warning, because subclasses
    pass their own to this constructor. `tokenizer_backend=None` means that there is no tokenizer.
    """

    #: The path that is appended to a `base_url` without one; "" to append none.
    request_path: ClassVar[str] = ""

    # Names with two underscores, since subclasses have attributes of their own.
    __concurrent: int | None = None
    __tokenized: bool | None = None
    __tokenizer: Any = None
    __tokenizer_source: str = ""

    def __init__(
        self,
        model: str | None = None,
        pretrained: str | None = None,
        base_url: str | None = None,
        tokenizer: Any = None,
        tokenizer_backend: str | None = "huggingface",
        **kwargs: Any,
    ) -> None:
        known = inspect.signature(ServedLM.__init__).parameters
        unknown = [name for name in kwargs if name not in known and name not in WITHOUT_EFFECT]
        if unknown:
            logger.warning("%s ignores the arguments %s.", type(self).__name__, ", ".join(unknown))
        super().__init__(
            model=model,
            pretrained=pretrained,
            base_url=base_url,
            tokenizer=tokenizer if isinstance(tokenizer, str) else None,
            tokenizer_backend="none" if tokenizer_backend is None else tokenizer_backend,
            **{n: v for n, v in kwargs.items() if n in known and v is not None},
        )
        self.base_url = base_url or self.default_base_url or ""
        if self.max_retries is None:  # code of subclasses reads a number
            self.max_retries = self.retry_policy.attempts
        self._truncate = bool(kwargs.get("truncate"))
        self.__tokenizer_source = self.model  # subclasses may rename the model
        if tokenizer is not None and not isinstance(tokenizer, str):
            self.tokenizer = tokenizer
        elif self._backend == "remote" and tokenizer is None:
            self.tokenizer = self._make_remote_tokenizer()
        elif self._backend is None:
            self.__tokenized = False

    def _overrides(self, *names: str) -> bool:
        """Returns whether a subclass or a patch replaces any of these methods."""
        return any(is_overridden(self, name) for name in names)

    @property
    def overrides_hooks(self) -> bool:
        """Whether a subclass or a patch builds, sends or reads requests in its own way."""
        return self._overrides(*PAYLOAD_HOOKS, *CALL_HOOKS, BATCH_HOOK)

    def _parse_endpoint(self, address: str | None) -> Endpoint:
        try:
            return super()._parse_endpoint(address)
        except ConfigError:
            if self.overrides_hooks:  # it may need no address, or one of another form
                return Endpoint(address or "")
            raise

    @property
    def _needs_name(self) -> bool:
        return False  # checked for runs only; see `check_before_loading`

    # -- attributes ------------------------------------------------------------------------------

    @cached_property
    def api_key(self) -> Any:
        """The key. Override or assign it, to get it from elsewhere."""
        return super().api_key

    @cached_property
    def header(self) -> dict[str, str]:
        """The HTTP headers of every request. Override or assign it, to send others."""
        return super().header

    @cached_property
    def eos_string(self) -> str | None:
        """The end-of-text token as text; None if it is not known."""
        return super().eos_string

    @cached_property
    def eot_token_id(self) -> int | None:  # type: ignore[override]
        return super().eot_token_id

    @cached_property
    def prefix_token_id(self) -> int:
        return super().prefix_token_id

    @property
    def max_length(self) -> int:
        """The number of tokens of a prompt: the context length less one token to generate."""
        return super().max_length

    @max_length.setter
    def max_length(self, length: int) -> None:
        self._max_length = int(length) + 1

    @property
    def max_gen_toks(self) -> int:
        """The maximum length of an answer, if the request does not set it."""
        return self._max_gen_toks

    @max_gen_toks.setter
    def max_gen_toks(self, length: int) -> None:
        self._max_gen_toks = int(length)

    @property
    def _seed(self) -> int:
        """The seed of requests: that of the model, else that of the run, else 1234."""
        return sampling_seed(self)

    @_seed.setter
    def _seed(self, seed: int) -> None:
        self.seed = int(seed)

    @property
    def _concurrent(self) -> int:
        """The maximum number of requests in flight, for code of subclasses; 1 if none was given."""
        return 1 if self.__concurrent is None else self.__concurrent

    @_concurrent.setter
    def _concurrent(self, maximum: int | None) -> None:
        self.__concurrent = maximum

    @property
    def _given_concurrent(self) -> int | None:
        """The maximum number of requests in flight; None if none was given."""
        return self.__concurrent

    @property
    def tokenized_requests(self) -> bool:
        """Whether prompts are sent as token ids; by default if there is a tokenizer."""
        if self.__tokenized is not None:
            return self.__tokenized
        return not self.dialect_is_chat and self.served_tokenizer is not None

    @tokenized_requests.setter
    def tokenized_requests(self, wanted: bool | None) -> None:
        self.__tokenized = wanted

    @property
    def request_url(self) -> str:
        """The full address of requests: `base_url`, with a path if it has none."""
        path = urlsplit(self.base_url).path.rstrip("/")
        if self.base_url and self.request_path and path in ("", "/v1"):
            return Endpoint.parse(self.base_url, type(self).__name__).url(self.request_path)
        return self.base_url

    # -- tokenizer -------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        """The tokenizer object of the library, or the one that was assigned; None if none."""
        return super().tokenizer if self.__tokenizer is None else self.__tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self.__tokenizer = tokenizer
        vars(self)["served_tokenizer"] = None if tokenizer is None else wrap_tokenizer(tokenizer)

    @property
    def tokenizer_backend(self) -> str | None:
        """The library of the tokenizer: "huggingface", "tiktoken", "remote", or None."""
        if self._backend != "auto":
            return self._backend
        found = self.served_tokenizer
        if found is None:
            return None
        return "remote" if isinstance(found, RemoteTokenizer) else "huggingface"

    @tokenizer_backend.setter
    def tokenizer_backend(self, backend: str | None) -> None:
        self._backend = None if backend in ("none", "None") else backend

    @cached_property
    def served_tokenizer(self) -> TokenCoder | None:
        """The tokenizer of the model; None if there is none."""
        unused = self.dialect_is_chat and self._backend == "auto" and not self._tokenizer_name
        if unused or self._backend is None:
            return None
        if self.overrides_hooks or self.dialect_is_chat:
            return self._choose_tokenizer(ServerFacts())
        return super().served_tokenizer

    def _choose_tokenizer(self, facts: ServerFacts) -> TokenCoder | None:
        named = self._tokenizer_name
        if named or self._backend == "huggingface":
            return load_tokenizer(named or self.__tokenizer_source, **self._tokenizer_settings)
        if self._backend == "auto" and self.overrides_hooks:
            return self._tokenizer_without_probe()
        return super()._choose_tokenizer(facts)

    def _tokenizer_without_probe(self) -> TokenCoder | None:
        """Returns the server's tokenizer if it has one, else that of the model's name.

        None if that cannot be loaded; prompts are then sent as text.
        """
        supports = _utils().check_remote_tokenizer_support
        if supports(
            self.base_url,
            verify_certificate=self.verify_certificate,
            ca_cert_path=self.ca_cert_path,
            auth_token=self.auth_token,
        ):
            return wrap_tokenizer(self._make_remote_tokenizer())
        try:
            return load_tokenizer(self.__tokenizer_source, **self._tokenizer_settings)
        except ModelError as error:
            logger.info("%s Prompts are sent as text.", error)
            return None

    def _make_remote_tokenizer(self) -> Any:
        """Returns the server's tokenizer, an object of `lm_eval.utils.RemoteTokenizer`."""
        return _utils().RemoteTokenizer(
            self.base_url,
            self.timeout,
            self.verify_certificate,
            self.ca_cert_path,
            self.auth_token,
        )

    def tok_encode(  # type: ignore[override]
        self,
        string: str | Sequence[str],
        left_truncate_len: int | None = None,
        add_special_tokens: bool | None = None,
        truncation: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Returns the token ids of a text, or of each text in a list.

        Without a tokenizer, returns a list that contains `string`. `left_truncate_len` keeps the
        last tokens only; `truncation` has no effect, since long prompts are always cut.
        """
        if self.served_tokenizer is None:
            return [string]
        single = isinstance(string, str)
        codes = self._encode([cast("str", string)] if single else string, add_special_tokens)
        if left_truncate_len:
            codes = [tokens[-left_truncate_len:] for tokens in codes]
        return codes[0] if single else codes

    def decode_batch(self, tokens: list[list[int]]) -> list[str]:
        """Returns the text of each list of tokens."""
        tokenizer = self._need_tokenizer()
        return [tokenizer.decode(one) for one in tokens]

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns a chat as JSON (`JsonChatStr`) if a subclass overrides hooks and sends text.

        Otherwise as `ServedLM.apply_chat_template`.
        """
        if self.overrides_hooks and not self.tokenized_requests:
            return JsonChatStr(json.dumps(chat_history, ensure_ascii=False))
        return super().apply_chat_template(chat_history, add_generation_prompt)


def _utils() -> Any:
    """Returns the module `lm_eval.utils`, whose names scripts replace by their own."""
    return importlib.import_module("lm_eval.utils")
