"""What the commands about clients share: choosing clients, and the servers found in them under names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..config.clients import CLIENTS, Client, FoundServer
from ..core.json import canonical
from ..errors import UsageError

__all__ = ["Candidate", "candidates", "chosen_clients"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One server that may be taken over, under the name that it will have here."""

    name: str
    found: FoundServer
    also: tuple[str, ...] = ()
    """Other places that configure exactly the same."""
    known: bool = False
    """It is in our configuration already."""

    @property
    def trusted(self) -> bool:
        """Whether the user wrote the file; a project's file may be anybody's."""
        return self.found.scope != "project"

    @property
    def origin(self) -> str:
        """Where it was found, for people."""
        places = [f"{self.found.client.title} ({self.found.scope})", *self.also]
        return ", ".join(dict.fromkeys(places))


def chosen_clients(names: Iterable[str] | None) -> list[Client]:
    """Return the clients of these names, all for none; raises `UsageError` with those there are."""
    unknown = [name for name in names or () if name not in CLIENTS]
    if unknown:
        raise UsageError(f"there is no client {unknown[0]!r}; there are {', '.join(CLIENTS)}")
    return [CLIENTS[name] for name in names] if names else list(CLIENTS.values())


def candidates(found: Iterable[FoundServer], known: Mapping[str, Any]) -> list[Candidate]:
    """Give each found server a name of its own; the same configuration in several places is one server."""
    taken: dict[str, bytes] = {name: canonical(value) for name, value in known.items()}
    rows: dict[bytes, Candidate] = {}
    for server in found:
        value = canonical(server.value)
        if value in rows and rows[value].found.name == server.name:
            row = rows[value]
            rows[value] = replace(row, also=(*row.also, f"{server.client.title} ({server.scope})"))
            continue
        name = _free(server, value, taken)
        rows[value] = Candidate(name=name, found=server, known=taken.get(name) == value)
        taken[name] = value
    return list(rows.values())


def _free(server: FoundServer, value: bytes, taken: Mapping[str, bytes]) -> str:
    """The name under which it is known already, else its own; with the client's, and a number, when that is taken."""
    names = [server.name, f"{server.name}-{server.client.name}"]
    names += [f"{server.name}-{server.client.name}-{number}" for number in range(2, 100)]
    known = (name for name in names if taken.get(name) == value)
    return next(known, None) or next(name for name in names if name not in taken)
