"""Vault for data that must be stored and not be readable: the real arguments of waiting calls.

Sealed with AES-256-GCM under one key of the installation, in a file beside the store (0600). The database alone reveals
nothing; the database and the key file together reveal everything.

The purpose is authenticated with the value: a sealed call that is copied into another row does not open there.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ..core.files import make_private_folder
from ..core.json import dumps, loads
from ..errors import ToolFailure

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32


class Vault:
    """Seals and opens JSON values. Lives as long as the store; safe to use from several threads."""

    def __init__(self, key: bytes | None = None, *, file: Path | None = None) -> None:
        """`key` (32 bytes), else that of `file`, made by the first `seal`; else one that is never written."""
        self._key = key
        self._file = file
        self._cipher: AESGCM | None = None

    @property
    def problem(self) -> str:
        """Reason why a stored value cannot be decrypted, for people."""
        if self._key is None and self._file is not None and not self._file.exists():
            return f"the file of the key, {self._file}, is missing"
        where = "`store.key`" if self._key is not None else str(self._file or "memory")
        return f"sealed with another key than that in {where}"

    def check(self) -> str:
        """Return why nothing can be sealed or opened; empty for a key, and where the first seal makes one."""
        try:
            if self._key is None and self._file is not None and self._file.exists():
                _key_in(self._file, make=False)
        except (ToolFailure, OSError) as error:
            return f"{error}; put the key back that was there (a backup has it), and restart Toolcrib"
        return ""

    def seal(self, value: Any, purpose: str) -> str:
        """Return `value` as text that only `open` with the same `purpose` reads."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ready().encrypt(nonce, dumps(value), purpose.encode())
        return base64.b64encode(nonce + sealed).decode("ascii")

    def open(self, text: str, purpose: str) -> Any:
        """Return the sealed value. Raises `ToolFailure("storage")` for another key or purpose, or a changed text.

        A missing key is not made here: nothing opens with a new one, and the old file may come back.

        A value that was sealed before the key was replaced cannot be recovered; its row stays, and is reported
        (`Store.unreadable`).
        """
        from cryptography.exceptions import InvalidTag  # loaded with the cipher, as `_ready` does

        try:
            raw = base64.b64decode(text, validate=True)
            return loads(self._ready(make=False).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], purpose.encode()))
        except (InvalidTag, ValueError, OSError) as error:
            raise ToolFailure(
                "storage",
                "something that was sealed cannot be opened: the key of this installation is another one, or missing",
                hint="put the file `key` of the data directory back, or set the same key for every process",
            ) from error

    def _ready(self, *, make: bool = True) -> AESGCM:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to load, and few commands open a seal

            self._cipher = AESGCM(
                self._key or (_key_in(self._file, make=make) if self._file else os.urandom(_KEY_BYTES))
            )
        return self._cipher


def purpose_of(kind: Literal["approval", "job", "schedule"], id: str) -> str:
    """Return the purpose for which the call of a row is sealed: in another row it does not open."""
    return f"{kind} {id}"


def _key_in(file: Path, *, make: bool) -> bytes:
    """Return the key in `file`; `make` writes one when it is missing: the first writer wins.

    Two processes that start together link their keys to the same name: the second finds the first one's and uses that.
    """
    if make and not file.exists():
        make_private_folder(file.parent)
        fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(base64.b64encode(os.urandom(_KEY_BYTES)))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(fresh, file)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    try:
        key = base64.b64decode(file.read_bytes())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ToolFailure("storage", f"{file} holds no key of {_KEY_BYTES} bytes")
    return key
