"""Which tool is meant: unwrap verbs, follow aliases, refuse what does not exist or is out of scope.

A refusal comes here, before anybody is asked for approval, and is the same through every way in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...catalog.catalog import Catalog
from ...core.call import Call
from ...core.session import SessionState
from ...core.tool import Tool
from ...disclosure import verbs
from ...disclosure.base import Profile
from ...errors import ToolFailure

__all__ = ["Resolve", "Surroundings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a session's calls are resolved against."""

    catalog: Catalog
    profile: Profile
    verbs: Mapping[str, Tool]
    """Declared verbs by shown name."""


class Resolve:
    """The first step."""

    def __init__(self, surroundings: Callable[[SessionState], Surroundings]) -> None:
        """`surroundings` is asked at every call: the catalog may have changed."""
        self._surroundings = surroundings

    async def __call__(self, call: Call) -> Call:
        """Return the call of the real tool; raises `ToolFailure` when there is none to be had."""
        around = self._surroundings(call.session)
        asked = call.name
        shown = around.verbs.get(asked)
        if shown is not None:
            verb = verbs.VERBS[verbs.names(around.profile)[asked]]
            if not verb.unwraps:
                return call.evolve(tool=shown)
            name, arguments = verbs.unwrap(call.arguments, asked)
            call = call.evolve(name=name, arguments=arguments, only=verb.only)
            inner = around.verbs.get(name)
            if inner is not None:
                return self._inner_verb(call, inner, around)
        tool = self._find(call, around, asked)
        return call.evolve(tool=tool, name=tool.name, requested=asked if asked != tool.name else "")

    def _inner_verb(self, call: Call, inner: Tool, around: Surroundings) -> Call:
        if verbs.VERBS[verbs.names(around.profile)[inner.name]].unwraps:
            raise ToolFailure("invalid_arguments", f"{inner.name} cannot run itself", hint="name the tool to run")
        return call.evolve(tool=inner, requested=call.name)

    def _find(self, call: Call, around: Surroundings, asked: str) -> Tool:
        tool = around.catalog.find(call.name)
        if tool is None:
            raise self._missing(call, around)
        if not call.session.includes(tool.name):
            raise _out_of_scope(call)
        if call.only == "read" and tool.kind != "read":
            other = next((shown for shown in around.verbs if shown != asked and self._runs_all(shown, around)), "")
            raise ToolFailure(
                "denied",
                f"{tool.name} is a {tool.kind} tool and {asked} runs only tools that read",
                hint=f"call it with {other}" if other else "",
            )
        return tool

    @staticmethod
    def _runs_all(shown: str, around: Surroundings) -> bool:
        verb = verbs.VERBS[verbs.names(around.profile)[shown]]
        return verb.unwraps and verb.only is None

    def _missing(self, call: Call, around: Surroundings) -> ToolFailure:
        catalog, session = around.catalog, call.session
        problem = catalog.withheld.get(call.name)
        if problem is not None and not session.includes(call.name):
            return _out_of_scope(call)
        if problem is not None:
            return ToolFailure(problem.code, problem.message, hint=problem.hint)
        close = catalog.nearest(call.name, allowed=session.includes)
        search = around.profile.verbs.get("search")
        hint = f"did you mean {', '.join(close)}?" if close else ""
        if search:
            hint = f"{hint} {search} finds tools by what they do".strip()
        return ToolFailure(
            "not_found", f"there is no tool named {call.name[:200]!r}", hint=hint, details={"nearest": close}
        )


def _out_of_scope(call: Call) -> ToolFailure:
    """Repeat the name that was asked for: what the tool is really called is out of scope too."""
    return ToolFailure("not_in_scope", f"{call.name[:200]} is not in the scope of this session")
