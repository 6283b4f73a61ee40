"""The servers that a daemon has running, as sources of a crib that a command opens beside it to see what they list.

Such a crib has its own settings and its own event loop, in a thread. Its sources list the running server again, and
start no second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ..core.context import Context
from ..core.events import SourceState
from ..core.result import ToolResult
from ..core.server_features import NO_FEATURES
from ..core.tool import Tool
from ..crib import Toolcrib
from ..errors import ToolFailure
from ..mcp.client.spec import ServerSpec
from ..mcp.client.transport import LinkLost
from ..mcp.jsonrpc import RpcError
from ..sources.mcp.source import McpSource
from ..sources.source import Publish
from ..system.child_processes import clean_environment


class RunningServers:
    """The programs of a crib that are connected now. Made on the crib's event loop, used from any thread."""

    def __init__(self, crib: Toolcrib) -> None:
        """Take the servers of `crib` that are ready."""
        self._loop = asyncio.get_running_loop()
        self._environment = crib.settings.environment
        sources = crib.parts.inventory.sources.values()
        self._sources = {
            one.spec.key(): one for one in sources if isinstance(one, McpSource) and one.state.state == "ready"
        }

    def find(self, spec: ServerSpec, environment: Mapping[str, str]) -> RunningServer | None:
        """Return the server that `spec` would start with the variables of `environment`; None where none runs.

        A server whose files were confirmed is started anew: its files are compared then.
        """
        source = self._sources.get(spec.key())
        if source is None or spec.transport != "stdio" or spec.pinned is not None:
            return None
        ours, theirs = (clean_environment(one, spec.env) for one in (self._environment, environment))
        return RunningServer(source, self._loop) if ours == theirs else None


class RunningServer:
    """A running server as a source that lists it, and calls nothing. Implements `sources.source.Source`."""

    def __init__(self, source: McpSource, loop: asyncio.AbstractEventLoop) -> None:
        """`source` belongs to `loop`, which runs in another thread."""
        self._source = source
        self._loop = loop
        self._state = SourceState(source=source.name, kind="mcp", state="connecting")
        self._publish: Publish | None = None

    @property
    def name(self) -> str:
        """The configured name."""
        return self._source.name

    @property
    def state(self) -> SourceState:
        """`connecting` until the server has listed."""
        return self._state

    def files(self) -> list[str]:
        """Return the files and programs that decide what runs, as `McpSource.files` does."""
        return self._source.files()

    async def open(self, publish: Publish) -> None:
        """Wait with the listing until it is asked for (`ready`)."""
        self._publish = publish

    async def ready(self) -> None:
        """Let the server list its tools and publish them, once."""
        if self._state.state != "connecting" or self._publish is None:
            return
        try:
            listing = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._source.list_again(), self._loop))
        except (LinkLost, RpcError, ToolFailure) as error:
            self._state = replace(self._state, state="failed", detail=str(error), outage=str(error))
            return
        self._publish(replace(listing, features=NO_FEATURES))
        self._state = replace(self._state, state="ready", tools=len(listing.tools))

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Raise `ToolFailure`: this source lists."""
        raise ToolFailure("unavailable", f"server {self.name!r} was opened to be listed only")

    async def close(self) -> None:
        """Leave the server running."""
