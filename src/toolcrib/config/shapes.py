"""What other programs call the parts of a server entry, said in our words. Variables stay unexpanded text.

A value that stands for a secret somewhere else (an input prompt, an environment variable, a keyring entry) becomes
`${NAME}`, so that no secret is copied that the client itself does not keep in its file.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from .clients import Client
from .servers import ENTRY_KEYS

__all__ = ["translate"]

_ENV: Final = re.compile(r"\$\{env:([A-Za-z_]\w*)\}")
_BRACES: Final = re.compile(r"(?<!\$)\{env:([A-Za-z_]\w*)\}")
_INPUT: Final = re.compile(r"\$\{input:([^}]+)\}")
_FOLDER: Final = re.compile(r"\$\{(?:workspaceFolder|workspaceRoot)\}")

_Raw = Mapping[str, Any]


def translate(client: Client, entry: _Raw, project: str) -> dict[str, Any]:
    """Return `entry` of `client` with our keys; what we have no word for is left out.

    Empty for an entry that is no MCP server, such as a built-in of the client. `project` is the folder
    that `${workspaceFolder}` stands for.
    """
    translated = _SHAPES.get(client.name, _common)(entry)
    return {key: _texts(value, project) for key, value in translated.items() if value not in (None, {}, [], "")}


def _common(entry: _Raw) -> dict[str, Any]:
    return {ours: entry[theirs] for theirs, ours in ENTRY_KEYS.items() if entry.get(theirs) is not None}


def _gemini(entry: _Raw) -> dict[str, Any]:
    """`url` is SSE there and `httpUrl` streamable HTTP."""
    common = _common(entry)
    if "httpUrl" in entry:
        return common | {"url": entry["httpUrl"], "type": "http"}
    return {"type": "sse", **common} if "url" in entry else common


def _codex(entry: _Raw) -> dict[str, Any]:
    common = _common(entry)
    passed = {name: f"${{{name}}}" for name in _list(entry, "env_vars") if isinstance(name, str)}
    headers = {**_mapping(entry, "http_headers"), **_named(_mapping(entry, "env_http_headers"))}
    if bearer := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{bearer}}}"
    common["env"] = {**passed, **_mapping(entry, "env")}
    common["headers"] = headers
    common["timeout"] = entry.get("tool_timeout_sec")
    return common


def _opencode(entry: _Raw) -> dict[str, Any]:
    common = _common(entry)
    return common | {"env": _braces(_mapping(entry, "environment")), "headers": _braces(_mapping(entry, "headers"))}


def _goose(entry: _Raw) -> dict[str, Any]:
    kind = entry.get("type")
    if kind not in ("stdio", "sse", "streamable_http"):
        return {}
    common = _common(entry)
    kept = {name: f"${{{name}}}" for name in _list(entry, "env_keys") if isinstance(name, str)}
    return common | {
        "command": entry.get("cmd"),
        "url": entry.get("uri"),
        "env": {**kept, **_mapping(entry, "envs")},
        "enabled_tools": entry.get("available_tools"),
    }


def _mcporter(entry: _Raw) -> dict[str, Any]:
    """A command may be one string, as a shell would read it; keys come in camel and in snake case."""
    common = _common(entry) | {"url": entry.get("url") or entry.get("baseUrl") or entry.get("base_url")}
    headers = _mapping(entry, "headers")
    if variable := entry.get("bearerTokenEnv") or entry.get("bearer_token_env"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    elif token := entry.get("bearerToken") or entry.get("bearer_token"):
        headers["Authorization"] = f"Bearer {token}"
    command = entry.get("command")
    if isinstance(command, str) and " " in command and not entry.get("args"):
        with contextlib.suppress(ValueError):
            common["command"] = shlex.split(command)
    allowed, blocked = entry.get("allowed_tools"), entry.get("blocked_tools")
    return {"enabled_tools": allowed, "disabled_tools": blocked} | common | {"headers": headers}


_SHAPES: Final[Mapping[str, Callable[[_Raw], dict[str, Any]]]] = {
    "gemini": _gemini,
    "codex": _codex,
    "opencode": _opencode,
    "goose": _goose,
    "mcporter": _mcporter,
}


def _mapping(entry: _Raw, key: str) -> dict[str, Any]:
    value = entry.get(key)
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _list(entry: _Raw, key: str) -> list[Any]:
    value = entry.get(key)
    return cast("list[Any]", value) if isinstance(value, list) else []


def _named(variables: Mapping[str, Any]) -> dict[str, str]:
    return {header: f"${{{variable}}}" for header, variable in variables.items()}


def _braces(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{env:NAME}` is how OpenCode spells a variable."""
    return {key: _BRACES.sub(r"${\1}", value) if isinstance(value, str) else value for key, value in values.items()}


def _texts(value: Any, project: str) -> Any:
    """Spell variables our way wherever there is text."""
    if isinstance(value, str):
        text = _ENV.sub(r"${\1}", value)
        text = _INPUT.sub(lambda match: "${" + re.sub(r"\W+", "_", match.group(1)).upper() + "}", text)
        return _FOLDER.sub(lambda match: project, text)
    if isinstance(value, list):
        return [_texts(item, project) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return {key: _texts(item, project) for key, item in cast("Mapping[str, Any]", value).items()}
    return value
