"""Settings of the store: its place and its key."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated, Any, Final, Self, cast

from pydantic import AfterValidator, BeforeValidator, model_validator

from ..core.settings import Section, Text, expected, setting
from ..store.store import is_url
from .secrets import MIN_LENGTH, secret_values

__all__ = ["StoreSpec"]

_KEY_BYTES: Final = 32


def _url(text: str) -> str:
    if not is_url(text):
        raise expected("a URL postgresql://user:password@host/database")
    return text


def _key(value: Any) -> bytes:
    try:
        given = value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    except (TypeError, binascii.Error, ValueError):
        given = b""
    if len(given) != _KEY_BYTES:
        raise expected("32 bytes in base64, such as `openssl rand -base64 32` makes,")
    return given


def _file(value: Any) -> Any:
    if not isinstance(value, str | Path) or not str(value).strip():
        raise expected("a string")
    return value


class StoreSpec(Section):
    """The key `store`: a database's URL or a file; without it a file in the data directory with its key beside it."""

    replaced_whole = True

    url: Annotated[Text, AfterValidator(_url)] = setting("", hidden=True)
    """URL of a PostgreSQL database, with its password."""
    path: Annotated[Path | None, BeforeValidator(_file)] = None
    """A SQLite file, made when it is missing, with its key beside it; a relative path counts from the file's folder."""
    key: Annotated[bytes, BeforeValidator(_key)] = setting(b"", hidden=True)
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
