"""The logins of a crib's servers: kept in the user's data directory, and masked wherever they turn up."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..config.directories import Directories
from ..mcp.auth.access import Access
from ..mcp.auth.login_store import FileLogins, Logins, MemoryLogins, system_keyring
from ..mcp.client.spec import ServerSpec
from ..net.oauth.flow import Person

__all__ = ["FOLDER", "ServerLogins", "logins_in"]

FOLDER = "logins"
"""In the data directory."""


def logins_in(home: Directories | None) -> Logins:
    """Return where logins are kept; without a home they end with the process."""
    return FileLogins(home.data / FOLDER, system_keyring) if home is not None else MemoryLogins()


class ServerLogins:
    """Makes what lets us into each server. One for a crib."""

    def __init__(
        self, home: Directories | None, learn: Callable[[Iterable[str]], None], person: Person | None = None
    ) -> None:
        """`learn` is told every secret that is got; `person` can be asked to log in, None asks nobody."""
        self._logins = logins_in(home)
        self._learn = learn
        self._person = person

    def access(self, spec: ServerSpec) -> Access | None:
        """Return what lets us into the server; None for one that has no logins."""
        if spec.oauth is None or spec.transport == "stdio":
            return None
        return Access(spec.name, spec.url, spec.oauth, self._logins, person=self._person, learn=self._learn)
