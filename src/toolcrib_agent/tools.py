"""Tools that an agent adds to its session: run a sub-agent, delegate research, ask the user.

They are a source of the crib like any other, mounted by the first agent, and in the scope only of sessions that have
what they need: an agent that works there and may still spawn others, a local model beside a paid one, a user to ask.
What a sub-agent calls is decided on call by call; the call that starts it changes nothing by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from toolcrib import Annotations, Availability, BaseSource, Context, Execution, Guidance, Tool, ToolResult
from toolcrib.errors import ToolFailure

SOURCE: Final = "agent@toolcrib"
"""The name of the source."""
SPAWN: Final = "spawn_agent"
DELEGATE: Final = "delegate_task"
ASK: Final = "ask_user"
SHARE: Final = "share_context"
SUB_AGENT_SOURCE: Final = "subagents"
"""The name of the source of the tools that manage sub-agents; a profile includes and excludes them as built-in ones."""
RUNNER_KEY: Final = "agent@toolcrib"
"""Key of a session's runtime for the `SubAgentRunner` of its agent."""
SPAWNING: Final = "spawning"
"""Requirement of tools that start and manage sub-agents."""
REQUIREMENTS: Final[Mapping[str, str]] = {SPAWN: SPAWNING, DELEGATE: "local_model", ASK: "user", SHARE: "parent_agent"}
"""Requirements of a session for each tool."""
_MAX_OPTIONS: Final = 5
"""Suggested answers that are shown (seed 002)."""
_TIMEOUT_SECONDS: Final = 600.0
"""Seconds that a sub-agent, or a user, may take (seed 002)."""

TASK_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "pattern": r"\S",
    "description": "All of it: the agent sees nothing of this conversation.",
}
"""Schema of the task of a sub-agent."""
_BACKGROUND_SCHEMA: Final = {
    "type": "string",
    "description": "What it has to know: paths, names, what was found so far.",
}
_BRIEF_SCHEMA: Final = {
    "type": "object",
    "properties": {"task": TASK_SCHEMA, "context": _BACKGROUND_SCHEMA},
    "required": ["task"],
    "additionalProperties": False,
}


class SubAgentRunner(Protocol):
    """Runs sub-agents of the agent that works in a session."""

    async def spawn(self, task: str, background: str, context: Context) -> ToolResult:
        """Run an agent with the same tools. Raises `ToolFailure` if it may have none."""
        ...

    async def delegate(self, task: str, background: str, context: Context) -> ToolResult:
        """Run a read-only agent on the local model. Raises `ToolFailure` if there is no local model."""
        ...

    async def start(self, arguments: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Start a sub-agent in the background; return its id. Raises `ToolFailure` if it may have none."""
        ...

    async def send(self, id: str, message: str) -> str:
        """Send a message to a sub-agent: `queued` or `dispatched`. Raises `ToolFailure` for an unknown one."""
        ...


RunnerFactory = Callable[[Context], Awaitable[SubAgentRunner]]
"""Returns the runner of a session in which no agent works, such as that of an MCP client."""


async def runner_of(context: Context, runner_factory: RunnerFactory | None) -> SubAgentRunner:
    """Return the runner of sub-agents of a call's session. Raises `ToolFailure("unavailable")` without an agent."""
    runner: SubAgentRunner | None = context.runtime.get(RUNNER_KEY)
    if runner is not None:
        return runner
    if runner_factory is None:
        raise ToolFailure("unavailable", "no agent works in this session now", hint="do the task yourself")
    return await runner_factory(context)


_TOOLS: Final = (
    Tool(
        name=SPAWN,
        source=SOURCE,
        local_name=SPAWN,
        op="agent.spawn",
        description=(
            "Give a part of the task to an agent of its own, with the same tools and rights; its answer comes back."
            " For work that would fill this conversation with details. Several calls at once work side by side."
        ),
        input_schema=_BRIEF_SCHEMA,
        annotations=Annotations(read_only=False, destructive=False, open_world=False),
        approval="never",
        category="agents",
        execution=Execution(timeout=_TIMEOUT_SECONDS),
        core=True,
        availability=Availability(needs=(REQUIREMENTS[SPAWN],)),
        guidance=Guidance(examples=({"task": "Find every caller of parse_config and say what each expects"},)),
    ),
    Tool(
        name=DELEGATE,
        source=SOURCE,
        local_name=DELEGATE,
        op="agent.delegate",
        description=(
            "Hand research to a free local model: it reads and searches, changes nothing, and answers with a summary."
            " Cheaper than doing it here, and less able."
        ),
        input_schema=_BRIEF_SCHEMA,
        annotations=Annotations(read_only=True, destructive=False, open_world=False),
        approval="never",
        category="agents",
        execution=Execution(timeout=_TIMEOUT_SECONDS),
        core=True,
        availability=Availability(needs=(REQUIREMENTS[DELEGATE],)),
        guidance=Guidance(
            examples=({"task": "Which modules read the environment?", "context": "A Python project, src layout"},)
        ),
    ),
    Tool(
        name=ASK,
        source=SOURCE,
        local_name=ASK,
        op="user.ask",
        description=(
            "Ask the user when the task cannot go on without an answer, with up to five suggested answers. Not for"
            " permission: tools that need one ask by themselves."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "question": {"type": "string", "minLength": 1},
                "options": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Suggested answers, best first.",
                },
                "allow_custom": {
                    "type": "boolean",
                    "default": True,
                    "description": "Whether another answer is taken.",
                },
            },
            "required": ["question"],
            "additionalProperties": False,
        },
        annotations=Annotations(read_only=True, destructive=False, open_world=False),
        approval="never",
        category="agents",
        execution=Execution(timeout=_TIMEOUT_SECONDS),
        core=True,
        traits=("asks_user",),
        availability=Availability(needs=(REQUIREMENTS[ASK],)),
        guidance=Guidance(examples=({"question": "Which database?", "options": ["SQLite", "Postgres"]},)),
    ),
)


ToolFunction = Callable[[Mapping[str, Any], Context], Awaitable[ToolResult]]
"""Runs one tool. Raises `ToolFailure`."""


class ListedSource(BaseSource):
    """Lists the same tools from the beginning. It holds no resources: sub-agents belong to sessions."""

    def __init__(self, name: str, tools: Sequence[Tool], run: Mapping[str, ToolFunction]) -> None:
        """`run` has what runs each tool, by its name."""
        super().__init__(name, "agent", tuple(tools))
        self._run: Final = run

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run one of them. Raises `ToolFailure`."""
        return await self._run[tool.local_name](arguments, context)


class AgentTools(ListedSource):
    """Source of the agent tools. One for a crib, shared by all of its agents."""

    def __init__(self, *, without: frozenset[str], runner_factory: RunnerFactory | None = None) -> None:
        """`without` leaves tools out, such as `ask_user` where the built-in tools of this crib have it.

        `runner_factory` gives sessions without an agent of their own, those of MCP clients, one that runs sub-agents.
        """
        tools = [tool for tool in _TOOLS if tool.name not in without]
        super().__init__(SOURCE, tools, {SPAWN: self._spawn, DELEGATE: self._delegate, ASK: _ask})
        self._served = runner_factory

    async def _spawn(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        runner = await runner_of(context, self._served)
        return await runner.spawn(arguments["task"], arguments.get("context", ""), context)

    async def _delegate(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        runner = await runner_of(context, self._served)
        return await runner.delegate(arguments["task"], arguments.get("context", ""), context)


async def _ask(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    options = tuple(arguments.get("options", ()))[:_MAX_OPTIONS]
    answer = await context.clarify(arguments["question"], options, allow_custom=arguments.get("allow_custom", True))
    return ToolResult.of_text(answer)
