"""The sandbox that tools run commands in, and which sessions have it.

It is looked for in a thread while the sources are opened, once for a process: a trial takes some 12 ms.
"""

from __future__ import annotations

from importlib import import_module
from threading import Thread
from typing import Final

from anyio import to_thread

from ..config import Settings
from ..core.sandbox import Sandbox
from ..core.session import UNSANDBOXED, SessionState
from ..sandbox.bubblewrap import Bounds

__all__ = ["Shells", "bounds_of"]

_NEED: Final = "shell"


def bounds_of(settings: Settings) -> Bounds:
    """Return how much a command may take by the configuration."""
    said = settings.shell
    return Bounds(memory=said.memory_mb << 20, file=said.file_mb << 20, processes=said.processes)


class Shells:
    """The sandbox of one crib; there is none before it was looked for."""

    def __init__(self, settings: Settings) -> None:
        """Look for nothing yet."""
        self._settings = settings
        self._search: Thread | None = None
        self.sandbox: Sandbox | None = None

    def seek(self) -> None:
        """Begin to look, where there are tools that would use it."""
        if self._settings.builtins:
            self._search = Thread(target=self._find, name="toolcrib-sandbox", daemon=True)
            self._search.start()

    async def ready(self) -> frozenset[str]:
        """Return what tools need that is there, once it is known."""
        if self._search is not None:
            await to_thread.run_sync(self._search.join)
        return frozenset({_NEED} if self.sandbox is not None else ())

    def arrange(self, state: SessionState) -> None:
        """Give a session what there is."""
        if self.sandbox is not None:
            state.provided |= {_NEED} if self.sandbox.kind != "none" else {_NEED, UNSANDBOXED}

    def _find(self) -> None:
        opening = import_module("toolcrib.sandbox.open")  # only the systems that have sandboxes have what it needs
        said = self._settings.shell
        self.sandbox, _ = opening.find_sandbox(
            self._settings.environment,
            unsandboxed=said.unsandboxed,
            network=said.network,
            bounds=bounds_of(self._settings),
        )
