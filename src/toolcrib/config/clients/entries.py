"""Server entries of other programs, converted to our keys. Variables stay text, in our syntax.

Every key of an entry is one of four: it has a counterpart here (`ENTRY_KEYS`, `_SPELLINGS`), it is for the client's
own display (`_SILENT`), it is understood and has no effect here, which is reported once a file (`_UNUSED`), or it is
unknown. An unknown key stops its entry: it may be a restriction that was misspelt. The table follows the clients'
documentation of 2026: Claude Code and Desktop, Cursor, Windsurf, Gemini CLI, VS Code, Codex, OpenCode, Goose, mcporter,
Cline, Roo and Kilo Code, Kiro, Copilot CLI, LM Studio, Zed, Continue, Amp, FastMCP.

A value that stands for a secret elsewhere (an input prompt, an environment variable) stays a variable, so that no
secret is copied that the client itself does not keep in its file.

    Codex     url = "https://…", bearer_token_env_var = "GH"    url, headers: {Authorization: "Bearer ${GH}"}
    OpenCode  command: [npx, x], environment: {K: "{env:K}"}    command: [npx, x], env: {K: "${K}"}
    VS Code   env: {K: "${input:key}"}, timeout: 60000          env: {K: "${input:key}"}, timeout: 60
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field

from ...core.documents.tree import Path as Steps
from ...core.events import Problem
from ...core.json import as_mapping, with_texts
from ...core.patterns import regex
from ...core.similar import did_you_mean
from ...net.oauth.spec import OAuthSpec
from ..servers import ENTRY_KEYS

COMMENTS: Final = ("_", "//", "$", "#")
"""Beginnings of keys that are comments where the format has none."""

_Raw = Mapping[str, Any]

_SPELLINGS: Final[Mapping[str, str]] = {
    **ENTRY_KEYS,
    "allowed_tools": "enabled_tools",
    "available_tools": "enabled_tools",
    "base_url": "url",
    "blocked_tools": "disabled_tools",
    "cmd": "command",
    "environment": "env",
    "envs": "env",
    "executable": "command",
    "http_headers": "headers",
    "server_url": "url",
    "tool_timeout_sec": "timeout",
    "transportType": "type",
    "uri": "url",
    "workingDirectory": "cwd",
    "working_directory": "cwd",
}
"""Every spelling of a key that has a counterpart of one value."""

_READ_APART: Final = frozenset(
    {
        "bearerToken",
        "bearerTokenEnv",
        "bearer_token",
        "bearer_token_env",
        "bearer_token_env_var",
        "env_http_headers",
        "env_keys",
        "env_vars",
        "requestOptions",
        "scopes",
        "tools",
    }
)
"""Keys that become a part of another one: a header, a variable, a scope, a list of tools."""

_SILENT: Final = frozenset(
    {
        "bundled",
        "clientName",
        "displayName",
        "display_name",
        "extension",
        "extensionName",
        "faviconUrl",
        "gallery",
        "icon",
        "iconPath",
        "id",
        "name",
        "note",
        "notes",
        "source",
        "sourceFile",
        "title",
        "version",
    }
)
"""For people, or for the client's own display."""

RULES: Final = "rules decide here: `rules: {allow: [SERVER__TOOL]}`"
"""Hint about a key that says what a client allows; `connect --replace` carries it over."""
_OWN_PROCESS: Final = "Toolcrib starts, watches and ends servers in its own way"
_OWN_LOGIN: Final = "`toolcrib login SERVER` logs in; a fixed token belongs into `headers`"

_UNUSED: Final[Mapping[str, str]] = {
    "alwaysAllow": RULES,
    "autoApprove": RULES,
    "autoApproveAll": RULES,
    "default_tools_approval_mode": RULES,
    "tools.approval_mode": RULES,
    "trust": RULES,
    "alwaysLoad": "profiles decide which tools are shown first: `profiles: {adaptive: {core: [SERVER__TOOL]}}`",
    "authProviderType": _OWN_LOGIN,
    "experimental_environment": _OWN_PROCESS,
    "targetAudience": _OWN_LOGIN,
    "targetServiceAccount": _OWN_LOGIN,
    "headersHelper": "no program is run for headers: a variable in `headers`, or `toolcrib login SERVER`, gives them",
    "oauthCommand": _OWN_LOGIN,
    "oauthRedirectUrl": _OWN_LOGIN,
    "oauth_resource": "the server's own address is the resource that a login is for",
    "tokenCacheDir": _OWN_LOGIN,
    "connectionTimeout": _OWN_PROCESS,
    "dev": _OWN_PROCESS,
    "initTimeout": _OWN_PROCESS,
    "lifecycle": _OWN_PROCESS,
    "logging": _OWN_PROCESS,
    "remote": _OWN_PROCESS,
    "required": _OWN_PROCESS,
    "sandbox": _OWN_PROCESS,
    "sandboxEnabled": _OWN_PROCESS,
    "startup_timeout_ms": _OWN_PROCESS,
    "startup_timeout_sec": _OWN_PROCESS,
    "timeout.startup": _OWN_PROCESS,
    "watchPaths": _OWN_PROCESS,
    "supports_parallel_tool_calls": "reads run at the same time, writes take turns",
}
"""Keys that clients write and that have no effect here, with what has; those of a login are `oauth.` and their name."""

_AUTH_KEYS: Final = (*OAuthSpec.model_fields, *OAuthSpec.spellings)

_OAUTH_UNUSED: Final = frozenset(
    {
        "audiences",
        "authProfileId",
        "authServerMetadataUrl",
        "authorizationUrl",
        "registrationUrl",
        "redirectUri",
        "redirectUrl",
        "tokenParamName",
        "tokenUrl",
    }
)

_ENV: Final = regex(r"\$\{env:([A-Za-z_]\w*)\}")
_BRACES: Final = regex(r"(?<!\$)\{(env|file):([^{}]+)\}")
_DOLLAR: Final = regex(r"\$([A-Za-z_]\w*)")
_DOLLAR_ENV: Final = regex(r"\$env:([A-Za-z_]\w*)")
_INPUT: Final = regex(r"\$\{input:([^}]+)\}")
_PLACE: Final = regex(r"\$\{(workspaceFolder|workspaceRoot|workspaceFolderBasename|userHome|cwd|pathSeparator|/)\}")

_PROJECT: Final = frozenset({"workspaceFolder", "workspaceRoot", "workspaceFolderBasename", "cwd"})

_SECONDS: Final = frozenset({"codex", "goose"})
_MILLISECONDS: Final = frozenset({"claude-code", "claude-desktop", "gemini", "opencode", "windsurf"})
"""Clients by the unit of their `timeout`. In a file of any other client 1000 and more are milliseconds."""

_BEARER_VARIABLES: Final = ("bearer_token_env_var", "bearerTokenEnv", "bearer_token_env")


class Translated(Struct, kw_only=True):
    """One entry in our words."""

    value: dict[str, Any] = field(default_factory=dict[str, Any])
    """Empty for an entry that is not an MCP server, such as a built-in of the client."""
    unused: list[str] = field(default_factory=list[str])
    """The keys, dotted, that have no effect here and would have had one there."""
    written: dict[Steps, Steps] = field(default_factory=dict[Steps, Steps])
    """Path in the entry of what has another path in `value`; paths below follow."""
    names_project: bool = False
    """Whether it has a variable of the client for the folder that is open in it."""
    errors: list[tuple[tuple[str, ...], str]] = field(default_factory=list[tuple[tuple[str, ...], str]])
    """Path and message of each key that stops the entry."""

    def refuse(self, message: str, *steps: str) -> None:
        """Add an error at a key of the entry."""
        self.errors.append((steps, message))


def translate(
    client: str, entry: _Raw, *, project: str, home: str, inputs: Mapping[str, str] | None = None
) -> Translated:
    """Return `entry` of `client` (empty: of a client that is not known) with our keys.

    `project` and `home` are the folders that `${workspaceFolder}` and `${userHome}` stand for; `inputs` describes, by
    id, what the client asks a person for. A key that no client writes is an error of the entry.
    """
    done = Translated()
    if client == "goose" and entry.get("type") not in ("stdio", "sse", "streamable_http"):
        return done
    if client == "opencode" and not {"command", "url", "type"} & entry.keys():
        return done  # it switches a server of another file on or off
    if client == "zed" and not {"command", "url"} & entry.keys():
        return done  # a server of an extension, which Zed starts
    for key, item in entry.items():
        _take(key, item, done)
    _read_apart(entry, done)
    _read_type(client, entry, done.value)
    _read_timeout(client, done)
    _read_auth(done)
    value = done.value
    if client == "mcporter" and isinstance(command := value.get("command"), str) and not entry.get("args"):
        with contextlib.suppress(ValueError):  # as a shell would read it
            words = shlex.split(command)
            value["command"] = words if len(words) > 1 else command
    spelling = _Spelling(client, project, home)
    kept = {key: with_texts(item, spelling.of) for key, item in value.items() if item not in (None, {}, [], "")}
    done.names_project = spelling.names_project
    asked = {name: (inputs or {}).get(name, "") for name in spelling.asked}
    described = {name: text for name, text in asked.items() if text}
    done.value = {**kept, "inputs": described} if described else kept
    return done


def notices(file: str, unused: Iterable[tuple[str, str]]) -> list[Problem]:
    """Return one problem for each unused key of a file, given with the names of the servers that have it."""
    by_key: dict[str, list[str]] = {}
    for server, key in unused:
        by_key.setdefault(key, []).append(server)
    return [
        Problem(
            source=file,
            code="notice",
            message=f"`{key}` ({', '.join(servers)}) has no effect here",
            hint=_UNUSED.get(key, _OWN_LOGIN),
        )
        for key, servers in by_key.items()
    ]


def _take(key: str, item: Any, done: Translated) -> None:
    """Take one key of an entry."""
    ours = _SPELLINGS.get(key)
    if ours == "trusted":
        how = "write `untrusted: {trusted: [SERVER]}` into your own configuration file"
        done.refuse(f"a client's file cannot mark a server as trusted: {how}", key)
    elif ours is not None:
        if ours in done.value and ours != "timeout" and item not in (None, done.value[ours]):
            done.refuse(f"repeats another key of this entry ({ours!r})", key)
        done.value |= {ours: item} if item is not None else {}
        done.written |= {(ours,): (key,)} if item is not None and key != ours else {}
    elif key in _UNUSED:
        done.unused += [key] if item not in (None, False, [], "", {}) else []
    elif key not in _READ_APART and key not in _SILENT and not key.startswith(COMMENTS):
        known = (*_SPELLINGS, *_UNUSED, *_READ_APART)
        done.refuse(f"unknown key, which no client writes{did_you_mean(key, known)}", key)


def _read_apart(entry: _Raw, done: Translated) -> None:
    """Read the keys that become a part of another one."""
    value = done.value
    env = _mapping(value, "env")
    for key in ("env_vars", "env_keys"):
        names = [_variable(item) for item in _names(entry, key)]
        if not all(names):
            done.refuse("the name of an environment variable was expected", key)
        passed = {name: f"${{{name}}}" for name in names}
        if passed:
            value["env"] = {**passed, **_mapping(value, "env")}
            done.written |= {("env", name): (key,) for name in passed if name not in env}
    _read_headers(entry, done)
    if scopes := entry.get("scopes"):
        value["auth"] = {**as_mapping(value.get("auth")), "scopes": scopes}
    tools: Any = entry.get("tools")
    if isinstance(tools, list):
        value.setdefault("enabled_tools", tools)
    elif tools:
        done.unused.append("tools.approval_mode")


def _read_headers(entry: _Raw, done: Translated) -> None:
    """Read the keys that become a header."""
    value = done.value
    headers = {name: f"${{{variable}}}" for name, variable in _mapping(entry, "env_http_headers").items()}
    done.written |= {("headers", name): ("env_http_headers", name) for name in headers}
    if key := next((key for key in _BEARER_VARIABLES if entry.get(key)), None):
        headers["Authorization"] = f"Bearer ${{{entry[key]}}}"
        done.written["headers", "Authorization"] = (key,)
    elif token := entry.get("bearerToken") or entry.get("bearer_token"):
        headers["Authorization"] = f"Bearer {token}"
    options = _mapping(entry, "requestOptions")
    for key in options:
        if key == "timeout":
            value.setdefault("timeout", options[key])
        elif key != "headers":
            done.unused.append(f"requestOptions.{key}")
    headers |= _mapping(options, "headers")
    if isinstance(given := value.get("auth"), str) and given not in ("oauth", "none"):
        headers["Authorization"] = f"Bearer {given}"  # FastMCP's short form
        del value["auth"]
    if headers:
        value["headers"] = {**_mapping(value, "headers"), **headers}


def _read_type(client: str, entry: _Raw, value: dict[str, Any]) -> None:
    """Set the transport where the key of the address implies it: `url` is SSE in Gemini CLI, `httpUrl` is not."""
    if "httpUrl" in entry:
        value["type"] = "http"
    elif client == "gemini" and "url" in entry:
        value.setdefault("type", "sse")


def _read_timeout(client: str, done: Translated) -> None:
    """Convert the timeout of a call to seconds."""
    value = done.value
    given: Any = value.get("timeout")
    if isinstance(given, Mapping):  # OpenCode 2: of the start, and of a request
        given = cast("_Raw", given)
        done.unused += ["timeout.startup"] if "startup" in given else []
        for key in given.keys() - {"startup", "request"}:
            done.refuse("unknown key, which no client writes", "timeout", key)
        value["timeout"] = given = given.get("request")
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= sys.float_info.max:
        return
    in_milliseconds = client in _MILLISECONDS or (client not in _SECONDS and given >= 1000)
    seconds = given / 1000 if in_milliseconds else given
    seconds = int(seconds) if seconds == int(seconds) else seconds
    value["timeout"] = f"{int(seconds)}s" if seconds >= 1000 else seconds  # 1000 alone would be milliseconds


def _read_auth(done: Translated) -> None:
    """Reduce a login to the keys that are known here; a program has none."""
    value = done.value
    given: Any = value.get("auth")
    if given is False:
        given = value["auth"] = "none"
    elif given is True:
        del value["auth"]
    if isinstance(given, Mapping):
        auth = dict(cast("_Raw", given))
        if auth.pop("enabled", True) is False:
            value["auth"] = "none"
            return
        for key in tuple(auth):
            if key in _OAUTH_UNUSED:
                del auth[key]
                done.unused.append(f"oauth.{key}")
            elif key not in _AUTH_KEYS:
                del auth[key]
                done.refuse(f"unknown key, which no client writes{did_you_mean(key, _AUTH_KEYS)}", "oauth", key)
        value["auth"] = auth
    if "command" in value and "url" not in value:
        value.pop("auth", None)


class _Spelling:
    """Variables as one client writes them, spelt our way; notes inputs, and whether the project's folder is named."""

    def __init__(self, client: str, project: str, home: str) -> None:
        self._client = client
        self.asked: dict[str, None] = {}
        self.names_project = False
        self._places = {
            "workspaceFolder": project,
            "workspaceRoot": project,
            "cwd": project,
            "workspaceFolderBasename": Path(project).name,
            "userHome": home,
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def of(self, text: str) -> str:
        """Return `text` spelt our way."""
        if self._client == "claude-code":  # `${env:X}` and the like are nothing there, and an error here
            return text
        if self._client == "opencode":
            return _BRACES.sub(lambda match: f"${{{match[2]}}}" if match[1] == "env" else f"${{file:{match[2]}}}", text)
        if self._client == "gemini":
            text = _DOLLAR.sub(r"${\1}", text)
        if self._client in ("mcporter", ""):
            text = _DOLLAR_ENV.sub(r"${\1}", text)
        text = _ENV.sub(r"${\1}", text)
        self.asked |= dict.fromkeys(_INPUT.findall(text))
        return _PLACE.sub(self._place, text)

    def _place(self, match: re.Match[str]) -> str:
        self.names_project = self.names_project or match[1] in _PROJECT
        return self._places[match[1]]


def _mapping(entry: _Raw, key: str) -> dict[str, Any]:
    given: Any = entry.get(key)
    return dict(cast("_Raw", given)) if isinstance(given, Mapping) else {}


def _names(entry: _Raw, *keys: str) -> list[Any]:
    lists: list[Any] = [entry.get(key) for key in keys]
    return [item for given in lists if isinstance(given, list) for item in cast("list[Any]", given)]


def _variable(item: Any) -> str:
    """Return the variable that Codex passes on: a name, or a mapping with one; empty for another value."""
    name: Any = cast("_Raw", item).get("name") if isinstance(item, Mapping) else item
    return name if isinstance(name, str) else ""
