"""What a server tells about itself at a few optional paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lm_eval.models.served.certificate import Certificate

#: What `/v1/models` says about a model and that changes only with the model or its settings.
_LISTED = ("id", "owned_by", "root", "max_model_len", "meta")

#: The dialects of servers that do not follow the completions API.
OWN_DIALECTS = {
    "SGLang": "sglang",
    "llama-server": "llama-server",
    "llama-cpp-python": "llama-cpp-python",
}

#: Servers with a path that tokenizes.
_TOKENIZES = ("vLLM", "SGLang", "llama-server", "llama-cpp-python")

Get = Callable[[str], "Mapping[str, Any] | None"]
"""Returns the JSON object that a GET request to a path returns; None if there is none."""


@dataclass
class ServerFacts:
    """What a server tells about itself.

    Attributes:
        name: "vLLM", "SGLang", "llama-server", "llama-cpp-python", "TGI", "Ollama" or "".
        version: its version; "" if it does not tell.
        model: the entry of the model in `/v1/models`.
        reported: facts that tell weights apart.
        tokenizes: whether it has the path `/tokenize`.
        vocabulary: the number of tokens; None if it does not tell.
        context_length: in tokens; None if it does not tell.
    """

    name: str = ""
    version: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    reported: dict[str, Any] = field(default_factory=dict)
    tokenizes: bool = False
    vocabulary: int | None = None
    context_length: int | None = None

    @classmethod
    def of(cls, certificate: Certificate) -> ServerFacts:
        """Returns the facts that an earlier probe of the server wrote to its certificate.

        `vocabulary` is not among them, so it is None.
        """
        name, _, version = certificate.server.partition(" ")
        name = "" if certificate.server == "unknown" else name
        return cls(
            name,
            version,
            certificate.listed,
            dict(certificate.reported),
            tokenizes=name in _TOKENIZES,
            context_length=certificate.context_length,
        )

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip() or "unknown"


def identify(get: Get, model: str) -> ServerFacts:
    """Returns what the server of `model` tells about itself, from one or two GET requests."""
    entry = model_entry(get, model)
    owner = str(entry.get("owned_by") or "")
    facts = ServerFacts(model=entry)
    length = entry.get("max_model_len")
    facts.context_length = length if isinstance(length, int) and length > 0 else None
    if root := entry.get("root"):
        facts.reported["root"] = str(root)
    if owner == "vllm":
        facts.name = "vLLM"
        facts.version = str((get("/version") or {}).get("version", ""))
    elif owner == "sglang":
        _identify_sglang(get, facts)
    elif owner == "llamacpp":
        _identify_llama_server(get, facts)
    elif owner == "me":
        facts.name = "llama-cpp-python"
    elif owner == "library":
        facts.name = "Ollama"
    elif owner and owner == entry.get("id"):
        info = get("/info") or {}
        facts.name, facts.version = "TGI", str(info.get("version", ""))
        if info.get("model_sha"):
            facts.reported["revision"] = info["model_sha"]
        facts.context_length = facts.context_length or info.get("max_total_tokens")
    facts.tokenizes = facts.name in _TOKENIZES
    return facts


def model_entry(get: Get, model: str) -> Mapping[str, Any]:
    """Returns the entry of the model in `/v1/models`; {} if the server has none.

    If no entry has its name, returns the only one; of several, `owned_by` if all have the same.
    """
    entries = (get("/v1/models") or {}).get("data")
    models = [e for e in entries or () if isinstance(e, Mapping)]
    for entry in models:
        if entry.get("id") == model or len(models) == 1:
            return entry
    owners = {str(entry.get("owned_by")) for entry in models}
    return {"owned_by": owners.pop()} if len(owners) == 1 else {}


def listed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of an entry of `/v1/models` that change only with model or settings."""
    return {name: entry[name] for name in _LISTED if name in entry}


def _identify_sglang(get: Get, facts: ServerFacts) -> None:
    facts.name = "SGLang"
    info = get("/model_info") or get("/get_model_info") or {}
    facts.reported["root"] = str(info.get("model_path", facts.reported.get("root")))
    if info.get("weight_version") not in (None, "default"):
        facts.reported["revision"] = info["weight_version"]


def _identify_llama_server(get: Get, facts: ServerFacts) -> None:
    facts.name = "llama-server"
    properties = get("/props") or {}
    facts.version = str(properties.get("build_info", ""))
    meta = facts.model.get("meta") or {}
    facts.vocabulary = meta.get("n_vocab")
    defaults = properties.get("default_generation_settings") or {}
    facts.context_length = defaults.get("n_ctx") or meta.get("n_ctx")
    if properties.get("model_path") and meta.get("size"):
        facts.reported["file"] = [properties["model_path"], meta["size"], meta.get("n_params")]
