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

__all__ = ["Shells", "find"]

_NEED: Final = "shell"


def find(settings: Settings) -> tuple[Sandbox | None, str]:
    """Return the sandbox that a configuration gives on this machine, and why it is not bubblewrap. For a thread."""
    opening = import_module("toolcrib.sandbox.open")  # only the systems that have sandboxes have what it needs
    said = settings.shell
    bounds = Bounds(memory=said.memory_mb << 20, file=said.file_mb << 20, processes=said.processes)
    return opening.find_sandbox(settings.environment, unsandboxed=said.unsandboxed, network=said.network, bounds=bounds)


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
        self.sandbox, _ = find(self._settings)
