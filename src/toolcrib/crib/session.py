"""A conversation, as the library's user and every way in hold it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol, Self, Unpack

import anyio

from ..core.call import Call
from ..core.result import ToolResult
from ..core.session import SessionState
from ..core.tool import Tool
from ..disclosure.base import Scene, View
from .options import CallOptions, InteractionOptions, check_options

__all__ = ["Door", "Session"]


class Door(Protocol):
    """What a session needs of its crib."""

    def next_call_id(self) -> str:
        """Return an id that no other call of this crib has."""
        ...

    def view(self, state: SessionState) -> View:
        """Return what the session's model sees now."""
        ...

    def listing(self, state: SessionState) -> bytes:
        """Return the shown definitions as a JSON array."""
        ...

    async def call(self, call: Call) -> ToolResult:
        """Run one call."""
        ...

    def begin(self, state: SessionState, options: InteractionOptions) -> None:
        """Begin the next interaction of a session."""
        ...

    def scene(self, state: SessionState) -> Scene:
        """Return the catalog as the session may know of it."""
        ...


class Session:
    """One conversation: what its model sees, and the way to call it. Holds nothing that must be closed."""

    def __init__(self, door: Door, state: SessionState) -> None:
        """Made by `Toolcrib.session`."""
        self._door = door
        self._blank = Call(id="", name="", arguments=None, session=state)
        self.state = state

    async def __aenter__(self) -> Self:
        """Return the session."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Forget the answers that were remembered for this session."""
        self.state.remembered.clear()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the model sees now, in stable order."""
        return self._door.view(self.state).tools

    @property
    def instructions(self) -> str:
        """The prompt part that explains the profile."""
        return self._door.view(self.state).instructions

    @property
    def scene(self) -> Scene:
        """The profile, the catalog, and what the one calls the tools of the other."""
        return self._door.scene(self.state)

    @property
    def listing(self) -> bytes:
        """The MCP definitions of `tools` as a JSON array, made once for a catalog version."""
        return self._door.listing(self.state)

    def begin(self, **options: Unpack[InteractionOptions]) -> None:
        """Begin the next interaction: one request of the user, until its answer.

        What was loaded for the last one is gone where the profile says so, and what that one was given (`tools`,
        `intent` …) holds no longer. Raises `UsageError` for an option that does not exist, and for a name in `tools`
        that no tool in scope has.
        """
        check_options(options, InteractionOptions)
        self._door.begin(self.state, options)

    async def call(self, name: str, arguments: Any = None, **options: Unpack[CallOptions]) -> ToolResult:
        """Run one tool or verb. Whatever happens is in the result; raises only when the caller is cancelled.

        Raises `UsageError` for an option that does not exist.
        """
        check_options(options, CallOptions)
        call = self._blank.evolve(
            id=self._door.next_call_id(), name=name, arguments=arguments, started=time.monotonic(), **options
        )
        return await self._door.call(call)

    async def call_many(self, calls: Sequence[tuple[str, Any]], **options: Unpack[CallOptions]) -> list[ToolResult]:
        """Run several calls at once; one result a call, in the order of the calls.

        Reads run concurrently, calls that write the same resource take turns, and one that fails leaves the others
        alone.
        """
        results: dict[int, ToolResult] = {}
        places = anyio.CapacityLimiter(self.scene.profile.parallel or math.inf)

        async def one(index: int, name: str, arguments: Any) -> None:
            async with places:
                results[index] = await self.call(name, arguments, **options)

        async with anyio.create_task_group() as group:
            for index, (name, arguments) in enumerate(calls):
                group.start_soon(one, index, name, arguments)
        return [results[index] for index in range(len(calls))]
