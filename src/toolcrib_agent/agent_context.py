"""What an agent works with: its model, session and settings; and what follows from them for its tools and prompt."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from toolcrib.crib import Session

from .limits import AgentLimits
from .models import is_paid
from .prompts import Facts, compose, text_of
from .questions import asks_user
from .sub_agents import PARENT
from .tools import ASK, DELEGATE, NEEDS, SHARE, SPAWN

__all__ = ["AgentContext", "add_agent_tools", "prompt_of"]


class AgentContext(Struct, frozen=True, kw_only=True):
    """Model, session and settings of one agent."""

    model: Model
    session: Session
    facts: Facts
    limits: AgentLimits = field(default_factory=AgentLimits)
    settings: ModelSettings = field(default_factory=lambda: ModelSettings())
    local: Model | None = None
    """Takes delegated tasks, where `model` is a paid one."""
    depth: int = 0
    parent: str = ""
    """Id of the call that runs it; empty for a root agent."""

    @property
    def delegates(self) -> bool:
        """True if research can be delegated to a model that costs less."""
        return self.local is not None and is_paid(self.model)


def add_agent_tools(post: AgentContext) -> None:
    """Put those tools of agents into the scope of the session that this one can use."""
    state = post.session.state
    has = {
        SPAWN: post.depth < post.limits.depth,
        DELEGATE: post.delegates,
        ASK: asks_user(post.session),
        SHARE: PARENT in state.runtime,
    }
    state.scope.provided |= {NEEDS[name] for name, is_there in has.items() if is_there}
    state.scope.provided -= {NEEDS[name] for name, is_there in has.items() if not is_there}


def prompt_of(post: AgentContext) -> str:
    """Return the instructions before the conversation, as of now."""
    mode = post.facts.mode or post.session.parts.policy.mode(post.session.mode)
    return text_of(compose(post.session, replace(post.facts, mode=mode)))
