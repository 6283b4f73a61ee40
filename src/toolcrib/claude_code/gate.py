"""Gate for Claude Code's own tools: decides whether a call may run. Claude Code runs it.

`Bash`, `Edit`, `WebFetch` and the client's other tools are ordinary tools here, of a catalog that models do not see. A
question is a call of one of them, through the pipeline: the rules and the mode decide, questions go to the approval
store and the webhook, and the record has a row of it. The body of such a tool only notes that the call was granted, and
with which arguments.

    decide: expect(call) ─> pipeline ─┬─ granted ─> _ClaudeTools.call notes the arguments ─> granted(call): allow
                                      └─ refused, unanswered, broken ─> nothing is noted: deny

Only a note allows: every failure on the way to the body is a deny.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from msgspec import Struct

from ..catalog.catalog import Catalog, digest_sum, version_of
from ..catalog.overlay import Overlay
from ..catalog.registry import Registry
from ..config.clients.connections import namesakes
from ..config.directories import Places
from ..core.bounded_mapping import BoundedMapping
from ..core.call import Call, Options
from ..core.context import Context
from ..core.events import SourceState
from ..core.json import canonical
from ..core.permission import Answer, AnswersLater, Question
from ..core.result import ToolResult
from ..core.session import LOCAL
from ..core.tool import Annotations, Tool
from ..crib.options import SessionOptions
from ..crib.plan_mode import end_planning
from ..crib.session import Session, SessionParts
from ..crib.toolcrib import Toolcrib
from ..errors import ToolFailure
from ..sources.source import Listing, Publish

CLAUDE: Final = "claude@desk"
"""The source of Claude Code's tools, and the instance whose sessions have them and nothing else."""
ORIGIN: Final = "claude"
"""The way in, as the record has it."""
_SESSIONS: Final = 1000
"""Conversations whose answers (`always`, `never` …) are remembered; the one unused longest goes first."""
_FOREIGN: Final = 1000
"""Tools of MCP servers that are known at the same time."""
_OF_SERVER: Final = "mcp__"
PLAN: Final = "ExitPlanMode"
"""Claude Code submits its plan with it."""
_UNANSWERED: Final = ("unanswered", "no_approver", "broken")
"""Reasons of a refusal without a person's answer."""

_GATES: Final[WeakKeyDictionary[Toolcrib, ClaudeCodeGate]] = WeakKeyDictionary()


class ClaudeUse(Struct, frozen=True, kw_only=True):
    """A tool that Claude Code is about to use."""

    tool: str
    """As Claude Code calls it: `Bash`, `mcp__server__tool`."""
    arguments: Mapping[str, Any]
    conversation: str
    """Scope of answers: the session of Claude Code, or the connection."""
    cwd: Path
    """The project: where the patterns of rules for files begin."""
    mode: str = ""
    """Instead of the configured one."""
    principal: str = LOCAL


class Ruling(Struct, frozen=True, kw_only=True):
    """Whether Claude Code may run it."""

    behavior: Literal["allow", "deny"]
    arguments: Mapping[str, Any]
    """The arguments that may run: other than the requested ones where the approver changed them."""
    rule: str = ""
    """The rule or mode that decided, or that required the question; the record has who answered."""
    message: str = ""
    """For the model, with a deny."""
    unanswered: bool = False
    """The refusal has no person behind it: no answer in time, or no approver available."""

    @property
    def is_allowed(self) -> bool:
        """Whether it may run."""
        return self.behavior == "allow"


class ClaudeCodeGate:
    """Decides for the Claude Codes of one crib; used from its event loop. Lives as long as the crib is open."""

    def __init__(self, parts: SessionParts, tools: _ClaudeTools) -> None:
        """Made by `gate_of`."""
        self._parts = parts
        self._tools = tools
        self._sessions = BoundedMapping[tuple[str, str], Session](_SESSIONS)
        self._left = BoundedMapping[tuple[str, bytes], None](_SESSIONS)
        """Uses that were handed back to Claude Code's own dialog, by conversation and content."""

    async def decide(self, use: ClaudeUse) -> Ruling:
        """Return whether Claude Code may run it; waits for an answer up to `approvals.timeout`.

        Never raises `ToolFailure`: any failure is a deny. Raises `UsageError` for a mode that does not exist.
        """
        session = self._session(use)
        self._tools.learn(use.tool)
        call = Call(
            id=self._parts.calls.next_id(),
            name=use.tool,
            arguments=dict(use.arguments),
            session=session.state,
            origin=ORIGIN,
            started=time.monotonic(),
            options=Options(raw=True),
        )
        self._tools.expect(call.id)
        try:
            result = await self._parts.calls.run(call)
        finally:
            granted = self._tools.granted(call.id)
        rule = str(result.meta.get("rule", ""))
        if result.error is not None or granted is None:
            return _denied(use, result, rule)
        if use.tool == PLAN:
            end_planning(session.state)
        return Ruling(behavior="allow", arguments=granted, rule=rule)

    def is_planning(self, use: ClaudeUse) -> bool:
        """Whether nothing runs here until the plan is approved. Raises `UsageError` as `decide` does."""
        return self._session(use).state.scope.planning

    def has_namesake(self, project: Path) -> bool:
        """Whether Claude Code has a server there, not ours, whose tools have names that begin like those of ours."""
        settings = self._parts.settings
        places = Places(directories=settings.directories, environ=settings.environment, project=project)
        return bool(namesakes(places))

    def hand_back(self, use: ClaudeUse) -> None:
        """Note that Claude Code's own dialog asks about this use, so that the gate does not ask again."""
        self._left[use.conversation, canonical([use.tool, use.arguments])] = None

    def was_handed_back(self, use: ClaudeUse) -> bool:
        """Whether `hand_back` was called for just this use; true once."""
        key = (use.conversation, canonical([use.tool, use.arguments]))
        was = key in self._left
        self._left.pop(key, None)
        return was

    def _session(self, use: ClaudeUse) -> Session:
        """Return the conversation, set up for this use. Raises `UsageError` for a mode that does not exist."""
        options: SessionOptions = {
            "key": f"claude:{use.conversation}",
            "principal": use.principal,
            "instance": CLAUDE,
            "approver": _answers_later,
            "cwd": use.cwd,
            "workspace": None,
            "shadow": False,
            "grows": False,
        }
        if use.mode:
            options["mode"] = use.mode
        session = Session(self._parts, self._parts.sessions.open(options))
        self._sessions[use.principal, use.conversation] = session
        return session


def gate_of(crib: Toolcrib) -> ClaudeCodeGate:
    """Return the gate of an open crib, the same one each time. Raises `UsageError` where a source has its name."""
    gate = _GATES.get(crib)
    if gate is None:
        tools = _ClaudeTools()
        crib.tools.mount_layer(CLAUDE, tools, tools.layer)
        gate = _GATES[crib] = ClaudeCodeGate(crib.parts, tools)
    return gate


async def _answers_later(question: Question) -> Answer:
    """Leave the question in the store, where approvers find it."""
    raise AnswersLater


def _denied(use: ClaudeUse, result: ToolResult, rule: str) -> Ruling:
    error = result.error
    message = "Toolcrib could not grant this call" if error is None else error.message
    if error is not None and error.hint:
        message = f"{message.rstrip('.')}. {error.hint[0].upper()}{error.hint[1:]}"
    reason = str((error.details or {}).get("reason", "")) if error is not None else ""
    return Ruling(
        behavior="deny",
        arguments=use.arguments,
        rule=rule,
        message=message,
        unanswered=reason in _UNANSWERED,
    )


class _ClaudeLayer(Overlay):
    """The catalog of the gate: Claude Code's tools, under its own names, and nothing below them."""

    def __init__(self) -> None:
        self._nothing = Registry()
        super().__init__(self._nothing)
        self._known: dict[str, Tool] = {}
        self._snapshot: Catalog | None = None

    def add(self, tool: Tool) -> None:
        self._known[tool.name] = tool
        foreign = [name for name in self._known if name.startswith(_OF_SERVER)]
        if len(foreign) > _FOREIGN:
            del self._known[foreign[0]]
        self._snapshot = None

    @property
    def problems(self) -> tuple[()]:
        return ()

    @property
    def catalog(self) -> Catalog:
        if self._snapshot is None:
            version = version_of(digest_sum(0, added=self._known.values()))
            self._snapshot = Catalog(dict(self._known), version=version, searcher=self._nothing.index)
        return self._snapshot


class _ClaudeTools:
    """The source of those tools. Its calls run nothing: Claude Code does, after the decision."""

    def __init__(self) -> None:
        self.layer = _ClaudeLayer()
        self._waiting: dict[str, Mapping[str, Any] | None] = {}

    @property
    def name(self) -> str:
        return CLAUDE

    @property
    def state(self) -> SourceState:
        """Listed for its own catalog only."""
        return SourceState(source=CLAUDE, kind="claude", state="ready", tools=0)

    async def open(self, publish: Publish) -> None:
        publish(Listing(tools=()))

    async def ready(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        self._waiting.clear()

    def learn(self, name: str) -> None:
        """Make sure that there is a tool of this name."""
        if name not in self.layer.catalog.tools:
            self.layer.add(_tool_of(name))

    def expect(self, call_id: str) -> None:
        """Take note that a caller waits for this call."""
        self._waiting[call_id] = None

    def granted(self, call_id: str) -> Mapping[str, Any] | None:
        """Return the arguments with which the call was granted, once; None if it was not."""
        return self._waiting.pop(call_id, None)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Take note of the grant. Raises `ToolFailure` when its caller no longer waits."""
        if context.call_id not in self._waiting:
            raise ToolFailure("unavailable", f"Claude Code does not wait for {tool.name} any more: nothing ran")
        self._waiting[context.call_id] = arguments
        return ToolResult.of_text("Claude Code may run it")


class _Word(Struct, frozen=True, kw_only=True):
    """Facts about one of Claude Code's tools."""

    kind: Literal["read", "write", "destructive"] = "destructive"
    category: str = ""
    needs: tuple[str, ...] = ()
    """Arguments that it cannot do without; all of them are texts."""
    traits: tuple[str, ...] = ()
    always: bool = False


_INTERNAL: Final = _Word(kind="read")
_SHELL: Final = _Word(category="shell", needs=("command",))
_WORDS: Final[Mapping[str, _Word]] = {
    "Bash": _SHELL,
    "Monitor": _Word(category="shell"),
    "Edit": _Word(kind="write", category="files", needs=("file_path",)),
    "MultiEdit": _Word(kind="write", category="files", needs=("file_path",)),
    "NotebookEdit": _Word(kind="write", category="files", needs=("notebook_path",)),
    "Write": _Word(kind="destructive", category="files", needs=("file_path",)),
    "Read": _Word(kind="read", category="files", needs=("file_path",)),
    "LS": _Word(kind="read", category="files"),
    "Glob": _Word(kind="read", category="search"),
    "Grep": _Word(kind="read", category="search"),
    # Their requests leave the machine: more than a read.
    "WebFetch": _Word(kind="write", category="web", traits=("untrusted", "outbound")),
    "WebSearch": _Word(kind="write", traits=("untrusted", "outbound")),
    PLAN: _Word(kind="read", always=True, traits=("asks_user",)),
    "EnterPlanMode": _Word(kind="read", traits=("asks_user",)),
    "AskUserQuestion": _Word(kind="read", always=True, traits=("asks_user",)),
    # They only change Claude Code's own state; the calls of a sub-agent are decided on separately.
    **dict.fromkeys(
        (
            "Agent",
            "BashOutput",
            "KillShell",
            "ListAgents",
            "ReportFindings",
            "Task",
            "TaskCreate",
            "TaskGet",
            "TaskList",
            "TaskOutput",
            "TaskStop",
            "TaskUpdate",
            "TodoWrite",
            "ToolSearch",
        ),
        _INTERNAL,
    ),
}
"""Claude Code's own tools as of 2.1.329; one that is not here is taken for destructive."""


def _tool_of(name: str) -> Tool:
    """Return the tool of this name. All that is known of one of an MCP server is its name, so it is destructive."""
    word = _WORDS.get(name, _Word())
    is_foreign = name.startswith(_OF_SERVER)
    is_read = word.kind == "read"
    server, _, local = name.removeprefix(_OF_SERVER).partition("__")
    return Tool(
        name=name,
        source=CLAUDE,
        local_name=name,
        description="A tool of an MCP server of Claude Code" if is_foreign else "A tool of Claude Code",
        input_schema={
            "type": "object",
            "properties": {argument: {"type": "string"} for argument in word.needs},
            "required": list(word.needs),
            "additionalProperties": True,
        },
        annotations=Annotations(
            read_only=is_read,
            destructive=word.kind == "destructive",
            open_world="outbound" in word.traits or word.category == "shell" or is_foreign or name not in _WORDS,
        ),
        category=word.category,
        aliases=(f"{_OF_SERVER}{server}", f"{server}__{local}") if is_foreign and local else (),
        origin="mcp" if is_foreign else "claude",
        traits=word.traits,
        approval="always" if word.always else "mode",
    )
