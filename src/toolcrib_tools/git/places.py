"""Where a remote is, and what the operator has named for it: a token, files, hosts that are not public.

Everything is under `tools.git` in the configuration. What is named for one server is not there for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from toolcrib.plugin import Context, Reach, ToolFailure

__all__ = ["PRIVATE", "Place", "file_said", "place_at", "reach_of", "token_for"]

PRIVATE: Final = (
    "the operator names a server that is not at a public address in the config:"
    " tools: {git: {private_hosts: [HOST:PORT]}}"
)
_HOST: Final = r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])"
_URL: Final = re.compile(
    rf"(?P<scheme>https|ssh)://(?:[^@/\s]*@)?{_HOST}(?::(?P<port>[0-9]{{1,5}}))?/(?P<path>[^\x00-\x20]+)"
)
_SCP: Final = re.compile(rf"(?:[\w.-]+@)?{_HOST}:(?!//)(?P<path>[^\x00-\x20:]+)")
_SPECIAL: Final = frozenset("'\"%$\\")
"""In the name of a file these mean something to ssh."""
_PORTS: Final[Mapping[str, int]] = {"https": 443, "ssh": 22}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A repository on a server."""

    scheme: Literal["https", "ssh"]
    host: str
    """In lower case, an address of IPv6 in brackets."""
    port: int
    path: str
    """Without `.git`."""

    @property
    def name(self) -> str:
        """The server as people write it: with its port where that is not the usual one."""
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"


def place_at(url: str) -> Place | None:
    """Return the server of an address; None for what is none that can be connected to."""
    found = _URL.fullmatch(url) or (None if url.startswith(("/", "-", ".")) else _SCP.fullmatch(url))
    if found is None:
        return None
    said = found.groupdict()
    scheme: Literal["https", "ssh"] = "https" if said.get("scheme") == "https" else "ssh"
    port = int(said.get("port") or _PORTS[scheme])
    path = said["path"].strip("/").removesuffix(".git")
    return Place(scheme=scheme, host=said["host"].lower(), port=port, path=path)


def token_for(ctx: Context, place: Place) -> str:
    """Return the token that the operator named for a repository, for who owns it, or for its server; empty without one.

    What names most of the address counts: `github.com/acme/app`, `github.com/acme`, `github.com`.
    """
    said = _said(ctx).get("tokens")
    tokens = cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else dict[str, Any]()
    parts = [place.name, *place.path.split("/")]
    named = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((str(tokens[name]) for name in named if name in tokens), "")


def reach_of(ctx: Context, place: Place, names: Iterable[str] = ()) -> Reach:
    """Return the reach of a program that talks to one server, and to `names` of hosts that belong to it."""
    host = f"{place.host}:{place.port}"
    private = _said(ctx).get("private_hosts")
    listed = [str(name).lower() for name in cast("list[Any]", private)] if isinstance(private, list) else []
    if host in listed or place.host in listed:
        return Reach(private=(host,))
    if _is_address(place.host):
        raise ToolFailure("denied", f"{place.host} is an address: servers are reached by name", hint=PRIVATE)
    return Reach(hosts=(host, *names))


def file_said(ctx: Context, name: str) -> Path | None:
    """Return a file that the operator named. Raises `ToolFailure("unavailable")` when it is not there."""
    said = _said(ctx).get(name)
    if not isinstance(said, str) or not said:
        return None
    path = Path(said).expanduser()
    if not path.is_file() or _SPECIAL & set(str(path)):
        raise ToolFailure("unavailable", f"tools.git.{name} in the configuration names no file that can be used")
    return path


def _said(ctx: Context) -> Mapping[str, Any]:
    said = ctx.lent.setting("git")
    return cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else {}


def _is_address(host: str) -> bool:
    return host.startswith("[") or re.fullmatch(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", host) is not None
