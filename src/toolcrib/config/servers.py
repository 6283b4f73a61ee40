"""Entries of `mcpServers` as `ServerSpec`: aliases of keys, the transport, variables, relative paths.

An entry that cannot be taken is a `ConfigError` of that entry; the reader of the file turns it into a `Problem` and
goes on with the others.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ..catalog.names import nearest
from ..core.settings import seconds_of
from ..errors import ConfigError
from ..mcp.client.spec import ServerSpec, Transport
from .expand import expand
from .files import decode, read
from .oauth import Reading, oauth_spec

__all__ = ["ENTRY_KEYS", "Entry", "annotations_of", "did_you_mean", "server_spec", "timeout_of"]

ENTRY_KEYS: Final[Mapping[str, str]] = {
    "type": "type",
    "transport": "type",
    "command": "command",
    "args": "args",
    "env": "env",
    "cwd": "cwd",
    "url": "url",
    "serverUrl": "url",
    "baseUrl": "url",
    "httpUrl": "url",
    "headers": "headers",
    "auth": "auth",
    "oauth": "auth",
    "timeout": "timeout",
    "enabled": "enabled",
    "disabled": "disabled",
    "enabled_tools": "enabled_tools",
    "enabledTools": "enabled_tools",
    "includeTools": "enabled_tools",
    "allowedTools": "enabled_tools",
    "disabled_tools": "disabled_tools",
    "disabledTools": "disabled_tools",
    "excludeTools": "disabled_tools",
    "blockedTools": "disabled_tools",
    "relay": "relay",
    "annotations": "annotations",
    "trusted": "trusted",
    "background_after": "background_after",
    "description": "description",
    "env_file": "env_file",
    "envFile": "env_file",
    "inputs": "inputs",
}
"""Every key that an entry may have, as the clients spell it, and our word for it. `description` is for people."""

_TRANSPORTS: Final[Mapping[str, Transport]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "remote": "http",
    "sse": "sse",
}

_KINDS: Final[Mapping[str, Mapping[str, bool]]] = {
    "read": {"readOnlyHint": True},
    "write": {"readOnlyHint": False, "destructiveHint": False},
    "destructive": {"readOnlyHint": False, "destructiveHint": True},
}

_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

_MILLISECONDS_FROM: Final = 1000
"""Ours are seconds; most clients write milliseconds, and a thousand seconds is no realistic timeout."""

_MAX_NAME: Final = 100

_ENV_LINE: Final = re.compile(
    r"\s*(?:#.*)?|\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.]*)\s*=\s*"
    r"""(?:'(?P<single>[^']*)'\s*(?:#.*)?|"(?P<double>[^"]*)"\s*(?:#.*)?|(?P<plain>(?:[^#]|(?<=\S)#)*)(?:(?<=\s)#.*)?)"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One server as a file has it: nothing expanded, nothing checked."""

    name: str
    value: object
    file: str = ""
    """Where it stands, with the line if that is known; for messages."""
    key: str = "servers"
    """The dotted path of the mapping that it stands in."""
    base: str = ""
    """Absolute path that a relative `cwd` counts from, and the working directory of an entry that has none."""

    def error(self, message: str, *keys: str) -> ConfigError:
        """An error at this entry, or at a key inside it."""
        return ConfigError(message, file=self.file, key=".".join((self.key, self.name, *keys)))


def server_spec(entry: Entry, environ: Mapping[str, str]) -> ServerSpec | None:
    """Return the specification of `entry`, or None when it is switched off. Raises `ConfigError`."""
    if not entry.name.isprintable() or not 0 < len(entry.name.strip()) <= _MAX_NAME:
        raise entry.error(f"a server's name is 1 to {_MAX_NAME} printable characters")
    given = entry.value
    if not isinstance(given, Mapping):
        raise entry.error("a mapping with `command` or `url` was expected")
    value = _known(entry, cast("Mapping[str, Any]", given))
    if _flag(entry, value, "disabled", False) or not _flag(entry, value, "enabled", True):
        return None
    reader = _Reader(entry, value, environ)
    transport = _transport(entry, value)
    endpoint = reader.process() if transport == "stdio" else reader.remote()
    enabled = value.get("enabled_tools")
    return ServerSpec(
        name=entry.name,
        transport=transport,
        **endpoint,
        timeout=timeout_of(entry, value.get("timeout")),
        tools_allow=None if enabled in (None, ["*"]) else reader.strings("enabled_tools"),
        tools_deny=reader.strings("disabled_tools"),
        relay=_flag(entry, value, "relay", True),
        annotations=annotations_of(entry, value.get("annotations")),
        trusted=_flag(entry, value, "trusted", False),
        background_after=_background(entry, value.get("background_after")),
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` for the closest of `known`, or nothing when none is close."""
    close = nearest(word, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _known(entry: Entry, value: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the keys. An unknown one is an error: it may be a `command` that was misspelt."""
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for key, item in value.items():
        ours = ENTRY_KEYS.get(key)
        if ours is None:
            unknown.append(key)
        elif item is not None:
            if ours in known:
                raise entry.error(f"says the same as another key of this entry ({ours!r})", key)
            known[ours] = item
    if unknown:
        key = unknown[0]
        raise entry.error(f"unknown key{did_you_mean(key, ENTRY_KEYS)}", key)
    if value.get("httpUrl") and "type" not in known:
        known["type"] = "http"
    return known


def _transport(entry: Entry, value: Mapping[str, Any]) -> Transport:
    given = value.get("type")
    if given is None:
        if "command" not in value and "url" not in value:
            raise entry.error("has neither `command` (a program to start) nor `url` (a server to call)")
        return "stdio" if "command" in value else "http"
    transport = _TRANSPORTS.get(given) if isinstance(given, str) else None
    if transport is None:
        raise entry.error(f"{given!r} is not one of stdio, http, sse{did_you_mean(str(given), _TRANSPORTS)}", "type")
    needed = "command" if transport == "stdio" else "url"
    if needed not in value:
        raise entry.error(f"a server of type {given!r} needs `{needed}`")
    return transport


@dataclass(frozen=True, slots=True)
class _Reader:
    """The values of one entry, checked and expanded."""

    entry: Entry
    value: Mapping[str, Any]
    environ: Mapping[str, str]

    def process(self) -> dict[str, Any]:
        command = self.value["command"]
        words = self.strings("command") if isinstance(command, Sequence) and not isinstance(command, str) else ()
        program, *first = words or (self.text(command, "command"),)
        if not program:
            raise self.entry.error("is empty", "command")
        if "auth" in self.value:
            raise self.entry.error("is for a server with a `url`; a program gets its credentials in `env`", "auth")
        return {
            "command": program,
            "args": (*first, *self.strings("args")),
            "env": {**self.env_file(), **self.mapping("env")},
            "cwd": self.directory(),
        }

    def remote(self) -> dict[str, Any]:
        url = self.text(self.value["url"], "url")
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises for an invalid one
        except ValueError as error:
            raise self.entry.error(f"not a URL: {error}", "url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise self.entry.error("an http:// or https:// URL was expected", "url")
        headers = self.mapping("headers")
        reading = Reading(self.text, self.entry.error)
        return {"url": url, "headers": headers, "oauth": oauth_spec(self.value.get("auth"), headers, reading)}

    def directory(self) -> str:
        given = self.text(self.value["cwd"], "cwd") if "cwd" in self.value else ""
        if not given:
            return self.entry.base
        return str(Path(self.entry.base, os.path.expanduser(given)))

    def text(self, item: Any, *keys: str) -> str:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise self.entry.error("a string was expected", *keys)
        where = ".".join((self.entry.key, self.entry.name, *keys))
        return expand(str(item), self.environ, file=self.entry.file, key=where, inputs=self.inputs())

    def inputs(self) -> Mapping[str, str]:
        """Return what each value that a person is asked for is, by id."""
        given = self.value.get("inputs", {})
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in cast("Any", given).values()):
            raise self.entry.error("a mapping from an input's id to its description was expected", "inputs")
        return cast("Mapping[str, str]", given)

    def env_file(self) -> dict[str, str]:
        """Return the variables of the file that `env_file` names: `NAME=value` a line, as other programs read it."""
        given = self.text(self.value["env_file"], "env_file") if "env_file" in self.value else ""
        if not given:
            return {}
        path = Path(self.entry.base, os.path.expanduser(given))
        try:
            text = decode(read(path), str(path))
        except ConfigError as error:
            raise self.entry.error(str(error), "env_file") from error
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            match = _ENV_LINE.fullmatch(line)
            if match is None:
                raise self.entry.error(f"{path}:{number}: NAME=value was expected", "env_file")
            if match["name"]:
                found[match["name"]] = match["single"] or match["double"] or (match["plain"] or "").strip()
        return found

    def strings(self, key: str) -> tuple[str, ...]:
        items = self.value.get(key, [])
        if not isinstance(items, Sequence) or isinstance(items, str):
            raise self.entry.error("a list of strings was expected", key)
        return tuple(self.text(item, f"{key}[{place}]") for place, item in enumerate(cast("Sequence[Any]", items)))

    def mapping(self, key: str) -> dict[str, str]:
        items = self.value.get(key, {})
        if not isinstance(items, Mapping):
            raise self.entry.error("a mapping of strings was expected", key)
        return {
            str(name): self.text("" if item is None else _constant(item), key, str(name))
            for name, item in cast("Mapping[str, Any]", items).items()
        }


def _constant(item: Any) -> Any:
    """`DEBUG: true` in JSON means the word."""
    return str(item).lower() if isinstance(item, bool) else item


def _flag(entry: Entry, value: Mapping[str, Any], key: str, default: bool) -> bool:
    given = value.get(key, default)
    if not isinstance(given, bool):
        raise entry.error("true or false was expected", key)
    return given


def timeout_of(entry: Entry, given: Any) -> float | None:
    """Return the seconds that an entry's `timeout` stands for. Raises `ConfigError`."""
    if given is None:
        return None
    if isinstance(given, str) and (seconds := seconds_of(given)):
        return seconds
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise entry.error("a number of seconds above 0, or a time such as 90s or 1h, was expected", "timeout")
    return given / 1000 if given >= _MILLISECONDS_FROM else float(given)


def _background(entry: Entry, given: Any) -> dict[str, float]:
    """Return after how many seconds calls go on in the background, by tool; `*` is every other one of the server."""
    by_tool = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {} if given is None else {"*": given})
    for tool, seconds in by_tool.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            key = f"background_after.{tool}" if isinstance(given, Mapping) else "background_after"
            raise entry.error("a number of seconds was expected, 0 or more", key)
    return {tool: float(seconds) for tool, seconds in by_tool.items()}


def annotations_of(entry: Entry, given: Any) -> dict[str, Mapping[str, bool]]:
    """Return the MCP hints by tool that an entry's `annotations` stand for. Raises `ConfigError`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise entry.error("a mapping from tool to hints was expected", "annotations")
    tools = cast("Mapping[str, Any]", given)
    return {tool: _hints(entry, tool, hints) for tool, hints in tools.items()}


def _hints(entry: Entry, tool: str, given: Any) -> Mapping[str, bool]:
    if isinstance(given, str):
        if given not in _KINDS:
            raise entry.error(f"{given!r} is not one of read, write, destructive", "annotations", tool)
        return _KINDS[given]
    if not isinstance(given, Mapping):
        raise entry.error("read, write, destructive or a mapping of MCP hints was expected", "annotations", tool)
    hints = cast("Mapping[str, Any]", given)
    for name, value in hints.items():
        if name not in _HINTS:
            raise entry.error(f"unknown hint{did_you_mean(name, _HINTS)}", "annotations", tool, name)
        if not isinstance(value, bool):
            raise entry.error("true or false was expected", "annotations", tool, name)
    return dict(hints)
