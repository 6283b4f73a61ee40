"""Storage of a crib: folders, the store, logins of servers; and its telemetry."""

from __future__ import annotations

import base64
import dataclasses
import logging
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread
from msgspec import Struct

from ..config import Settings, load
from ..config.directories import PROJECT_FOLDER, Directories
from ..config.files import read
from ..config.secrets import read_secret
from ..config.trust import Trust
from ..core.events import SourceState
from ..errors import ConfigError, ToolFailure, UsageError
from ..mcp.client.spec import ServerSpec
from ..net.oauth.spec import OAuthSpec
from ..results.redaction.output import guard_logs
from ..results.redaction.redactor import Redactor
from ..store.calls import Redact
from ..store.sqlite import SqliteDatabase
from ..store.store import Store
from ..store.vault import Vault
from ..telemetry.otel import Telemetry
from ..telemetry.sdk import exporting
from ..telemetry.settings import TelemetryOptions

if TYPE_CHECKING:
    from ..mcp.auth.access import Access
    from ..mcp.auth.login_store import Logins

_logger = logging.getLogger(__name__)

STORE = "toolcrib.db"
"""In the data directory: the store where none is configured."""

FOLDER = "logins"
"""In the data directory."""


class Folders:
    """Folders in which the parts of one crib keep files."""

    def __init__(self, home: Directories | None) -> None:
        """Create nothing: the part that first puts a file there makes the folder, mode 0700.

        Raises `UsageError` where no folder takes temporary files.
        """
        self.home = home
        try:
            folder = tempfile.gettempdir()
        except FileNotFoundError:
            raise UsageError("no folder takes temporary files: make room in /tmp, or name another in TMPDIR") from None
        self._temporary = Path(folder) / f"toolcrib-{secrets.token_hex(8)}"

    @property
    def cache(self) -> Path | None:
        """The folder for what can be made anew; None where nothing is kept."""
        return self.home.cache if self.home else None

    @property
    def artifacts(self) -> Path | None:
        """The folder of large outputs; None is a temporary one."""
        return self.home.data / "artifacts" if self.home else None

    @property
    def spool(self) -> Path:
        """The folder of results that are too large for memory; removed with the crib."""
        return self._temporary / "spill"

    @property
    def plugins(self) -> Path:
        """The folder in which each plugin has one of its own."""
        return (self.home.data if self.home else self._temporary) / "plugins"

    @property
    def own_plugins(self) -> Path | None:
        """The folder of the user's own plugins."""
        return self.home.config / "plugins" if self.home else None

    def for_tools(self, kept: bool) -> Path:
        """Return the folder below which tools have theirs: `kept` over a restart, or for what can be made anew."""
        base = self._temporary if self.home is None else self.home.data if kept else self.home.cache
        return base / "tools"

    def remove_temporary(self) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self._temporary, ignore_errors=True)


def place_of(settings: Settings) -> Path | str:
    """Return the file or the URL of the store."""
    return settings.store.url or settings.store.path or settings.directories.data / STORE


def has_store(settings: Settings) -> bool:
    """Return whether the store exists, without creating its file; one with a URL always counts."""
    place = place_of(settings)
    return not isinstance(place, Path) or place.exists()


def store_of(settings: Settings, *, memory: bool = False, redact: Redact | None = None) -> Store:
    """Return the store of `settings`, or one in memory, not started yet. Raises what `Store` raises."""
    if memory:
        return Store(None, redact=redact)
    place = place_of(settings)
    # Behind a client that guards its user itself, servers work on a full or read-only disk as they do without us.
    if not settings.policy.guard and isinstance(place, Path) and (reason := SqliteDatabase(place).refusal()):
        _logger.warning("calls are recorded in memory, until this process ends: %s", reason)
        return Store(None, redact=redact)
    beside = place if settings.store.path is not None and isinstance(place, Path) else settings.directories.data / STORE
    vault = Vault(settings.store.key or None, file=beside.with_name("key"))
    return Store(place, redact=redact, vault=vault, retention=settings.records, must_record=settings.policy.guard)


def open_store(settings: Settings) -> Store:
    """Open the store of `settings`. Raises what `Store.open` raises."""
    store = store_of(settings)
    store.start()
    return store


def logins_in(home: Directories | None) -> Logins:
    """Return the storage of logins; without a home they end with the process."""
    from ..mcp.auth.login_store import FileLogins, MemoryLogins, system_keyring  # slow to load, and few log in

    return FileLogins(home.data / FOLDER, system_keyring) if home is not None else MemoryLogins()


class ServerLogins:
    """Makes what lets us into each server. One for a crib."""

    def __init__(self, settings: Settings, home: Directories | None, learn: Callable[[Iterable[str]], None]) -> None:
        """`learn` receives every secret that is read."""
        self._settings = settings
        self._home = home
        self._learn = learn

    @cached_property
    def _logins(self) -> Logins:
        return logins_in(self._home)

    def access(self, spec: ServerSpec) -> Access | None:
        """Return the access to the server; None for one without logins."""
        if spec.oauth is None or spec.transport == "stdio":
            return None
        from ..mcp.auth.access import Access  # it brings the HTTP client: only for servers with logins

        configured = partial(_oauth_by_now, self._settings, spec) if self._settings.files else None
        return Access(spec.name, spec.url, spec.oauth, self._logins, learn=self._learn, configured=configured)


def _oauth_by_now(settings: Settings, spec: ServerSpec) -> OAuthSpec | None:
    """Return a server's login by its configuration files as they are now; None if they have another server.

    A file of a project that was not confirmed since it changed does not count.
    """
    trust = Trust(settings.directories)
    try:
        files = [
            file for file in settings.files if file.parent.name != PROJECT_FOLDER or trust.covers(file, read(file))
        ]
        found = load(files or None, environ=settings.environment).sources.servers
    except ConfigError as error:
        _logger.warning("the credentials of server %s cannot be read again: %s", spec.name, error)
        return None
    return next((one.oauth for one in found if (one.name, one.url) == (spec.name, spec.url)), None)


class AccountLogins:
    """Logins to accounts of tools: `tools: {CATEGORY: {accounts: {NAME: {url, user, password | auth}}}}`."""

    def __init__(self, settings: Settings, home: Directories | None, learn: Callable[[Iterable[str]], None]) -> None:
        """`learn` receives every secret that is read."""
        self._settings = settings
        self._home = home
        self._learn = learn
        self._accesses: dict[str, Access] = {}

    @cached_property
    def _logins(self) -> Logins:
        return logins_in(self._home)

    async def authorization(self, category: str, name: str) -> str:
        """Return the `Authorization` of an account; empty without a login. Raises `ToolFailure`."""
        account = accounts_in(self._settings).get(name)
        if account is None or account.category != category:
            return ""
        try:
            oauth = account.oauth
        except ConfigError as error:
            raise ToolFailure("unavailable", str(error)) from error
        if oauth is None:
            password = account.password
            if not password and self._home is not None:
                password = await anyio.to_thread.run_sync(read_secret, account.secret, self._settings.environment) or ""
            if not account.user or not password:
                return ""
            encoded = base64.b64encode(f"{account.user}:{password}".encode()).decode()
            self._learn((password, encoded))
            return f"Basic {encoded}"
        from ..mcp.auth.access import Access  # it brings the HTTP client: only for accounts with logins

        if name not in self._accesses:
            self._accesses[name] = Access(name, account.url, oauth, self._logins, learn=self._learn)
        access = self._accesses[name]
        if await access.changed():
            access.forget()
        return await access.header()

    async def aclose(self) -> None:
        """Close the connections to authorization servers."""
        for access in self._accesses.values():
            await access.aclose()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolAccount:
    """An account of a tool category."""

    category: str
    name: str
    url: str
    user: str = ""
    password: str = dataclasses.field(default="", repr=False)
    """From the configuration; else `toolcrib login` stores one under the name `secret`."""
    auth: Any = dataclasses.field(default=None, repr=False)

    @property
    def oauth(self) -> OAuthSpec | None:
        """OAuth login of the account; None for a password. Raises `ConfigError`."""
        try:
            return OAuthSpec.model_validate(self.auth) if self.auth else None
        except ValueError as error:
            raise ConfigError(f"tools.{self.category}.accounts.{self.name}.auth: {error}") from error

    @property
    def secret(self) -> str:
        """Name of the stored password."""
        return f"{self.category}/{self.name}"


def accounts_in(settings: Settings) -> dict[str, ToolAccount]:
    """Return the accounts of all tool categories by their name."""
    accounts: dict[str, ToolAccount] = {}
    for category, section in settings.tools.items():
        given: Any = section.get("accounts")
        for name, entry in cast("Mapping[str, Any]", given).items() if isinstance(given, Mapping) else ():
            if not isinstance(entry, Mapping):
                continue
            of = cast("Mapping[str, Any]", entry)
            words = {key: str(of.get(key) or "") for key in ("url", "user", "password")}
            accounts[name] = ToolAccount(category=category, name=name, auth=of.get("auth"), **words)
    return accounts


class Storage(Struct, frozen=True, kw_only=True):
    """Store, folders and redaction of one crib."""

    folders: Folders
    store: Store
    redactor: Redactor

    @classmethod
    def of(cls, settings: Settings, home: Directories | None) -> Storage:
        """Return the storage of `settings`, not opened; without a `home` in memory and temporary files."""
        redactor = Redactor(settings.secrets)
        store = store_of(settings, memory=home is None, redact=redactor.values)
        return cls(folders=Folders(home), store=store, redactor=redactor)


def open_telemetry(
    stack: AsyncExitStack, options: TelemetryOptions, redactor: Redactor, sources: Callable[[], Iterable[SourceState]]
) -> Telemetry:
    """Return the telemetry of the calls; its queue is sent when `stack` ends. Raises `ConfigError`.

    The states of the `sources` are exported where the configuration has an exporter. Until `stack` ends our log records
    are clean of what `redactor` knows.
    """
    stack.callback(guard_logs(redactor))
    ours = exporting(options)
    if ours is None:
        return Telemetry(tracers=options.tracers, meters=options.meters, content=options.content, redact=redactor.value)
    stack.push_async_callback(ours.close)
    from ..telemetry.spans import observe_sources  # loads OpenTelemetry, which `ours` has loaded

    observe_sources(ours.meters, sources)
    return Telemetry(tracers=ours.tracers, meters=ours.meters, content=options.content, redact=redactor.value)
