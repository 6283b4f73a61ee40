"""Server features of MCP beside tools (resources, templates, prompts), and the protocol of a source that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import Struct

from .context import Context
from .result import ToolResult

WATCHED: Final = 1_000
"""Resources of one source that are watched at a time."""

ROLE = "io.toolcrib/role"
"""Key in the `_meta` of a content block of a prompt: its role."""
PROMPT_DESCRIPTION = "io.toolcrib/prompt-description"
"""Key in the `_meta` of the first message of a prompt: the description of the whole."""
EMPTY_ROLE = ""
"""The role of a block that only announces the next speaker; not a message of the prompt."""


class ServerFeatures(Struct, frozen=True, kw_only=True):
    """Resources and prompts of one source, or of all sources. Frozen; a change makes a new one."""

    resources: tuple[Mapping[str, Any], ...] = ()
    templates: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    reads: bool = False
    """Whether resources can be read at all: a server may serve some that it lists nowhere."""

    @property
    def is_empty(self) -> bool:
        """Whether there are neither resources nor prompts."""
        return not (self.reads or self.prompts)


NO_FEATURES: Final = ServerFeatures()


class FeatureReader(Protocol):
    """Reader of a source's resources and prompts, by the source's own names. Lives as long as the source."""

    on_update: Callable[[str], None]
    """Called with each watched resource that changed; the crib sets it."""

    @property
    def traits(self) -> tuple[str, ...]:
        """`Tool.traits` of everything that is read here."""
        ...

    async def read(self, uri: str, context: Context) -> ToolResult:
        """Read a resource: one `resource` block a content. Raises `ToolFailure`, by the deadline of `context`."""
        ...

    async def prompt(self, name: str, arguments: Mapping[str, str], context: Context) -> ToolResult:
        """Get a prompt: one block a message, with `ROLE` in its `_meta`. Raises `ToolFailure`."""
        ...

    async def complete(self, params: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the `completion` for an argument; empty where the source completes nothing. Raises `ToolFailure`."""
        ...

    async def watch(self, uri: str) -> None:
        """Subscribe to changes of the resource, until `unwatch`; without effect where the source cannot.

        Raises `ToolFailure("overloaded")` beyond `WATCHED`. A failed or cancelled call subscribes to nothing.
        """
        ...

    async def unwatch(self, uri: str) -> None:
        """Stop the notifications about this resource."""
        ...


@runtime_checkable
class WithSkills(Protocol):
    """A source of skills."""

    def skill_entries(self) -> tuple[Mapping[str, Any], ...]:
        """Return the entries for `skills/list` of the MCP skills extension."""
        ...


@runtime_checkable
class WithFeatures(Protocol):
    """A source that has resources or prompts."""

    @property
    def features(self) -> FeatureReader:
        """Reader of its resources and prompts."""
        ...
