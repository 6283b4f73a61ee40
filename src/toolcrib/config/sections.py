"""Sections of the settings whose features stand above this floor, or in several packages.

`toolcrib chat`, the store, workspaces, commands, the HTTP entrance and telemetry.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, model_validator
from pydantic_core import PydanticCustomError

from ..core.events import Problem
from ..core.settings import CLIENTS, Count, Flag, Port, Section, Text, Texts, a_list_of, expected, setting
from ..errors import UsageError
from ..net.guard import host_pattern, host_rule, private_host
from ..telemetry.sdk import TelemetryOptions
from .secrets import MIN_LENGTH, secret_values

__all__ = [
    "DEFAULT_PORT",
    "ChatSettings",
    "HttpSettings",
    "RegistrationSettings",
    "Scope",
    "ShellSpec",
    "StoreSpec",
    "TokenSpec",
    "Tokens",
    "WorkspaceSpec",
    "telemetry_options",
    "workspace_at",
    "workspace_spec",
]


class ChatSettings(Section):
    """The key `chat`. A key without a value takes the setting of all sessions."""

    model: Text = ""
    """`provider:name`, such as `anthropic:claude-sonnet-5-5`, or `local:name@http://127.0.0.1:11434/v1`."""
    profile: Text = setting("", changed_by="tool")
    """Profile of the chat's session."""
    mode: Text = ""
    """Mode of the chat's session."""


_KEY_BYTES: Final = 32


def _store_url(text: str) -> str:
    from ..store.store import is_url  # it brings the databases and their encryption: few configurations name a store

    if not is_url(text):
        raise expected("a URL postgresql://user:password@host/database")
    return text


def _store_key(value: Any) -> bytes:
    try:
        given = value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    except (TypeError, binascii.Error, ValueError):
        given = b""
    if len(given) != _KEY_BYTES:
        raise expected("32 bytes in base64, such as `openssl rand -base64 32` makes,")
    return given


def _store_file(value: Any) -> Any:
    if not isinstance(value, str | Path) or not str(value).strip():
        raise expected("a string")
    return value


class StoreSpec(Section):
    """The key `store`: a database's URL or a file; without it a file in the data directory with its key beside it."""

    replaced_whole = True

    url: Annotated[Text, AfterValidator(_store_url)] = setting("", hidden=True)
    """URL of a PostgreSQL database, with its password."""
    path: Annotated[Path | None, BeforeValidator(_store_file)] = None
    """A SQLite file, made when it is missing, with its key beside it; a relative path counts from the file's folder."""
    key: Annotated[bytes, BeforeValidator(_store_key)] = setting(b"", hidden=True)
    """32 bytes in base64 that real arguments are sealed with: the same on every machine that shares the store."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return cast("Any", value)
        if not isinstance(value, str | Path):
            raise expected("a string")
        return {"url": value} if "://" in str(value) else {"path": value}

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.url and self.path is not None:
            raise ValueError("`url` or `path` was expected, not both")
        return self

    def secrets(self) -> tuple[str, ...]:
        """Return the values to mask wherever they turn up."""
        text = base64.b64encode(self.key).decode() if self.key else ""
        return (*secret_values(url=self.url), *((text,) if len(text) >= MIN_LENGTH else ()))


class WorkspaceSpec(Section):
    """The key `workspace`: folders of every session that names none itself."""

    replaced_whole = True

    roots: Annotated[tuple[Path, ...], a_list_of("strings")] = ()
    """Folders; relative paths of tools begin in the first one."""
    guarded: Texts = ()
    """Patterns of names that no tool reads or writes, beside the built-in ones; `!` in front lets one through."""
    hard_links: Texts = ()
    """Patterns of folders whose files may have a second name elsewhere, beside the built-in ones."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return cast("Any", value)
        if not isinstance(value, str) or not value.strip():
            raise expected("a string")
        return {"roots": (value,)}


def workspace_at(values: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """Return `values` of one file with the folders of its `workspace` counted from `base`."""
    spec: WorkspaceSpec | None = values.get("workspace")
    if spec is None:
        return values
    roots = tuple(base / root.expanduser() for root in spec.roots)
    return {**values, "workspace": spec.model_copy(update={"roots": roots})}


def workspace_spec(spec: WorkspaceSpec | None, problems: list[Problem]) -> WorkspaceSpec:
    """Return the workspace without the folders that do not exist; each of them is a problem."""
    spec = spec or WorkspaceSpec.model_construct()
    for root in spec.roots:
        if not root.is_dir():
            message = f"the workspace {root} is not an existing folder"
            problems.append(
                Problem(source="workspace", code="bad_config", message=message, hint="make it, or name another one")
            )
    return spec.model_copy(update={"roots": tuple(root for root in spec.roots if root.is_dir())})


def _host_pattern(text: str) -> str:
    try:
        host_pattern(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


def _private_host(text: str) -> str:
    try:
        private_host(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


def _network(value: Any) -> Any:
    if not isinstance(value, bool | list | tuple):
        raise expected("true, false or a list of hosts")
    return cast("Any", value)


_HostPatterns = tuple[Annotated[Text, AfterValidator(_host_pattern)], ...]
_Network = Annotated[
    Annotated[bool, Tag("flag")] | Annotated[_HostPatterns, Tag("hosts")],
    Discriminator(lambda value: "flag" if isinstance(value, bool) else "hosts"),
    BeforeValidator(_network),
]


class ShellSpec(Section):
    """The key `shell`."""

    replaced_whole = True

    unsandboxed: Flag = False
    """Whether commands may run where the sandbox is missing; each of them asks for approval then."""
    network: _Network = False
    """`true` gives commands in the sandbox the whole network, services of this machine included; a list gives them
    these hosts, by name and at public addresses."""
    private_hosts: Annotated[
        tuple[Annotated[Text, AfterValidator(_private_host)], ...], a_list_of("hosts with their ports")
    ] = ()
    """`host:port` that commands reach at any address."""
    keep: Flag = False
    """Whether the commands of a session share a shell: folder and exported variables of one are those of the next. A
    profile's key `shell` comes first."""
    memory_mb: Count = 2048
    """MiB of all processes of a command together, and of its `/tmp`."""
    file_mb: Count = 1024
    """MiB of one file."""
    processes: Count = 512
    """Processes at a time."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.network is True and self.private_hosts:
            what = {"key": "private_hosts", "what": "nothing (`network: true` reaches every host)"}
            raise PydanticCustomError("expected", "{what}", what)
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that commands reach by name; none where the whole network is open or closed."""
        return () if isinstance(self.network, bool) else self.network


DEFAULT_PORT: Final = 8737
"""Default port of `serve --http`."""

Scope = Literal["call", "admin"]
"""`call`: tools. `admin`: tools, and what instances have registered."""


class TokenSpec(Section):
    """One bearer token, and the rights of its sender."""

    token: Text = setting(secret=True)
    """The token itself."""
    scope: Scope = "call"
    """`call` or `admin`."""
    principal: Text = ""
    """Name of the sender in rules, budgets and records; without it a name made of the token's hash."""
    instances: Texts = ()
    """Instances that the sender may work as; `*` is every one."""


Tokens = Annotated[tuple[TokenSpec, ...], a_list_of("tokens")]


def _registered_host(text: str) -> str:
    try:
        host_rule(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


class RegistrationSettings(Section):
    """The key `registration`: limits of the REST registration."""

    replaced_whole = True

    accept: Flag = False
    """Whether a registered tool may be called before its definition was accepted."""
    commands: Flag = False
    """Whether a registered tool may run a program."""
    private_hosts: tuple[Annotated[Text, AfterValidator(_registered_host)], ...] = ()
    """`host:port` of this network that registered tools may reach."""


class HttpSettings(Section):
    """The keys of a file that decide who reaches this program over HTTP."""

    host: Text = setting("127.0.0.1", why=CLIENTS)
    """Address that `serve --http` listens on."""
    port: Port = setting(DEFAULT_PORT, why=CLIENTS)
    """Port that `serve --http` listens on; 0 is any free one."""
    token: Text = setting("", secret=True)
    """Bearer token of HTTP clients; without it only loopback is served."""
    admin_token: Text = setting("", secret=True)
    """Bearer token of admin scope; without it, and without one in `tokens`, HTTP has no administration."""
    tokens: Tokens = setting((), secret=True)
    """Further bearer tokens, each with its scope, its principal and the instances it may work as."""
    registration: RegistrationSettings = setting(RegistrationSettings.model_construct(), secret=True)
    """What instances may register over REST."""


_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS: Final = ("true", "1", "span_only", "span_and_event")
"""Its values that ask for content on spans; `event_only` does not."""


def telemetry_options(options: TelemetryOptions | None, environ: Mapping[str, str]) -> TelemetryOptions:
    """Return the options of the files; if they do not set `content`, the environment decides."""
    content: bool = environ.get(_CAPTURE, "").strip().lower() in _ON_SPANS
    return (options or TelemetryOptions.model_construct()).over(TelemetryOptions.model_construct(content=content))
