"""Entries of `servers` (or `mcpServers`) as `ServerSpec`: aliases of keys, the transport, variables, relative paths.

An entry with errors is left out, with a `Problem` for each of them; the others are used.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, cast
from urllib.parse import urldefrag, urlsplit

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import AfterValidator, BeforeValidator, model_validator

from ..core.documents.tree import Member, Node
from ..core.documents.tree import Path as Steps
from ..core.events import Problem
from ..core.json import as_mapping, read_json
from ..core.patterns import regex
from ..core.settings import CallTimeout, Flag, Hints, Scalar, Section, Wait, check_headers, conflicts, expected, setting
from ..errors import ConfigError, ConfigErrors
from ..mcp.client.spec import ServerSpec, Transport
from ..net.oauth.spec import OAuthSpec
from ..net.urls import is_url, url_parts
from .directories import here
from .files import decode, read
from .validation import SettingPlace, read_setting

_TRANSPORTS: Final[Mapping[str, Transport]] = {
    "local": "stdio",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "remote": "http",
}
"""Other spellings of a transport."""

_MAX_NAME: Final = 100

_ENV_LINE: Final = regex(
    r"\s*(?:#.*)?|\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.]*)\s*=\s*"
    r"""(?:'(?P<single>[^']*)'\s*(?:#.*)?|"(?P<double>[^"]*)"\s*(?:#.*)?|(?P<plain>(?:[^#]|(?<=\S)#)*)(?:(?<=\s)#.*)?)"""
)

_Spec = TypeVar("_Spec")

_SCHEMA_BYTES: Final = 1 << 20
"""Limit of one file of `schemas`: that of a schema."""


def _transport(value: Any) -> Any:
    return _TRANSPORTS.get(value, value) if isinstance(value, str) else value


def _words(value: Any) -> Any:
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
    if not items or items[0] == "":
        raise expected("a program")
    return items


def _strings(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise expected("a list of strings")
    return cast("Any", value)


def _constant(value: Any) -> Any:
    """`DEBUG: true` in JSON means the word."""
    return str(value).lower() if isinstance(value, bool) else value


def _named(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise expected("a mapping of strings")
    return cast("Any", value)


def _background(value: Any) -> Any:
    """A number is for every tool of the server: `*`."""
    return cast("Any", value) if isinstance(value, Mapping) else {"*": value}


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise expected("a number of seconds, 0 or more,")
    return float(value)


def _url(text: str) -> str:
    parts = url_parts(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise expected("an http:// or https:// URL")
    return text


_Strings = Annotated[tuple[Scalar, ...], BeforeValidator(_strings)]
_Named = Annotated[Mapping[str, Annotated[Scalar, BeforeValidator(_constant)]], BeforeValidator(_named)]


class ServerEntry(Section):
    """One entry of `servers`, as a file has it."""

    spellings: ClassVar[Mapping[str, str]] = {
        "transport": "type",
        "serverUrl": "url",
        "baseUrl": "url",
        "httpUrl": "url",
        "oauth": "auth",
        "enabledTools": "enabled_tools",
        "includeTools": "enabled_tools",
        "allowedTools": "enabled_tools",
        "disabledTools": "disabled_tools",
        "excludeTools": "disabled_tools",
        "blockedTools": "disabled_tools",
        "envFile": "env_file",
    }

    type: Annotated[Transport, BeforeValidator(_transport)] | None = None
    """stdio, http or sse; without it `command` or `url` decides."""
    command: Annotated[tuple[Scalar, ...], BeforeValidator(_words)] = ()
    """A program, or a list of words."""
    args: _Strings = ()
    """Arguments of the program."""
    env: _Named = setting({})
    """Environment variables of the program."""
    inherit_env: Flag = False
    """Whether the program gets the whole environment of Toolcrib, as under clients that pass theirs on; not that of a
    project's configuration."""
    env_file: Scalar = ""
    """A file of `NAME=value` lines; `env` comes before it."""
    cwd: Scalar = ""
    """Working directory of the program."""
    url: Annotated[Scalar, AfterValidator(_url)] = ""
    """Address of a server over HTTP."""
    headers: Annotated[_Named, AfterValidator(check_headers)] = setting({})
    """Headers of every request."""
    auth: OAuthSpec | None = None
    """Login; `none` never logs in."""
    timeout: CallTimeout | None = None
    """Seconds of one call, or a time such as `90s`; 1000 and more are milliseconds."""
    enabled: Flag = True
    """`false` leaves the server out."""
    disabled: Flag = False
    """`true` leaves the server out."""
    enabled_tools: _Strings | None = None
    """The server's tools that are taken; without it all of them."""
    disabled_tools: _Strings = ()
    """The server's tools that are left out."""
    relay: Flag = True
    """Whether its questions reach the client that made the call."""
    annotations: Mapping[str, Hints] = setting({})
    """`read`, `write`, `destructive` or MCP hints, by tool, in the place of the server's own."""
    trusted: Flag = False
    """Whether its results count as written by the user."""
    relist_after: Wait = 30.0
    """Age of the list of tools above which a call with side effects lists the server again before it; 0 never."""
    schemas: _Named = setting({})
    """Files of JSON Schemas by the URI that schemas of its tools refer to; nothing is fetched."""
    background_after: Annotated[
        Mapping[str, Annotated[float, BeforeValidator(_seconds)]], BeforeValidator(_background)
    ] = setting({})
    """Seconds after which a call goes on in the background, for all tools or by tool."""
    description: Any = None
    """For people."""
    projects: _Strings = ()
    """Folders in which the server is used, and where it runs; without it everywhere."""
    inputs: Mapping[str, str] = setting({})
    """Descriptions of the values that a person is asked for, by id."""

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, value: Any) -> Any:
        if isinstance(value, str) and is_url(value):
            return {"url": value}
        if not isinstance(value, dict):
            raise expected("a mapping with `command` or `url`, or a URL,")
        given = cast("dict[str, Any]", value)
        return {"type": "http", **given} if given.get("httpUrl") and "transport" not in given else given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if found := list(self._conflicts()):
            raise conflicts(found)
        return self

    @property
    def transport(self) -> Transport:
        """Transport of the server, from the keys of its entry."""
        return self.type or ("stdio" if self.command else "http")

    def _conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the keys that are missing, or cannot work together."""
        if not self.command and not self.url and self.type is None:
            yield (), "has neither `command` (a program to start) nor `url` (a server to call)"
        elif not (self.command if self.transport == "stdio" else self.url):
            yield (), f"a server of type {self.transport} needs `{'command' if self.transport == 'stdio' else 'url'}`"
        elif self.transport == "stdio" and self.auth is not None:
            yield ("auth",), "is for a server with a `url`; a program gets its credentials in `env`"
        elif self.auth is not None and self.auth.type == "oauth" and self._sends_own:
            yield ("auth",), "there is an `Authorization` among `headers` already; leave one of them out"

    @property
    def _sends_own(self) -> bool:
        return any(name.lower() == "authorization" for name in self.headers)

    def spec(self, name: str, base: str, env: Mapping[str, str], schemas: Mapping[str, Any]) -> ServerSpec:
        """Return the specification; relative paths count from `base`, `env` and `schemas` are those of its files."""
        runs = self.transport == "stdio"
        login = None if runs or self._sends_own else self.auth or OAuthSpec()
        return ServerSpec(
            name=name,
            transport=self.transport,
            command=self.command[0] if runs else "",
            args=(*self.command[1:], *self.args) if runs else (),
            env={**env, **self.env} if runs else {},
            inherit_env=self.inherit_env,
            env_file=str(Path(base, os.path.expanduser(self.env_file))) if runs and self.env_file else "",
            cwd=(str(Path(base, os.path.expanduser(self.cwd))) if self.cwd else base) if runs else "",
            url="" if runs else self.url,
            headers={} if runs else self.headers,
            oauth=None if login is None or login.type == "none" else login,
            timeout=self.timeout,
            tools_allow=None if self.enabled_tools == ("*",) else self.enabled_tools,
            tools_deny=self.disabled_tools,
            relay=self.relay,
            annotations=cast("Mapping[str, Mapping[str, bool]]", self.annotations),
            schemas=schemas,
            trusted=self.trusted,
            relist_after=self.relist_after,
            background_after=self.background_after,
        )


ENTRY_KEYS: Final[Mapping[str, str]] = {**{name: name for name in ServerEntry.model_fields}, **ServerEntry.spellings}
"""Every key that an entry may have, as the clients spell it, and our word for it."""


_OF_OTHER_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "stdio": ("url", "headers"),
    "http": ("command", "args", "env", "inherit_env", "env_file", "cwd"),
}


class ConfiguredEntry(Struct, frozen=True, kw_only=True):
    """One server or API as a file has it: nothing expanded, nothing checked."""

    name: str
    value: object
    file: str = ""
    """File, with the line if that is known; for messages."""
    key: str = "servers"
    """The dotted path of the mapping that it stands in."""
    name_in_file: str = ""
    """Name in the file, if it differs from `name`."""
    base: str = ""
    """Absolute path that a relative `cwd` counts from, and the working directory of an entry that has none."""
    where: Callable[[Steps], str] | None = None
    """`file:line` of a path in the document; None where only `file` is known."""
    written: Mapping[Steps, Steps] = field(default_factory=dict[Steps, Steps])
    """Path in the file of what has another path in `value`: the entry is another program's."""
    errors: tuple[ConfigError, ...] = ()
    """Errors that were found so far."""

    @classmethod
    def of(cls, member: Member, root: Node, path: Path | None, *, key: str, base: str, written: Iterable[str]) -> Self:
        """Return the entry that `member` of the mapping `key` has in the document `root`; `path` as in `file_line`.

        Values of the keys `written` are texts as they are written: a version 1.10 stays one.
        """
        value: Any = member.node.plain()
        for name in written:
            if (inner := member.node.member(name)) is not None:
                value[name] = inner.node.strings()

        def where(steps: Steps) -> str:
            return file_line(path, root.line_of(steps))

        file = file_line(path, member.line)
        return cls(name=member.key, value=value, file=file, key=key, base=base, where=where)

    def place(self, environ: Mapping[str, str]) -> SettingPlace:
        """Return the place of its value; variables are those of `environ`."""
        named = as_mapping(self.members.get("inputs"))
        return SettingPlace(
            path=(*self.key.split("."), self.name_in_file or self.name),
            where=self.where or (lambda path: self.file),
            environ=environ,
            inputs={name: text for name, text in named.items() if isinstance(text, str)},
            written=self.written,
        )

    def error(self, message: str, *keys: str) -> ConfigError:
        """Return an error at this entry, or at a key inside it."""
        return self.place({}).error(message, *keys)

    @property
    def is_off(self) -> bool:
        """Whether it is switched off: such an entry is not checked."""
        return self.members.get("disabled") is True or self.members.get("enabled") is False

    def at(self, cwd: Path) -> Self | None:
        """Return the entry as it is used in the folder `cwd`, None if it is not: with `projects` it runs in its own."""
        if not (folders := self.folders):
            return self
        around = [folder for folder in folders if cwd.is_relative_to(folder)]
        return replace(self, base=str(max(around, key=lambda folder: len(folder.parts)))) if around else None

    @property
    def folders(self) -> list[Path]:
        """The folders of `projects`; none for a value of another type, which is an error later."""
        given: Any = self.members.get("projects")
        if not isinstance(given, list):
            return []
        return [Path(self.base, os.path.expanduser(str(one))) for one in cast("list[Any]", given)]

    @property
    def members(self) -> Mapping[str, Any]:
        """Its keys; none for a value of another type."""
        return as_mapping(self.value)


def file_line(path: Path | None, line: int) -> str:
    """Return `file:line`; empty for keywords of a program, which have no file."""
    return f"{path}:{line}" if path else ""


def server_spec(entry: ConfiguredEntry, environ: Mapping[str, str]) -> ServerSpec:
    """Return the specification of `entry`. Raises `ConfigError` with all of its errors."""
    errors: list[ConfigError] = list(entry.errors)
    if not entry.name.isprintable() or not 0 < len(entry.name.strip()) <= _MAX_NAME:
        errors.append(entry.error(f"a server's name is 1 to {_MAX_NAME} printable characters"))
    read: ServerEntry | None = None
    variables: Mapping[str, str] = {}
    schemas: Mapping[str, Any] = {}
    try:
        read = cast("ServerEntry", read_setting(ServerEntry, _without_nulls(entry.value), entry.place(environ)))
        variables = _env_file(entry, read.env_file)
        schemas = {uri: _schema(entry, uri, name) for uri, name in read.schemas.items()}
    except ConfigError as error:
        errors.append(error)
    if errors or read is None:
        raise ConfigErrors.of(errors)
    return read.spec(entry.name, entry.base, variables, schemas)


def specs_of(
    entries: Iterable[ConfiguredEntry], environ: Mapping[str, str] | None = None
) -> tuple[list[ServerSpec], list[Problem]]:
    """Return the servers that can be taken, and a problem for each that cannot. Switched-off ones are left out."""
    return read_entries(entries, here().environ if environ is None else environ, server_spec)


def unused_keys(entries: Iterable[ConfiguredEntry], specs: Iterable[ServerSpec]) -> Iterator[Problem]:
    """Yield a notice for each key of an entry that the other kind of server has: it has no effect."""
    kinds = {spec.name: "stdio" if spec.transport == "stdio" else "http" for spec in specs}
    for entry in entries:
        kind = kinds.get(entry.name, "")
        for key, value in entry.members.items() if kind else ():
            if value and ENTRY_KEYS.get(key) in _OF_OTHER_KIND[kind]:
                message = str(entry.error(f"has no effect on a server of type {kind}", key))
                hint = "take it out, or write another `type`" if key in ("url", "command") else "take it out"
                yield Problem(source=entry.name, code="notice", message=message, hint=hint)


def read_entries(
    entries: Iterable[ConfiguredEntry],
    environ: Mapping[str, str],
    spec_of: Callable[[ConfiguredEntry, Mapping[str, str]], _Spec],
) -> tuple[list[_Spec], list[Problem]]:
    """Return the specifications of the entries, and the problems of the others. Switched-off ones are left out."""
    specs: list[_Spec] = []
    problems: list[Problem] = []
    for entry in entries:
        try:
            specs += [] if entry.is_off else [spec_of(entry, environ)]
        except ConfigError as error:
            problems += problems_of(entry.name, error)
    return specs, problems


def problems_of(source: str, error: ConfigError) -> list[Problem]:
    """Return one problem for each error of the entry of a source, which is left out."""
    errors = "; ".join(str(one).removeprefix(f"{one.file}: ") for one in error.each)
    outage = f"{source} is not available, its configuration has an error: {errors}"
    return [Problem(source=source, code="bad_config", message=str(one), outage=outage) for one in error.each]


def _without_nulls(value: object) -> object:
    """Return an entry in which a variable or header without a value is empty: its key counts."""
    if not isinstance(value, Mapping):
        return value
    given = dict(cast("Mapping[str, Any]", value))
    given.pop("description", None)  # for people: no variable is replaced there
    for key in ("env", "headers"):
        if isinstance(named := given.get(key), Mapping):
            members = cast("Mapping[str, Any]", named).items()
            given[key] = {name: "" if item is None else item for name, item in members}
    return given


def _schema(entry: ConfiguredEntry, uri: str, name: str) -> Any:
    """Return the JSON Schema in the file `name`, for the URI `uri`."""
    path = Path(entry.base, os.path.expanduser(name))
    try:
        if not urlsplit(uri).scheme or urldefrag(uri).fragment:
            raise ConfigError(f"{uri!r} is not the URI of a schema: it is absolute and has no fragment")
        schema = read_json(decode(read(path), str(path)), limit=_SCHEMA_BYTES, strict=True)
        if type(schema) not in (bool, dict):
            raise ValueError("a schema is an object, true or false")
    except ConfigError as error:
        raise entry.error(str(error), "schemas") from error
    except ValueError as error:
        raise entry.error(f"{path}: not a JSON Schema: {error}", "schemas") from error
    return schema


def _env_file(entry: ConfiguredEntry, name: str) -> dict[str, str]:
    """Return the variables of the file that `env_file` names: `NAME=value` a line, as other programs read it."""
    if not name:
        return {}
    path = Path(entry.base, os.path.expanduser(name))
    try:
        text = decode(read(path), str(path))
    except ConfigError as error:
        raise entry.error(str(error), "env_file") from error
    found: dict[str, str] = {}
    errors: list[ConfigError] = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _ENV_LINE.fullmatch(line)
        if match is None:
            errors.append(entry.error(f"{path}:{number}: NAME=value was expected", "env_file"))
        elif match["name"]:
            found[match["name"]] = match["single"] or match["double"] or (match["plain"] or "").strip()
    if errors:
        raise ConfigErrors.of(errors)
    return found
