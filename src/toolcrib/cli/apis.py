"""`toolcrib add openapi`: one HTTP API in our own configuration, by its OpenAPI description."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ..config.openapi import api_spec
from ..config.own_file import add_api
from ..config.servers import Entry
from ..errors import UsageError
from ..net.guard import Guard
from ..sources.openapi.convert import Picks, convert
from ..sources.openapi.description import base_url_of, fetch, is_url, mapping, parse, placed
from ..sources.openapi.parameters import Sent
from ..sources.openapi.spec import OpenApiSpec
from .options import run

__all__ = ["NewApi", "entry_of", "write_api"]

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING: Final = Picks(exclude=("*",))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApi:
    """What the command line says of an API."""

    spec: str
    """As it was typed."""
    name: str = ""
    base_url: str = ""
    auth_env: str = ""
    """The variable that holds the credential."""
    include: Sequence[str] = ()
    headers: Mapping[str, str]
    allow_private: bool = False


def entry_of(new: NewApi) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry that the file gets, after a look at the description.

    Where the API is gets written down: a description that changes later does not move it. Raises `UsageError` for a
    description that cannot be read, or that leaves something open.
    """
    where = new.spec if is_url(new.spec) else str(Path(placed(new.spec)).absolute())
    guard = Guard.of([where] if is_url(where) and new.allow_private else ())
    document = parse(run(lambda: fetch(where, guard)), where)
    api = convert(document, _NOTHING, Sent())
    value: dict[str, Any] = {"spec": where, "base_url": new.base_url or base_url_of(api.servers, where)}
    if new.auth_env:
        value["auth"] = _auth(new.auth_env, api.schemes)
    if new.headers:
        value["headers"] = dict(new.headers)
    if new.include:
        value["include"] = list(new.include)
    if new.allow_private:
        value["allow_private"] = True
    return new.name or _name(api.title, where), value


def write_api(
    target: Path, name: str, value: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[OpenApiSpec, bytes]:
    """Write the entry into `target`; return what it configures and what the file says now. Raises `ConfigError`."""
    entry = Entry(name=name, value=value, key="sources.openapi", base=str(target.parent))
    return api_spec(entry, environ), add_api(target, name, value)


def _auth(variable: str, schemes: Mapping[str, Any]) -> dict[str, str]:
    """The credential as the description's first usable scheme wants it; a bearer token where it names none."""
    if not _VARIABLE.fullmatch(variable):
        raise UsageError("--auth-env takes the name of a variable that holds the secret, not the secret itself")
    value = f"${{{variable}}}"
    for scheme in map(mapping, schemes.values()):
        if scheme.get("type") == "apiKey":
            return {"type": "api_key", "value": value, "name": str(scheme.get("name")), "in": str(scheme.get("in"))}
        if scheme.get("type") == "http" and str(scheme.get("scheme")).lower() == "basic":
            raise UsageError(
                "this API wants a user name and a password: add it without --auth-env, "
                "then write `auth: {type: basic, username: …, password: ${…}}` into its entry"
            )
        if scheme.get("type") in ("http", "oauth2", "openIdConnect"):
            break
    return {"type": "bearer", "token": value}


def _name(title: str, where: str) -> str:
    """A short name: the description's title, else the host or the file."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\b(?:rest|api|openapi|v\d+)\b", " ", title.lower()))
    plain = "_".join(words[:3])
    other = (urlsplit(where).hostname or "") if is_url(where) else Path(where).stem
    return plain or re.sub(r"[^a-z0-9]+", "_", other.lower()).strip("_") or "api"
