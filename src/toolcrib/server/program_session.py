"""Session of a program in the sandbox: built-in tools, served over MCP on a Unix socket.

The socket lies in a folder of its own that only the user can enter, and only the sandbox of the program is given. There
a relay (`sandbox.inside.connect`) joins it to the standard input and output of the MCP server that the program starts.

    program ── starts as its MCP server ──> connect.py │ socket ──> `_accept` ──> `converse` ──> the one session
                              inside the sandbox       │        this process
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec.structs import replace

from ..agents import program_session, tell_parent
from ..core.context import Context, Peer
from ..core.result import ToolResult
from ..core.services.host import ProgramRequest, ServedTools
from ..core.session import BUILT_IN
from ..core.tool import Tool
from ..crib import Session
from ..crib.assembly import Parts
from ..mcp.server.backend import SessionRequest
from ..mcp.server.calls import ToolCall
from ..mcp.server.service import Service
from .backend import CribSession
from .stdio import Link, converse
from .tasks import JobSessionTasks, JobTasks

_CONNECTIONS: Final = 8
"""At a time. A client opens one; one that restarts its servers opens the next before the last has ended."""
_PATH_BYTES: Final = 80
"""Of the folder for temporary files: the address of a socket has 108 at most."""


@asynccontextmanager
async def serve_program(parts: Parts, context: Context, request: ProgramRequest) -> AsyncGenerator[ServedTools | None]:
    """Serve the session that a program asks for; the target of an entry point.

    None without Unix sockets, for a caller's session that has ended or has none of these tools, and for one that has
    read what strangers wrote while commands have a network: they could carry data out without a question.
    """
    state = parts.session_table.find(context.principal, context.session_key)
    if sys.platform == "win32" or state is None:
        yield None
        return
    parent = Session(parts, state)
    names = frozenset(tool.name for tool in parent.visible.offered() if _is_asked_for(tool, request))
    if not names or (_is_tainted(context, parent) and _has_network(parts, parent)):
        yield None
        return
    from ..sandbox.egress import INSIDE, python  # needs POSIX

    connector = INSIDE[0] / "connect.py"
    async with program_session(parent, names, request.folder, request.mode) as child:
        backend = _OneSession(parts, child)
        try:
            with _listening() as (listener, place):
                async with Service(backend, profile=child.state.profile, mode=child.mode) as service:
                    service.spawn(partial(_accept, service, listener))
                    yield ServedTools(
                        session=child.state.key,
                        names=tuple(tool.name for tool in child.tools),
                        command=(*python(), str(connector), str(place)),
                        readable=(connector, place.parent),
                    )
        finally:
            tell_parent(parent, child)


def _is_tainted(context: Context, parent: Session) -> bool:
    """Whether the session of the call is tainted, or the call itself has read what will taint it at its end."""
    return bool(parent.state.taint.cause or (context.stored_taint is not None and context.stored_taint.read))


def _has_network(parts: Parts, parent: Session) -> bool:
    sandbox = parts.host_services.sandbox(parent.state.principal, parent.state.key)
    return sandbox is None or bool(sandbox.network)


def _is_asked_for(tool: Tool, request: ProgramRequest) -> bool:
    is_read = tool.kind == "read" and tool.category in request.read_only
    return tool.source in BUILT_IN and (is_read or tool.category in request.categories)


@contextmanager
def _listening() -> Generator[tuple[socket.socket, Path]]:
    """Give a listening socket and its path; both are gone afterwards, with the folder."""
    parent = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(  # mode 0700
        prefix="toolcrib-mcp-", dir=parent if len(os.fsencode(parent)) <= _PATH_BYTES else "/tmp"
    ) as folder:
        place = Path(folder) / "mcp"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.setblocking(False)
            listener.bind(str(place))
            listener.listen(_CONNECTIONS)
            yield listener, place


async def _accept(service: Service, listener: socket.socket) -> None:
    places = anyio.Semaphore(_CONNECTIONS)
    while True:
        await places.acquire()  # a further connection waits until one ends
        service.spawn(partial(_serve, service, Link(await _accepted(listener)), places.release))


async def _accepted(listener: socket.socket) -> socket.socket:
    while True:
        try:
            return listener.accept()[0]
        except BlockingIOError:
            await anyio.wait_readable(listener)
        except ConnectionError:
            continue


async def _serve(service: Service, link: Link, ended: Callable[[], None]) -> None:
    try:
        async with link:
            with contextlib.suppress(ConnectionError):
                await converse(service, link)
    finally:
        ended()


class _ProgramSession(CribSession):
    """The server's view of the session of a program: each of its calls ends with its answer."""

    async def call(self, call: ToolCall, peer: Peer, resume: Mapping[str, Any] | None) -> ToolResult:
        """Run one call; it becomes no job, which would outlive the program."""
        return await super().call(replace(call, takes_task=False, background=False), peer, resume)


class _OneSession:
    """Implements `mcp.server.backend.Backend`: every connection has the one session."""

    def __init__(self, parts: Parts, session: Session) -> None:
        self._parts = parts
        self._session = session
        self._served = _ProgramSession(session)

    @property
    def is_connecting(self) -> bool:
        """Built-in tools are there from the start."""
        return False

    def find_tool(self, name: str, /) -> Tool | None:
        """Return the tool of that name."""
        return self._parts.tools.catalog.get(name)

    def open_session(self, wanted: SessionRequest, /) -> CribSession:
        """Return the one session: what the client asks for has no effect."""
        return self._served

    def on_change(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call `callback` after every change of the catalog; return the unsubscribe function."""
        return self._parts.tools.on_change(lambda _: callback())

    async def failing(self) -> Mapping[str, str]:
        """Return nothing: no prober asks here."""
        return {}

    async def wait_ready(self, seconds: float, /) -> None:
        """Return at once."""

    def session_tasks(self, principal: str, notify: Callable[[bytes], object], /) -> JobSessionTasks:
        """Return no tasks: the jobs of the principal are not the program's."""
        return JobSessionTasks(self._parts.jobs, self._session.state.key, notify)

    def stateless_tasks(self, principal: str, stamp: Mapping[str, Any], /) -> JobTasks:
        """Return no tasks, as above."""
        return JobTasks(self._parts.jobs, self._session.state.key, stamp)
