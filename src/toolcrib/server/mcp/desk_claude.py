"""The tool by which Claude Code asks whether a call may run: `claude --permission-prompt-tool mcp__toolcrib__approve`.

A connection that says so (`toolcrib serve --desk`) is shown it beside its other tools. It gives no right to anything
here: it asks the desk and returns what the desk says, in Claude Code's words. It is not a tool of the catalog, so no
profile, search or verb finds it, and it is not asked about itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Protocol, Unpack, cast

from ...core.events import CatalogChanged, SourceState
from ...core.json import dumps
from ...core.result import ToolResult
from ...core.session import LOCAL
from ...core.tool import Annotations, Tool
from ...crib import CallOptions, SessionOptions
from ...crib.desk import ClaudeDesk, ClaudeUse, Ruling
from ...errors import ToolFailure
from ...jobs.job import Jobs
from ..views import CribView, Lookup, ResourcesView, SessionView

__all__ = ["APPROVE", "NOT_FOR_MODELS", "DeskOfClaude", "WithApprove", "asked_from", "is_ours"]

APPROVE: Final = "approve"
"""The tool's name; Claude Code puts `mcp__toolcrib__` before it."""
NOT_FOR_MODELS: Final = "Claude Code itself asks with this tool; you have no use for it"
_OURS: Final = "mcp__toolcrib__"
"""How Claude Code calls the tools of the server that asks: they are decided on when they are called."""
_TOOL: Final = Tool(
    name=APPROVE,
    source="claude@desk",
    local_name=APPROVE,
    title="Ask whether a tool may run",
    description="For Claude Code itself (--permission-prompt-tool): asks whether one of its tools may run.",
    input_schema={
        "type": "object",
        "properties": {
            "tool_name": {"type": "string", "minLength": 1},
            "input": {"type": "object"},
            "tool_use_id": {"type": "string"},
        },
        "required": ["tool_name", "input"],
    },
    annotations=Annotations(read_only=True, destructive=False, open_world=False),
)
_DEFINITION: Final = dumps(_TOOL.definition)

_cwd: ContextVar[str] = ContextVar("asked_from", default="")
"""The folder in which the client of this connection works; empty is our own."""


class DeskOfClaude(CribView, Protocol):
    """A crib that can be the desk of Claude Code."""

    def claude_desk(self) -> ClaudeDesk:
        """Return the desk."""
        ...


@contextmanager
def asked_from(cwd: str) -> Generator[None]:
    """Say, for all that this task starts, in which folder the client works."""
    token = _cwd.set(cwd)
    try:
        yield
    finally:
        _cwd.reset(token)


def is_ours(tool: str) -> bool:
    """Whether Claude Code means a tool of Toolcrib itself."""
    return tool.startswith(_OURS)


class WithApprove:
    """A crib whose every session also has the tool."""

    def __init__(self, crib: DeskOfClaude) -> None:
        """`crib` is open and stays so."""
        self._crib = crib

    @property
    def catalog(self) -> Lookup:
        """The current catalog, and the tool."""
        return _WithTool(self._crib.catalog)

    @property
    def jobs(self) -> Jobs:
        """What runs in the background."""
        return self._crib.jobs

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """How the sources are doing."""
        return self._crib.sources

    def session(self, **options: Unpack[SessionOptions]) -> SessionView:
        """Open a conversation; raises `UsageError` for a profile or mode that does not exist."""
        return _ApprovingSession(self._crib, self._crib.session(**options), options)

    def on_change(self, callback: Callable[[CatalogChanged], None], /) -> Callable[[], None]:
        """Hear of every new catalog; returns how to stop."""
        return self._crib.on_change(callback)

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work, with their reasons."""
        return await self._crib.failing()

    async def settled(self, seconds: float, /) -> None:
        """Return when every source has published or failed once, at the latest after `seconds`."""
        await self._crib.settled(seconds)


class _WithTool:
    def __init__(self, catalog: Lookup) -> None:
        self._catalog = catalog

    def get(self, name: str, /) -> Tool | None:
        return _TOOL if name == APPROVE else self._catalog.get(name)


class _ApprovingSession:
    """A session and the tool. The answers that are to hold for a while hold for this session."""

    def __init__(self, crib: DeskOfClaude, session: SessionView, options: SessionOptions) -> None:
        self._crib = crib
        self._session = session
        self._mode = options.get("mode", "")
        self._principal = options.get("principal") or LOCAL
        self._conversation = options.get("key") or secrets.token_hex(8)
        self._cwd = _cwd.get()

    @property
    def listing(self) -> bytes:
        """The definitions shown now, with the tool last; one of this name stays shown, and is not what is called."""
        shown = self._session.tools
        if any(tool.name == APPROVE for tool in shown):
            return self._session.listing
        return b"%b%b%b]" % (self._session.listing[:-1], b"," if shown else b"", _DEFINITION)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools shown now, in the order of `listing`."""
        shown = self._session.tools
        return shown if any(tool.name == APPROVE for tool in shown) else (*shown, _TOOL)

    @property
    def shelf(self) -> ResourcesView:
        """What servers offer beside tools."""
        return self._session.shelf

    @property
    def instructions(self) -> str:
        """The profile's advice to the model."""
        return self._session.instructions

    @property
    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """How the MCP servers introduce themselves whose tools are in scope, by source."""
        return self._session.servers

    async def call(self, name: str, arguments: Mapping[str, Any], **options: Unpack[CallOptions]) -> ToolResult:
        """Ask the desk, or run one call through the pipeline."""
        if name != APPROVE:
            return await self._session.call(name, arguments, **options)
        try:
            tool, given = _asked(arguments)
        except ToolFailure as failure:
            return ToolResult.of_failure(failure)
        if tool == f"{_OURS}{APPROVE}":
            return _told({"behavior": "deny", "message": NOT_FOR_MODELS})
        if is_ours(tool):
            return _told({"behavior": "allow", "updatedInput": given})
        use = ClaudeUse(
            tool=tool,
            arguments=given,
            conversation=self._conversation,
            cwd=Path(self._cwd or Path.cwd()),
            mode=self._mode,
            principal=self._principal,
        )
        return _told(_words(await self._crib.claude_desk().decide(use)))


def _asked(arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tool and its arguments. Raises `ToolFailure("invalid_arguments")`."""
    tool, given = arguments.get("tool_name"), arguments.get("input")
    if not isinstance(tool, str) or not tool or not isinstance(given, dict):
        raise ToolFailure(
            "invalid_arguments",
            f"{APPROVE} takes tool_name, a text, and input, an object",
            hint="Claude Code calls it by itself: start it with --permission-prompt-tool mcp__toolcrib__approve",
        )
    return tool, cast("dict[str, Any]", given)


def _words(ruling: Ruling) -> dict[str, Any]:
    """Return the answer as Claude Code reads it: it runs exactly the input that it is given back."""
    if ruling.is_allowed:
        return {"behavior": "allow", "updatedInput": ruling.arguments}
    return {"behavior": "deny", "message": ruling.message}


def _told(answer: Mapping[str, Any]) -> ToolResult:
    return ToolResult.of_text(dumps(answer).decode())
