"""Settings of a crib: one frozen value, made by `load` and read by every floor above.

The keys of our file stand in sections: `jobs: {working: 4}` is `settings.jobs.working`. Keys that one feature reads
together without a section in the file are grouped here: `mode: plan` is `settings.policy.mode`.

A section stands beside the feature that reads it. Here are those whose features stand above this floor or in several
packages: `toolcrib chat`, the store, workspaces, commands, the HTTP entrance and telemetry.
"""

import base64
import binascii
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, cast, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, model_validator
from pydantic_core import PydanticCustomError

from ..core.budget import NO_BUDGETS, Budgets
from ..core.events import Problem
from ..core.json import canonical_with_paths
from ..core.memory import MemorySettings
from ..core.own_commands import file_options
from ..core.patterns import regex
from ..core.session import Limits
from ..core.settings import (
    CLIENTS,
    LIMITING,
    POLICY,
    REACH,
    RECORDING,
    Count,
    Duration,
    Flag,
    KeyInfo,
    Port,
    Section,
    Text,
    Texts,
    Wait,
    a_list_of,
    expected,
    identity_of,
    info_of,
    setting,
)
from ..disclosure.settings import DisclosureSettings
from ..errors import ConfigError, UsageError
from ..jobs.settings import JobLimits
from ..net.guard import host_pattern, host_rule, private_host
from ..policy.settings import ApprovalSettings, PolicySettings
from ..results.settings import RetentionSettings
from ..sources.settings import SourceSettings
from ..store.settings import Retention, is_url
from ..system.program_files import program_digest
from ..telemetry.settings import TelemetryOptions
from .directories import PROJECT_FOLDER, Directories
from .secrets import MIN_LENGTH, is_secret_name, secret_values

_KEY_BYTES: Final = 32

DEFAULT_PORT: Final = 8737
"""Default port of `serve --http`."""

Scope = Literal["call", "admin"]
"""`call`: tools. `admin`: tools, and what instances have registered."""

_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS: Final = ("true", "1", "span_only", "span_and_event")
"""Its values that ask for content on spans; `event_only` does not."""
_SELECTS: Final = regex(
    r"KUBECONFIG|.*_(?:ACCOUNT|CONTEXT|HOST|PROFILE|PROJECT|PROXY|REGION|SUBSCRIPTION|TENANT|URI|URL)", re.IGNORECASE
)
"""Names of variables that select an account or a place: `AWS_PROFILE`, `DATABASE_URL`, `HTTPS_PROXY`."""
_OF_OTHERS: Final = ("TOOLCRIB_", "ITERM_", "KITTY_", "KONSOLE_", "STARSHIP_", "VSCODE_", "XDG_")
"""Beginnings of the names of our own variables, which no server gets, and of those of one window or one start."""
_PROTOCOLS: Final = tuple(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL" for signal in ("", "TRACES_", "METRICS_"))


class ChatSettings(Section):
    """The key `chat`. A key without a value takes the setting of all sessions."""

    model: Text = ""
    """`provider:name`, such as `anthropic:claude-sonnet-5-5`, or `local:name@http://127.0.0.1:11434/v1`."""
    profile: Text = setting("", changed_by="tool")
    """Profile of the chat's session."""
    mode: Text = ""
    """Mode of the chat's session."""


def _store_url(text: str) -> str:
    if not is_url(text):
        raise expected("a URL postgresql://user:password@host/database, or the path of a SQLite file,")
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
    if str(value) == ":memory:":
        raise expected("the path of a file (`Toolcrib()` without `store` keeps everything in memory)")
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
    there = tuple(root for root in spec.roots if os.path.isdir(root))  # `Path.is_dir` raises for too long a name
    for root in spec.roots:
        if root not in there:
            message = f"the workspace {root} is not an existing folder"
            problems.append(
                Problem(source="workspace", code="bad_config", message=message, hint="make it, or name another one")
            )
    return spec.model_copy(update={"roots": there})


def _accepted_by(read: Callable[[str], object]) -> AfterValidator:
    """Return the validator of texts that `read` takes; its `UsageError` is the message."""

    def check(text: str) -> str:
        try:
            read(text)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(check)


def _network(value: Any) -> Any:
    if not isinstance(value, bool | list | tuple):
        raise expected("true, false or a list of hosts")
    return cast("Any", value)


_HostPatterns = tuple[Annotated[Text, _accepted_by(host_pattern)], ...]
_Network = Annotated[
    Annotated[bool, Tag("flag")] | Annotated[_HostPatterns, Tag("hosts")],
    Discriminator(lambda value: "flag" if isinstance(value, bool) else "hosts"),
    BeforeValidator(_network),
]


class ShellSpec(Section):
    """The key `shell`."""

    replaced_whole = True

    unsandboxed: Flag | None = None
    """Whether commands may run where the sandbox is missing; each of them asks for approval then. Without a value they
    may in sessions with a person to ask."""
    landlock: Flag = True
    """Whether commands run under Landlock where bubblewrap does not work (Linux 6.12 or newer) and `unsandboxed` is not
    true."""
    seatbelt: Flag = False
    """Whether commands run under Seatbelt on macOS, where `unsandboxed` is not true; untested."""
    container: Text | None = None
    """Image of a container in which commands run, by Docker or Podman, instead of bubblewrap. It has to be on the
    machine, with the programs that commands need."""
    network: _Network = False
    """`true` gives commands in the sandbox the whole network, services of this machine included; a list gives them
    these hosts, by name and at public addresses."""
    private_hosts: Annotated[
        tuple[Annotated[Text, _accepted_by(private_host)], ...], a_list_of("hosts with their ports")
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


class RegistrationSettings(Section):
    """The key `registration`: limits of the REST registration."""

    replaced_whole = True

    accept: Flag = False
    """Whether a registered tool may be called before its definition was accepted."""
    commands: Flag = False
    """Whether a registered tool may run a program."""
    private_hosts: tuple[Annotated[Text, _accepted_by(host_rule)], ...] = ()
    """`host:port` of this network that registered tools may reach."""


class DaemonSettings(Section):
    """The key `daemon`."""

    idle: Wait = 2 * 3600.0
    """Time that a local daemon stays loaded after its servers have ended for want of clients; 0 ends it with them."""


_HOST: Final = regex(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]", re.IGNORECASE)
_ORIGIN: Final = regex(r"https?://[^/?#@\s]+", re.IGNORECASE)


def _named_host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a host, without scheme and port (example: crib.example.org)")
    return text


def _web_origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError(f"{text!r} is not a web origin (example: https://chat.example.org)")
    return text


def _without_brackets(host: str) -> str:
    """Return an address for a socket: `[::1]` is how a URL writes it."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


_Hosts = Annotated[tuple[Annotated[Text, AfterValidator(_named_host)], ...], a_list_of("hosts")]
_Origins = Annotated[tuple[Annotated[Text, AfterValidator(_web_origin)], ...], a_list_of("origins")]


class HttpSettings(Section):
    """The keys of a file that decide who reaches this program over HTTP."""

    host: Annotated[Text, AfterValidator(_without_brackets)] = setting("127.0.0.1", why=CLIENTS)
    """Address that `serve --http` listens on."""
    port: Port = setting(DEFAULT_PORT, why=CLIENTS)
    """Port that `serve --http` listens on; 0 is any free one."""
    hosts: _Hosts = setting((), why=CLIENTS)
    """Further names that clients reach it by; without one, any where `host` is not loopback."""
    origins: _Origins = setting((), why=CLIENTS)
    """Web origins whose pages may call it, beside its own."""
    drain: Duration = setting(2.0, why=LIMITING)
    """Seconds that running calls have to end when `serve --http` is stopped; the rest is cancelled."""
    token: Text = setting("", secret=True)
    """Bearer token of HTTP clients; without it only loopback is served."""
    admin_token: Text = setting("", secret=True)
    """Bearer token of admin scope; without it, and without one in `tokens`, HTTP has no administration."""
    tokens: Tokens = setting((), secret=True)
    """Further bearer tokens, each with its scope, its principal and the instances it may work as."""
    registration: RegistrationSettings = setting(RegistrationSettings.model_construct(), secret=True)
    """Registration of tools by instances over REST."""


def telemetry_options(options: TelemetryOptions | None, environ: Mapping[str, str]) -> TelemetryOptions:
    """Return the options of the files; if they do not set `content`, the environment decides.

    Raises `ConfigError` where the environment has the collector, and gRPC as its protocol.
    """
    if options and options.otlp is True:
        for name in _PROTOCOLS:
            if environ.get(name) == "grpc":
                message = f"{name} is grpc, and OTLP goes over HTTP only: write the URL of a collector, with port 4318"
                raise ConfigError(message, key="telemetry.otlp")
    content: bool = environ.get(_CAPTURE, "").strip().lower() in _ON_SPANS
    return (options or TelemetryOptions.model_construct()).over(TelemetryOptions.model_construct(content=content))


def _key(**facts: Any) -> Mapping[str, KeyInfo]:
    return {"key": KeyInfo(**facts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One configuration, with every variable replaced. Values of `servers`, `token` and `secrets` are never printed.

    Fields with `compare=False` (files, problems, environment) say where the rest came from: two configurations that
    serve the same are equal without them, and `digest`, by which clients share a daemon, leaves them out.
    """

    directories: Directories
    sources: SourceSettings = field(default_factory=SourceSettings.model_construct)
    """Which tools exist: servers, openapi, catalogs, skills, plugins, workflows, builtins, no_prefix, accept, lock."""
    disclosure: DisclosureSettings = field(default_factory=DisclosureSettings.model_construct)
    """Presentation of tools: profile, profiles, versions, ranking."""
    policy: PolicySettings = field(default_factory=PolicySettings.model_construct)
    """Permissions: mode, modes, rules, identities, tool_permissions, approval_wait, untrusted, guard."""
    http: HttpSettings = field(default_factory=HttpSettings.model_construct)
    """Access over HTTP: host, port, hosts, origins, drain, token, admin_token, tokens, registration."""
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings.model_construct, metadata=_key(why=POLICY))
    limits: Limits = field(default_factory=Limits.model_construct, metadata=_key(why=LIMITING))
    budgets: Budgets = field(default=NO_BUDGETS, metadata=_key(why=LIMITING))
    jobs: JobLimits = field(default_factory=JobLimits.model_construct, metadata=_key(why=LIMITING))
    workspace: WorkspaceSpec = field(default_factory=WorkspaceSpec.model_construct, metadata=_key(why=REACH))
    shell: ShellSpec = field(default_factory=ShellSpec.model_construct, metadata=_key(why=POLICY))
    """Limits and sandbox of the commands that tools run."""
    tools: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]], metadata=_key(secret=True)
    )
    """Settings of built-in tools, by category."""
    chat: ChatSettings = field(
        default_factory=ChatSettings.model_construct,
        metadata=_key(why="it decides which model is asked, and what is allowed there"),
    )
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions.model_construct, metadata=_key(why=RECORDING))
    results: RetentionSettings = field(
        default_factory=RetentionSettings.model_construct,
        metadata=_key(why="it holds several values: name one of them"),
    )
    """Size and age limits of stored long results."""
    daemon: DaemonSettings = field(default_factory=DaemonSettings.model_construct, metadata=_key(why=LIMITING))
    """The process that stdio clients share."""
    memory: MemorySettings = field(default_factory=MemorySettings.model_construct, metadata=_key(why=LIMITING))
    store: StoreSpec = field(default_factory=StoreSpec.model_construct, metadata=_key(secret=True))
    records: Retention = field(default_factory=Retention.model_construct, metadata=_key(why=RECORDING))
    """Retention of recorded calls."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values to mask wherever they turn up, longest first."""
    files: tuple[Path, ...] = field(default=(), compare=False)
    """Files that were read, in the order of precedence, lowest first."""
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    """Parts of the configuration that are not used; the rest works."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Ours, as it was read; a server that is started gets only the harmless part of it."""

    @classmethod
    def of(cls, directories: Directories, **values: Any) -> Self:
        """Return the settings with these values, by the keys of the file; the others have their defaults."""
        return cls(directories=directories).with_values(**values)

    def with_values(self, **values: Any) -> Self:
        """Return the settings with other values, by the keys of the file: `mode`, `builtins`, `limits`.

        A mapping for a section is validated. Raises `TypeError` for an unknown key.
        """
        for name, value in values.items():
            model = FILE_KEYS[name].annotation if name in FILE_KEYS else None
            if isinstance(value, Mapping) and isinstance(model, type) and issubclass(model, Section):
                values[name] = model.model_validate(value)
        own = {name: value for name, value in values.items() if name not in _GROUP_OF}
        for group in GROUPS:
            changed = {name: value for name, value in values.items() if _GROUP_OF.get(name) == group}
            own |= {group: getattr(self, group).model_copy(update=changed)} if changed else {}
        return replace(self, **own)

    def value(self, key: str) -> Any:
        """Return the value of a key at the top of the file."""
        return getattr(getattr(self, _GROUP_OF[key]) if key in _GROUP_OF else self, key)

    @property
    def file_options(self) -> str:
        """The options with which a command reads the files that this process was given; empty for the usual ones."""
        own = self.directories.config / "config.yaml"
        return file_options(file for file in self.files if file != own and file.parent.name != PROJECT_FOLDER)

    def at_once(self) -> Self:
        """Return these settings for an opening that does not wait for sources: of a process that serves, or waits."""
        return self.with_values(ready_timeout=0.0)

    def digest(self) -> str:
        """Return 64 hex digits over the configuration, the resolved environment and our program.

        Equal digests serve the same: the key of the local daemon. It covers every field that is compared, the user's
        directories included; of the environment what the configuration uses, and the file of each server's command.
        Where a server inherits the environment, its variables that say for whom and where a program acts count too: a
        client with another token is not served with that of the first one.
        """
        commands = [spec.command for spec in self.sources.servers if spec.command]
        programs = [shutil.which(command, path=self.environment.get("PATH")) for command in commands]
        parts = {"ours": program_digest(), "programs": programs, "settings": identity_of(self)}
        if any(spec.inherit_env for spec in self.sources.servers):
            parts["inherited"] = {name: value for name, value in self.environment.items() if _is_identity(name)}
        return hashlib.sha256(canonical_with_paths(parts)).hexdigest()


def _is_identity(name: str) -> bool:
    """Whether a variable holds a credential, or selects an account, a place or a way there."""
    return not name.startswith(_OF_OTHERS) and (is_secret_name(name) or _SELECTS.fullmatch(name) is not None)


GROUPS: Final[Mapping[str, type[Section]]] = {
    "sources": SourceSettings,
    "disclosure": DisclosureSettings,
    "policy": PolicySettings,
    "http": HttpSettings,
}
"""Sections of `Settings` whose keys stand at the top of a file."""

_GROUP_OF: Final = {name: group for group, model in GROUPS.items() for name in model.model_fields}


class FileKey(NamedTuple):
    """One key at the top of our file."""

    annotation: Any
    info: KeyInfo
    default: Any


def _file_keys() -> Mapping[str, FileKey]:
    hints = get_type_hints(Settings, include_extras=True)
    keys: dict[str, FileKey] = {}
    for one in fields(Settings):
        if one.name in GROUPS:
            annotations = get_type_hints(GROUPS[one.name], include_extras=True)
            for name, inner in GROUPS[one.name].model_fields.items():
                if not info_of(inner).in_code:
                    default = inner.get_default(call_default_factory=True)
                    keys[name] = FileKey(annotations[name], info_of(inner), default)
        elif "key" in one.metadata:
            default = one.default_factory() if one.default_factory is not MISSING else one.default
            keys[one.name] = FileKey(hints[one.name], one.metadata["key"], default)
    return keys


FILE_KEYS: Final[Mapping[str, FileKey]] = _file_keys()
"""Every key at the top of our file with a value in `Settings`."""
