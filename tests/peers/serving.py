"""An ASGI application of a peer on a loopback socket, in the process and event loop of the test."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    """Ends without the waits of uvicorn, which sleeps 0.1 s at each stop and between two looks at what still runs."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        if running := set(self.server_state.tasks):
            _, late = await asyncio.wait(running, timeout=self.config.timeout_graceful_shutdown)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1)
        await asyncio.sleep(0)  # the transports of closed connections end in the next round of the loop
        await self.lifespan.shutdown()


def tcp_socket() -> socket.socket:
    """Return a socket that names its protocol: only then asyncio switches Nagle's algorithm off for connections.

    With it, each answer in two parts waits 40 ms for the client's acknowledgement.
    """
    return socket.socket(proto=socket.IPPROTO_TCP)


@asynccontextmanager
async def serving(
    application: Any, *, listening: socket.socket | None = None, lifespan: bool = True, grace: int = 1
) -> AsyncGenerator[str]:
    """Serve until the block ends; yields the origin. Requests that still run have `grace` seconds to end."""
    config = uvicorn.Config(
        application,
        lifespan="on" if lifespan else "off",
        log_config=None,
        ws="none",
        timeout_graceful_shutdown=grace,
    )
    config.load()
    with listening or tcp_socket() as bound:
        if listening is None:
            bound.bind(("127.0.0.1", 0))
        server = _Server(config)
        server.lifespan = config.lifespan_class(config)
        # Started and stopped by hand: `serve` takes the process's signals.
        await server.startup(sockets=[bound])
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            await server.shutdown(sockets=[bound])
