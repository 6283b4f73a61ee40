"""The sandbox that tools run commands in, and which sessions have it.

It is looked for in a thread while the sources are opened, once for a process: a trial takes some 12 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, Final, cast

from anyio import to_thread
from anyio.abc import SocketListener

from ..config import Settings
from ..core.sandbox import Reach, Sandbox
from ..core.session import UNSANDBOXED, SessionState
from ..sandbox.bubblewrap import Bounds

__all__ = ["Shells", "find"]

_NEED: Final = "shell"
_SERVER: Final = "language_server"


def find(settings: Settings) -> tuple[Sandbox | None, str]:
    """Return the sandbox that a configuration gives on this machine, and why it is not bubblewrap. For a thread."""
    from ..sandbox.detection import find_sandbox  # needs POSIX

    shell = settings.shell
    bounds = Bounds(memory=shell.memory_mb << 20, file=shell.file_mb << 20, processes=shell.processes)
    named = Reach(hosts=shell.hosts, private=shell.private_hosts)
    return find_sandbox(
        settings.environment,
        unsandboxed=shell.unsandboxed,
        network=shell.network is True or (named or False),
        outlet=_LazyOutlet(),
        bounds=bounds,
    )


class _LazyOutlet:
    """The proxy of `net`. It is loaded with the first command that has a way out: most cribs have none."""

    async def serve(self, listener: SocketListener, reach: Reach, refused: Callable[[str], None]) -> None:
        """See `core.sandbox.Outlet`."""
        from ..net.proxy import Proxy  # slow to load: few cribs have sandboxes with egress

        await Proxy().serve(listener, reach, refused)


class Shells:
    """The sandbox of one crib; there is none before it was looked for."""

    def __init__(self, settings: Settings) -> None:
        """Look for nothing yet."""
        self._settings = settings
        self._search: Thread | None = None
        self.sandbox: Sandbox | None = None

    def seek(self) -> None:
        """Begin to look, where there are tools that would use it."""
        if self._settings.sources.builtins:
            self._search = Thread(target=self._find, name="toolcrib-sandbox", daemon=True)
            self._search.start()

    async def ready(self) -> frozenset[str]:
        """Return what tools need that is there, once it is known."""
        if self._search is not None:
            await to_thread.run_sync(self._search.join)
        return self._provided()

    def arrange(self, state: SessionState) -> None:
        """Give a session what there is."""
        is_apart = self.sandbox is None or self.sandbox.kind != "none"
        state.scope.provided |= self._provided() if is_apart else {*self._provided(), UNSANDBOXED}

    def _provided(self) -> frozenset[str]:
        """Return what tools need that is there: language servers run in the sandbox, too."""
        if self.sandbox is None:
            return frozenset()
        return frozenset({_NEED, _SERVER} if _has_servers(self._settings.tools.get("lsp")) else {_NEED})

    def _find(self) -> None:
        self.sandbox, _ = find(self._settings)


def _has_servers(config: Any) -> bool:
    """Whether the configuration names a language server, under `tools.lsp`."""
    return isinstance(config, Mapping) and bool(cast("Mapping[str, Any]", config).get("servers"))
