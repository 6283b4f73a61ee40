"""Sub-agents of MCP clients: a served crib whose configuration names a model runs agents for its clients.

No agent of ours works in the session of a client, so what its sub-agents report is added to the next result that it
gets (`CallRunner.enrich`), but to none of a nested call or of a sub-agent. Their calls that ask wait in the store, as
those of the client do. Pydantic AI is loaded with the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread
from msgspec.structs import replace

from toolcrib import Call, Context, Session, Source, ToolResult
from toolcrib.agents import AgentToolset, SessionParts
from toolcrib.errors import ToolFailure, UsageError

from .events import discard
from .scheduled_task import configured_model
from .sub_agents.registry import RECORDS, REGISTRY, SubAgents, registry_of
from .sub_agents.tools import CATEGORY, TOOLS, SubAgentTools
from .tools import ASK, DELEGATE, SPAWN, SPAWNING, AgentTools, SubAgentRunner

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_INSTRUCTIONS: Final = "You work for a client of a tool server."


def open_client_agents(
    parts: SessionParts, chosen: frozenset[str] | None, *, model: Model | None = None
) -> Sequence[Source]:
    """Return the sources of the tools, chosen by `chosen`; `model` is used instead of that of the configuration."""
    agents = _ClientAgents(parts, model)
    parts.calls.enrich(agents.add_events)
    spawns = chosen is None or not chosen.isdisjoint({SPAWN, CATEGORY})
    without = frozenset({ASK, DELEGATE} if spawns else {ASK, DELEGATE, SPAWN})
    return AgentTools(without=without, runner_factory=agents.runner), SubAgentTools(
        only=chosen, runner_factory=agents.runner
    )


class _ClientAgents:
    """Runs sub-agents for the sessions of one crib's clients."""

    def __init__(self, parts: SessionParts, model: Model | None) -> None:
        self._parts = parts
        self._model = model
        self._loading = anyio.Lock()

    async def runner(self, context: Context) -> SubAgentRunner:
        """Return the runner of a session's sub-agents. Each spawning or message has the limits of one run."""
        state = self._parts.sessions.find(context.principal, context.session_key)
        if state is None:
            raise ToolFailure("unavailable", "the session of this call has ended")
        session = Session(self._parts, state)
        await registry_of(session).restore(context.records(RECORDS))
        model = await self._get_model()
        # Loaded by now, in a thread: Pydantic AI takes a second.
        from .agent_setup import AgentSetup
        from .limits import UsageLimits, limits_for
        from .prompts import PromptFacts, project_of
        from .session_agent import SessionSubAgents

        facts = PromptFacts(instructions=_INSTRUCTIONS, project=await project_of(session), today=date.today())
        limits = limits_for(session.visible.profile.session.agents)
        setup = AgentSetup(model=model, session=session, facts=facts, limits=limits)
        return SessionSubAgents(setup, UsageLimits(limits), discard)

    async def add_events(self, call: Call, result: ToolResult) -> ToolResult:
        """Return a result with what the sub-agents of its session have reported since the last one."""
        registry: SubAgents | None = call.session.runtime.get(REGISTRY)
        if registry is None or registry.is_attached or call.is_nested:
            return result
        texts = registry.take_events()
        return replace(result, content=(*result.content, *({"type": "text", "text": text} for text in texts)))

    async def _get_model(self) -> Model:
        async with self._loading:
            if self._model is None:
                named = await configured_model(self._parts.settings)
                try:
                    self._model = await to_thread.run_sync(_load_model, named)
                except (ImportError, UsageError) as error:
                    raise ToolFailure("unavailable", f"the model cannot be used: {error}") from error
            return self._model


def _load_model(named: str) -> Model:
    from .models import model_of
    from .session_agent import SessionSubAgents

    assert SessionSubAgents  # what runs the model is loaded in this thread, too
    return model_of(named)


TOOLSET: Final = AgentToolset(
    categories={SPAWN: CATEGORY, **{tool.name: CATEGORY for tool in TOOLS}},
    conditions=frozenset({SPAWNING}),
    open=open_client_agents,
)
