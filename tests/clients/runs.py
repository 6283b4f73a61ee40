"""What all clients did over all transports: each run once, in the background, three clients at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import BoundedSemaphore
from typing import Final

from clients.driven import DRIVEN, Driven
from clients.models import Conversation
from clients.script import ATTENDED, UNATTENDED, Said
from clients.typed import TYPED, Typed
from clients.world import World, world

Client = Driven | Typed
Do = Callable[[World], Said]

CLIENTS: Final[Mapping[str, Client]] = {client.name: client for client in (*DRIVEN, *TYPED)}
_AT_ONCE: Final = 3


class Runs:
    """What came of every client's conversations; whoever asks for one waits for it."""

    def __init__(self, worlds: Mapping[str, World]) -> None:
        self.worlds = worlds
        self._turns = BoundedSemaphore(_AT_ONCE)
        self._ready: dict[tuple[str, str], Future[None]] = {}
        self._said: dict[tuple[str, str, str], Future[Said]] = {}

    def begin(self, name: str, transport: str, thread: Executor) -> None:
        """Have everything that is asked of a client done in `thread`, one thing after the other as its user would."""
        client, there = CLIENTS[name], self.worlds[transport]
        parts: dict[str, Do] = {"tour": client.tour, UNATTENDED: client.unattended}
        if client.asks:
            parts[ATTENDED] = client.attended
        self._ready[name, transport] = thread.submit(client.configure, there)
        for part, do in parts.items():
            self._said[name, transport, part] = thread.submit(self._take_turns, do, there)

    def said(self, name: str, transport: str, part: str) -> Said:
        """Return what came of one conversation; raises what its client raised."""
        self._ready[name, transport].result()
        return self._said[name, transport, part].result()

    def _take_turns(self, do: Do, there: World) -> Said:
        with self._turns:
            return do(there)


@contextmanager
def all_runs(folder: Path, wanted: Iterable[tuple[str, str]]) -> Generator[Runs]:
    """Run the clients over the transports of `wanted`, pairs of their names, until the block ends."""
    pairs = list(dict.fromkeys(wanted))
    with ExitStack() as stack:
        worlds = {
            transport: stack.enter_context(world(transport, folder / transport, _chats, _codex))
            for transport in dict.fromkeys(transport for _, transport in pairs)
        }
        runs = Runs(worlds)
        for name, transport in pairs:
            thread = ThreadPoolExecutor(1)
            stack.callback(thread.shutdown, cancel_futures=True)
            runs.begin(name, transport, thread)
        yield runs


def _chats(transport: str, artifact: str) -> list[Conversation]:
    return [part for client in DRIVEN if client.name != "codex" for part in client.conversations(transport, artifact)]


def _codex(transport: str, artifact: str) -> list[Conversation]:
    return [part for client in DRIVEN if client.name == "codex" for part in client.conversations(transport, artifact)]
