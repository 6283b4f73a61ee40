"""Permission prompt tool of Claude Code: `claude --permission-prompt-tool mcp__toolcrib__approve`.

Connections with `toolcrib serve --desk` get it beside their other tools. It grants nothing itself: it asks the gate and
returns its decision in Claude Code's format. It is not a tool of the catalog, so profiles, searches and meta-tools do
not find it, and it needs no approval.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, cast

from ..core.context import Peer
from ..core.json import dumps
from ..core.result import ToolResult
from ..core.tool import Annotations, Tool
from ..crib import Session, Toolcrib
from ..disclosure.meta_tools import RESERVED
from ..errors import ToolFailure
from ..mcp.server.calls import ToolCall
from ..server.backend import CribBackend, CribSession
from .gate import ClaudeUse, Ruling, gate_of

APPROVE: Final = "approve"
"""The tool's name; Claude Code puts `mcp__toolcrib__` before it."""
NOT_FOR_MODELS: Final = "Claude Code itself asks with this tool; you have no use for it"
_OURS: Final = "mcp__toolcrib__"
"""Claude Code's names for the tools of this server: they are decided on when they are called."""
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


@contextmanager
def asked_from(cwd: str) -> Generator[None]:
    """Set the client's working folder, for all tasks started inside."""
    token = _cwd.set(cwd)
    try:
        yield
    finally:
        _cwd.reset(token)


def is_ours(tool: str) -> bool:
    """Whether the name is one that Claude Code gives to tools of Toolcrib, or of a server with such a name."""
    return tool.startswith(_OURS)


class WithApprove(CribBackend):
    """Backend whose every session also has the tool."""

    def find_tool(self, name: str, /) -> Tool | None:
        """Return the tool of that name."""
        return _TOOL if name == APPROVE else super().find_tool(name)

    def serve(self, session: Session) -> CribSession:
        """Return the session with the tool."""
        return _ApprovingSession(self.crib, session)


class _ApprovingSession(CribSession):
    """A session and the tool. The answers that are to hold for a while hold for this session."""

    def __init__(self, crib: Toolcrib, session: Session) -> None:
        super().__init__(session)
        self._crib = crib
        self._mode = session.mode
        self._cwd = _cwd.get()

    @property
    def listing(self) -> bytes:
        """Return the present definitions with this tool last.

        A tool of the same name stays listed, but is not called.
        """
        shown = self.session.tools
        if any(tool.name == APPROVE for tool in shown):
            return self.session.listing
        return b"%b%b%b]" % (self.session.listing[:-1], b"," if shown else b"", _DEFINITION)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools shown now, in the order of `listing`."""
        shown = self.session.tools
        return shown if any(tool.name == APPROVE for tool in shown) else (*shown, _TOOL)

    async def call(self, call: ToolCall, peer: Peer, resume: Mapping[str, Any] | None) -> ToolResult:
        """Ask the gate, or run one call through the pipeline."""
        if (call.method, call.name) != ("tools/call", APPROVE):
            return await super().call(call, peer, resume)
        try:
            tool, given = _asked(call.arguments)
        except ToolFailure as failure:
            return ToolResult.of_failure(failure)
        if tool == f"{_OURS}{APPROVE}":
            return _answer({"behavior": "deny", "message": NOT_FOR_MODELS})
        gate, cwd = gate_of(self._crib), Path(self._cwd or Path.cwd())
        if is_ours(tool) and self._has(tool.removeprefix(_OURS)) and not gate.has_namesake(cwd):
            return _answer({"behavior": "allow", "updatedInput": given})
        use = ClaudeUse(
            tool=tool,
            arguments=given,
            conversation=self.session.state.key,
            cwd=cwd,
            mode=self._mode,
            principal=self.session.state.principal,
        )
        return _answer(_words(await gate.decide(use)))

    def _has(self, name: str) -> bool:
        """Whether this server has the tool: another one, named `toolcrib_x`, has names that begin as ours do."""
        is_shown = name in RESERVED or any(tool.name == name for tool in self.tools)
        return is_shown or self.session.visible.find(name) is not None


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


def _answer(answer: Mapping[str, Any]) -> ToolResult:
    return ToolResult.of_text(dumps(answer).decode())
