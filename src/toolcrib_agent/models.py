"""Model by name: `provider:name`, as Pydantic AI knows providers, or an OpenAI-compatible server by its URL.

anthropic:claude-sonnet-5-5                          the key comes from the environment, under the provider's name
ollama:qwen3                                         Ollama on this machine, or where OLLAMA_BASE_URL says
local:qwen3@http://127.0.0.1:1234/v1                 LM Studio, llama.cpp, vLLM …: OpenAI's chat API at that URL
openai:gpt-6-luna@https://proxy.example.com/v1            a provider's API at another URL
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model, known_model_names
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

from toolcrib.catalog.names import nearest
from toolcrib.errors import UsageError

__all__ = ["LOCAL", "OLLAMA", "is_paid", "model_of"]

LOCAL: Final = "local"
"""The provider of any server with OpenAI's chat API."""
OLLAMA: Final = "http://127.0.0.1:11434/v1"
"""Default address of Ollama."""
_FREE: Final = frozenset({"function", "local", "test"})
"""Systems that cost nothing wherever they are: Pydantic AI's doubles, and a server of one's own."""
_VARIABLE: Final = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`")
_GROUP: Final = re.compile(r"pydantic-ai-slim\[([a-z-]+)\]")


def model_of(named: Model | str, *, base_url: str = "", api_key: str = "") -> Model:
    """Return the model with the name `named`; a `Model` is returned unchanged.

    `base_url` and `api_key` take the place of what the environment says, or the name after its `@`. Raises `UsageError`
    for an unknown name, a missing key (with the variable to set), a package that is not installed.
    """
    if isinstance(named, Model):
        return named
    name, at, url = named.strip().partition("@")
    is_url = at and "://" in url
    name, url = (name, base_url or url) if is_url else (named.strip(), base_url)
    provider, colon, _ = name.partition(":")
    if not colon:
        raise UsageError(
            f"model {named!r}: a model is named provider:name, such as anthropic:{name or 'claude-sonnet-5-5'}"
        )
    if provider == LOCAL:
        return _local(named, name.removeprefix(f"{LOCAL}:"), url, api_key)
    try:
        infer_provider_class(provider)
    except ValueError:
        raise UsageError(_unknown(named, provider)) from None
    except ImportError as error:
        raise UsageError(_advice(named, error)) from error
    try:
        return infer_model(name, lambda known: _provider(known, url, api_key))
    except (UserError, ImportError) as error:
        raise UsageError(_advice(named, error)) from error
    except TypeError as error:
        raise UsageError(f"model {named!r}: {provider} takes no URL and no key of one's own ({error})") from error


def is_paid(model: Model) -> bool:
    """True if requests to `model` cost money: it does not run on a machine of the user."""
    if model.system in _FREE:
        return False
    host = urlsplit(model.base_url or "").hostname
    return host is None or not _is_near(host)


def _provider(known: str, url: str, api_key: str) -> Provider[Any]:
    """Make a provider. Ollama needs no configuration where it is on this machine."""
    made: Any = infer_provider_class(known)
    given = {key: value for key, value in (("base_url", url), ("api_key", api_key)) if value}
    if given:
        return made(**given)
    try:
        return infer_provider(known)
    except UserError:
        if known != "ollama":
            raise
        return made(base_url=OLLAMA)


def _local(named: str, name: str, url: str, api_key: str) -> Model:
    if not name or not url:
        raise UsageError(f"model {named!r}: a local model is named {LOCAL}:NAME@URL, such as {LOCAL}:qwen3@{OLLAMA}")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UsageError(f"model {named!r}: {url!r} is not an http URL")
    try:
        # Loads OpenAI's SDK, which only models of this kind need.
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        return infer_model(
            f"openai-chat:{name}",
            lambda _: OpenAICompatibleProvider(LOCAL, base_url=url, api_key=api_key or "none"),
        )
    except ImportError as error:
        raise UsageError(_advice(named, error)) from error


def _unknown(named: str, provider: str) -> str:
    """Return the error text for an unknown provider."""
    known = {known.partition(":")[0] for known in known_model_names()} | {LOCAL, "ollama", "openrouter", "vllm"}
    close = nearest(provider, sorted(known), 1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"model {named!r}: there is no provider {provider!r}{meant}"


def _advice(named: str, error: Exception) -> str:
    """Return what to do about a model that cannot be had."""
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):
        group = _GROUP.search(text)
        extra = group.group(1) if group else named.partition(":")[0]
        return f'model {named!r}: a package is missing: pip install "pydantic-ai-slim[{extra}]"'
    variables = list(dict.fromkeys(_VARIABLE.findall(text)))
    if variables:
        return f"model {named!r}: set {' or '.join(variables)} in the environment"
    return f"model {named!r}: {text}"


def _is_near(host: str) -> bool:
    """True if a host is this machine or belongs to its local network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal", ".lan")) or "." not in host
    return address.is_loopback or address.is_private or address.is_link_local
