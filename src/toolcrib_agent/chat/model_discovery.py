"""Choice of the chat's model: named by the user, else one whose API key is set, else one on this machine.

The choice is shown with its reason. Probing takes no longer than the slowest probe, 0.3 s, and sends nothing but
a GET to this machine; a key is used for nothing before the first question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream
from msgspec import Struct

from toolcrib import Settings
from toolcrib.plugin import as_list, as_mapping, read_json

MODEL_VARIABLE: Final = "TOOLCRIB_MODEL"

_PROBE_SECONDS: Final = 0.3
_PROBE_BYTES: Final = 1 << 20


class Key(Struct, frozen=True, kw_only=True):
    """A variable that holds the key of a model API, and the model that is taken there when none is named."""

    variable: str
    model: str
    needs: str = ""
    """The client library of this API, where the extra `chat` does not bring it."""
    extra: str = ""
    """Extra that installs its client."""


KEYS: Final[Sequence[Key]] = (
    Key(variable="ANTHROPIC_API_KEY", model="anthropic:claude-sonnet-5-5"),
    Key(variable="OPENAI_API_KEY", model="openai:gpt-6.1-terra"),
    Key(
        variable="GEMINI_API_KEY",
        model="google:gemini-3.8-flash",
        needs="google.genai",
        extra="pydantic-ai-slim[google]",
    ),
    Key(
        variable="GOOGLE_API_KEY",
        model="google:gemini-3.8-flash",
        needs="google.genai",
        extra="pydantic-ai-slim[google]",
    ),
    Key(variable="OPENROUTER_API_KEY", model="openrouter:anthropic/claude-sonnet-5.5"),
    Key(variable="DEEPSEEK_API_KEY", model="deepseek:deepseek-v4-pro"),
    Key(variable="MOONSHOTAI_API_KEY", model="moonshotai:kimi-k3"),
    Key(variable="GROQ_API_KEY", model="groq:openai/gpt-oss-120b", needs="groq", extra="pydantic-ai-slim[groq]"),
    Key(
        variable="MISTRAL_API_KEY",
        model="mistral:mistral-large-latest",
        needs="mistralai",
        extra="pydantic-ai-slim[mistral]",
    ),
    Key(variable="XAI_API_KEY", model="xai:grok-4.7", needs="xai_sdk", extra="pydantic-ai-slim[xai]"),
)
"""Providers in order of preference."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """A program on this machine that serves models the way OpenAI does."""

    name: str
    port: int


LOCAL_ENDPOINTS: Final[Sequence[Endpoint]] = (
    Endpoint(name="Ollama", port=11434),
    Endpoint(name="LM Studio", port=1234),
    Endpoint(name="vLLM", port=8000),
    Endpoint(name="llama.cpp", port=8080),
)
"""Default addresses of local model servers."""


class ModelChoice(Struct, frozen=True, kw_only=True):
    """A model, and why it is the one."""

    model: str
    """`provider:name`, or `local:name@URL`."""
    why: str


class _ModelServer(Struct, frozen=True, kw_only=True):
    """Address that is probed for a local model server."""

    name: str
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"


async def find_model(settings: Settings, named: str = "") -> ModelChoice | None:
    """Return the model to talk to; None when there is none.

    `named` comes first, then the variable, the configuration, keys and what runs on this machine.
    """
    environ = settings.environment
    if named:
        return ModelChoice(model=named, why="as you chose")
    if configured := environ.get(MODEL_VARIABLE, "").strip():
        return ModelChoice(model=configured, why=f"{MODEL_VARIABLE} is set")
    if settings.chat.model:
        return ModelChoice(model=settings.chat.model, why="chat.model in the configuration")
    for key in KEYS:
        if environ.get(key.variable, "").strip() and is_usable(key):
            return ModelChoice(model=key.model, why=f"{key.variable} is set")
    found = await local_models(environ)
    return found[0] if found else None


def is_usable(key: Key) -> bool:
    """True if the client library of this API is installed."""
    package = key.needs.partition(".")[0]
    return not key.needs or (find_spec(package) is not None and find_spec(key.needs) is not None)


async def local_models(
    environ: Mapping[str, str], endpoints: Sequence[Endpoint] = LOCAL_ENDPOINTS, *, seconds: float = _PROBE_SECONDS
) -> list[ModelChoice]:
    """Return a model of every endpoint on this machine that answers within `seconds`, in the order of `endpoints`."""
    places = list(_places(environ, endpoints))
    names: dict[int, str] = {}

    async def probe(index: int, place: _ModelServer) -> None:
        with anyio.move_on_after(seconds):
            names[index] = await _model_at(place)

    async with anyio.create_task_group() as group:
        for index, place in enumerate(places):
            group.start_soon(probe, index, place)
    return [
        ModelChoice(model=f"local:{names[index]}@{place.url}", why=f"{place.name} answers on port {place.port}")
        for index, place in enumerate(places)
        if names.get(index)
    ]


def _places(environ: Mapping[str, str], endpoints: Sequence[Endpoint]) -> list[_ModelServer]:
    """Return the servers to look at; `OLLAMA_HOST` is the address of Ollama on this machine."""
    places = [_ModelServer(name=one.name, host="127.0.0.1", port=one.port) for one in endpoints]
    text = environ.get("OLLAMA_HOST", "").strip()
    parts = urlsplit(text if "://" in text else f"//{text}")
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port or 11434
    except ValueError:  # no port that there can be
        return places
    if text and host in ("127.0.0.1", "localhost", "0.0.0.0"):
        places = [
            _ModelServer(name="Ollama", host="127.0.0.1", port=port),
            *(one for one in places if one.name != "Ollama"),
        ]
    return places


async def _model_at(place: _ModelServer) -> str:
    """Return the name of the first text model at an address; empty if no model server answers."""
    request = f"GET /v1/models HTTP/1.0\r\nHost: {place.host}:{place.port}\r\nAccept: application/json\r\n\r\n"
    try:
        async with await anyio.connect_tcp(place.host, place.port) as stream:
            await stream.send(request.encode())
            answer = await _whole(stream)
    except OSError:
        return ""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
        return ""
    try:
        data: Any = read_json(body[body.find(b"{") : body.rfind(b"}") + 1])
    except ValueError:
        return ""
    entries = as_list(as_mapping(data).get("data"))
    names = [str(cast("Mapping[str, Any]", one).get("id", "")) for one in entries if isinstance(one, dict)]
    return next((name for name in names if name and "embed" not in name.lower()), "")


async def _whole(stream: ByteStream) -> bytes:
    """Return the body up to the end of the connection or the announced length."""
    answer = b""
    while len(answer) < _PROBE_BYTES:
        try:
            answer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            break
        head, end, body = answer.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n") if b":" in line)
        length = fields.get(b"content-length", b"").strip()
        if end and length.isdigit() and len(body) >= int(length):
            break
    return answer
