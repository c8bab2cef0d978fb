"""Finds secrets in text by their form: keys of known providers, addresses with a password."""

from __future__ import annotations

import re

#: What replaces a secret.
HIDDEN = "***"

#: Keys of providers, each by the beginning that the provider gives to its keys.
_PROVIDER_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, OpenRouter, DeepSeek
    r"|hf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"  # Amazon
    r"|AIza[0-9A-Za-z_-]{30,}|ya29\.[0-9A-Za-z_-]{20,}"  # Google
    r"|xox[abeprs]-[0-9A-Za-z-]{10,}"  # Slack
    r"|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9_-]{20,}|pplx-[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|r8_[A-Za-z0-9]{20,}|fw_[A-Za-z0-9]{20,}|csk-[a-z0-9]{20,}|tgp_v1_[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # JSON Web Token
    r")"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
#: `user:password@` or `key@` in an address.
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s/?#@\"'<>]+(?=@)")
#: Parameters of an address that are secret in any service.
_URL_PARAMETER = re.compile(
    r"([?&](?:[\w.-]*(?:key|token|secret|password|signature)|sig|auth|code)=)[^\s&#\"'<>]{4,}",
    re.IGNORECASE,
)
#: The value of an `Authorization` header, also without the name of the header.
_SCHEME = re.compile(
    r"(\b(?:Bearer|bearer|BEARER)\s+)(?=[^\s\"',;]*[\d_/+=.-])[^\s\"',;*<>{}|]{8,}"
    r"|(\bBasic\s+)(?=[A-Za-z0-9+/]*[\d=])[A-Za-z0-9+/]{12,}={0,2}"
    r"|((?:[Aa]uthorization|AUTHORIZATION)[\"']?\s*[:=]\s*[\"']?(?:[A-Za-z]+\s+)?)"
    r"[^\s\"',;*<>{}|]{8,}"
)
#: Each of them is part of any text in which one of the patterns above finds something.
_HINTS = (
    *("sk-", "hf_", "gh", "glpat-", "AKIA", "ASIA", "AIza", "ya29.", "xox", "gsk_", "xai-"),
    *("pplx-", "nvapi-", "r8_", "fw_", "tgp_v1_", "eyJ", "PRIVATE KEY", "://"),
    *("earer", "EARER", "Basic", "uthorization", "UTHORIZATION"),
)


def hide_by_form(text: str) -> str:
    """Returns a text in which everything that has the form of a secret is replaced by `***`."""
    if not any(hint in text for hint in _HINTS):
        return text
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _PROVIDER_KEY.sub(HIDDEN, text)
    if "://" in text:
        text = _URL_CREDENTIALS.sub(HIDDEN, text)
        text = _URL_PARAMETER.sub(rf"\1{HIDDEN}", text)
    return _SCHEME.sub(lambda found: f"{found[1] or found[2] or found[3]}{HIDDEN}", text)


def passwords_in(text: str) -> list[str]:
    """Returns the passwords in the addresses of a text: `user:password`, and `password` alone."""
    if "://" not in text:
        return []
    found = _URL_CREDENTIALS.findall(text)
    return [part for one in found for part in (one, one.partition(":")[2]) if part]
