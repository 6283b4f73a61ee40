"""Model, session and settings of an agent, and the tools and the prompt that follow from them."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from toolcrib import Session

from .limits import AgentLimits
from .models import is_paid
from .prompts import PromptFacts, compose, text_of
from .questions import asks_user
from .sub_agents.registry import PARENT
from .tools import ASK, DELEGATE, REQUIREMENTS, SHARE, SPAWN


class AgentSetup(Struct, frozen=True, kw_only=True):
    """Model, session and settings of one agent."""

    model: Model
    session: Session
    facts: PromptFacts
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


def add_agent_tools(setup: AgentSetup) -> None:
    """Put those tools of agents into the scope of the session that this one can use."""
    state = setup.session.state
    has = {
        SPAWN: setup.depth < setup.limits.depth,
        DELEGATE: setup.delegates,
        ASK: asks_user(setup.session),
        SHARE: PARENT in state.runtime,
    }
    state.scope.provided |= {REQUIREMENTS[name] for name, is_there in has.items() if is_there}
    state.scope.provided -= {REQUIREMENTS[name] for name, is_there in has.items() if not is_there}


def prompt_of(setup: AgentSetup) -> str:
    """Return the instructions before the conversation, as of now."""
    mode = setup.facts.mode or setup.session.parts.policy.mode(setup.session.mode)
    return text_of(compose(setup.session, replace(setup.facts, mode=mode)))
