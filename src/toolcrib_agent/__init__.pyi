"""What `toolcrib_agent` offers, for type checkers and editors; the names load lazily at run time."""

from .agent import Agent, Stream
from .events import Outcome
from .limits import AgentLimits, Usage
from .messages import dump, load
from .models import model_of

__all__ = ["Agent", "AgentLimits", "Outcome", "Stream", "Usage", "dump", "load", "model_of"]
