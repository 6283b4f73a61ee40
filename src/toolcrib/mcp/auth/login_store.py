"""Login store: a file each that only its user may read, or the system's keyring with a file as its mark.

A login is found by the server's URL, the issuer and the client that are configured, so one that was made for another
configuration is never used. Several processes share the place: who renews a token holds its lock, and everybody sees by
the file's stamp that it changed. Everything here blocks but `held`: use it from a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shlex
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread

from ...core.files import make_private_folder
from ...core.json import canonical as canonical_json
from ...core.json import dumps, loads
from ...errors import ToolFailure
from ...net.oauth.login import Login, login_of, plain
from ...net.oauth.metadata import canonical
from ...net.oauth.spec import OAuthSpec
from ...system.file_watch import Stamp, stamps
from ...system.private_files import replace_private

_logger = logging.getLogger(__name__)

_SERVICE: Final = "toolcrib"
_LOCK_SECONDS: Final = 45.0
"""For one renewal by another process: longer than its request may take."""
_LOOK_AGAIN: Final = 0.05
_KEYRING: Final = {"kept": "keyring"}
"""Content of the file if the keyring has the rest."""


class NeedsLogin(ToolFailure):
    """A person has to log in; until then nothing of this server works."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(
            "unavailable",
            f"server {server!r} needs a login: {why}",
            hint=f"Run `toolcrib login {shlex.quote(server)}`.",
        )


class Keyring(Protocol):
    """A store of passwords of the system, as the package `keyring` has it."""

    def get_password(self, service: str, username: str) -> str | None:
        """Return a password, or None."""
        ...

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep a password."""
        ...

    def delete_password(self, service: str, username: str) -> None:
        """Forget a password."""
        ...


class Logins(Protocol):
    """Storage of the logins of one user."""

    def read(self, key: str) -> Login | None:
        """Return the login, or None when it is missing or unreadable."""
        ...

    def write(self, key: str, login: Login) -> None:
        """Keep `login`. Raises `OSError`."""
        ...

    def remove(self, key: str) -> bool:
        """Forget a login; return whether there was one. Raises `OSError`, and `ToolFailure` for a locked keyring."""
        ...

    def stamp(self, key: str) -> object:
        """Return a value that differs after every change of the login, in any process."""
        ...

    def where(self, key: str) -> str:
        """Say for people where the login is."""
        ...

    def held(self, key: str) -> Any:
        """Hold the login's lock, against every process that shares the place, as an async context manager."""
        ...


def login_key(url: str, spec: OAuthSpec) -> str:
    """Return 64 hex digits that name the login of a server."""
    who = spec.client_id or spec.client_metadata_url
    return hashlib.sha256(canonical_json([canonical(url), spec.grant, who, spec.issuer.rstrip("/")])).hexdigest()


class FileLogins:
    """Logins in a folder, mode 0700, and in a keyring if there is one.

    The file is always written, with a mark alone where the keyring has the login: keyrings do not report that an entry
    changed, while every process sees the stamp of the file.
    """

    def __init__(self, folder: Path, keyring: Callable[[], Keyring | None] = lambda: None) -> None:
        """`keyring` is asked for at the first use."""
        self._folder = folder
        self._keyring = cache(keyring)

    def read(self, key: str) -> Login | None:
        """Return the login; a file that is broken or of another version, and a locked keyring, count as none."""
        try:
            kept: Any = loads(self._path(key).read_bytes())
            if kept == _KEYRING:
                ring = self._keyring()
                kept = loads((ring.get_password(_SERVICE, key) if ring is not None else None) or b"")
            return login_of(kept)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - keyring backends raise exceptions of their system
            _logger.warning("a login cannot be read (%s): log in again", type(error).__name__)
            return None

    def write(self, key: str, login: Login) -> None:
        """Keep it in the keyring, or else in the file; raises `OSError` when neither can be written."""
        text = dumps(plain(login))
        replace_private(self._path(key), dumps(_KEYRING) if self._rings(key, text.decode()) else text)

    def remove(self, key: str) -> bool:
        """Forget it in both places. Raises `ToolFailure` where the keyring does not; its mark, the file, stays then."""
        ring, is_in_ring = self._keyring(), self._is_in_ring(key)
        if ring is None and is_in_ring:
            raise _kept_back("there is no keyring here")
        if ring is not None:
            try:
                ring.delete_password(_SERVICE, key)
            except Exception as error:
                if is_in_ring and not _lacks(ring, key):
                    raise _kept_back(type(error).__name__) from error
        for left in self._folder.glob(f"{key}.*.new"):  # by a crash in the middle of a write
            left.unlink(missing_ok=True)
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            return False
        return True

    def stamp(self, key: str) -> Stamp:
        """Return the file's stamp: it is written anew with every change."""
        return stamps([self._path(key)])[0]

    def where(self, key: str) -> str:
        """Return the file, or that it is the keyring."""
        return "the system's keyring" if self._is_in_ring(key) else str(self._path(key))

    @asynccontextmanager
    async def held(self, key: str) -> AsyncGenerator[None]:
        """Hold a lock file beside it; raises `ToolFailure` `unavailable` or `storage`."""
        lock = self._path(key).with_suffix(".lock")
        try:
            descriptor = await anyio.to_thread.run_sync(_opened, lock)
        except OSError as error:
            raise ToolFailure("storage", f"logins cannot be kept in {self._folder}: {error.strerror}") from error
        try:
            with anyio.move_on_after(_LOCK_SECONDS) as waiting:
                while not _locks(descriptor):  # noqa: ASYNC110 - another process sends no event
                    await anyio.sleep(_LOOK_AGAIN)
            if waiting.cancelled_caught:
                raise ToolFailure("unavailable", "another process renews this login and does not come to an end")
            yield
        finally:
            os.close(descriptor)

    def _is_in_ring(self, key: str) -> bool:
        try:
            return loads(self._path(key).read_bytes()) == _KEYRING
        except (OSError, ValueError):
            return False

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _rings(self, key: str, text: str) -> bool:
        ring = self._keyring()
        if ring is None:
            return False
        try:
            ring.set_password(_SERVICE, key, text)
        except Exception as error:  # noqa: BLE001 - keyring backends raise exceptions of their system; the file is there
            _logger.warning("the keyring takes no login (%s): it is kept in a file", type(error).__name__)
            return False
        return True


class MemoryLogins:
    """Logins that end with the process: of a crib that keeps nothing."""

    def __init__(self) -> None:
        self._logins: dict[str, Login] = {}
        self._changes = 0
        self._lock = anyio.Lock()

    def read(self, key: str) -> Login | None:
        """Return the login, or None."""
        return self._logins.get(key)

    def write(self, key: str, login: Login) -> None:
        """Keep it."""
        self._logins[key] = login
        self._changes += 1

    def remove(self, key: str) -> bool:
        """Forget it."""
        self._changes += 1
        return self._logins.pop(key, None) is not None

    def stamp(self, key: str) -> int:
        """Return the number of changes."""
        return self._changes

    def where(self, key: str) -> str:
        """Say that it is nowhere."""
        return "memory"

    def held(self, key: str) -> anyio.Lock:
        """Return the one lock."""
        return self._lock


def system_keyring() -> Keyring | None:
    """Return the system's keyring; None without the package `keyring`, or where the system has none."""
    try:
        import keyring  # of the extra `keyring`; its backends are slow to load

        ring: Any = keyring.get_keyring()
        return ring if ring.priority > 0 else None
    except Exception as error:  # noqa: BLE001 - ImportError, or any exception of a system's backends
        _logger.debug("no keyring: %s", type(error).__name__)
        return None


def _lacks(ring: Keyring, key: str) -> bool:
    """Whether the keyring answers, and has no such login."""
    try:
        return ring.get_password(_SERVICE, key) is None
    except Exception:  # noqa: BLE001 - likewise
        return False


def _kept_back(why: str) -> ToolFailure:
    message = f"the login is still in the system's keyring, which does not forget it ({why})"
    return ToolFailure("storage", message, hint="unlock the keyring, and log out again")


def _opened(path: Path) -> int:
    make_private_folder(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
