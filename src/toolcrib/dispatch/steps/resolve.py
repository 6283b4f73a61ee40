"""Resolution of the called tool: meta-tools and aliases lead to the real one.

A missing tool, or one out of scope, is refused here, before approval is requested, and the same through every way in. A
name that may be a tool of a source that is still starting is resolved once that source has listed, within the call's
time.

    "call_tool" {"name": "git__push", …}     a meta-tool: unwrapped to the call that it means
    "push"                                   an alias of the profile: its arguments are translated, too
    "git__push"                              the tool's own name in the catalog
                 └──► Call.tool, Call.name = "git__push", Route.requested = the name at the way in

`Resolve` is the whole step. `_Names` is its binding for one session, which remembers names that catalog and profile
alone give a tool, and leaves every other call to the whole step.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from difflib import SequenceMatcher
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ...core.call import DIRECT, USUAL, Call, Options, Route, context_values
from ...core.schema import repair
from ...core.session import SessionState
from ...core.similar import nearest
from ...core.tool import Tool
from ...disclosure.base import View, VisibleCatalog, cannot_run
from ...disclosure.meta_tools import SOURCE
from ...disclosure.profiles import VERBS, strategy_of
from ...disclosure.renames import Rename
from ...errors import ToolFailure
from ...sources.source import still_starting, unavailable
from ..pipeline import Refused, definition_changed
from ..plan import Before, Subject
from ..running_calls import allowed_time

_LEAST_SECONDS: Final = 0.001
"""Shortest time limit of a call that spent its own on the wait for its source: a limit of 0 would be none."""
_NAMES: Final = 1024
"""Names of one session that are kept with their tools."""
_READ_RESULT: Final = "read_result"
"""The name by which models call the meta-tool `read` on their own, under any profile."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """The catalog, meta-tools and view against which a session's calls are resolved."""

    visible: VisibleCatalog
    verbs: Mapping[str, tuple[str, Tool]]
    """Declared meta-tools by shown name: the verb, and its definition."""
    view: Callable[[], View]
    """The session's present view; computed only when needed."""
    at: Callable[[str, str], Surroundings]
    """The same with one tool, by its name in the catalog, in another version."""


class Resolve:
    """The first step."""

    def __init__(self, surroundings: Callable[[SessionState], Surroundings]) -> None:
        """`surroundings` is asked at every call: the catalog may have changed."""
        self._surroundings = surroundings

    def __call__(self, call: Call) -> Call | Awaitable[Call]:
        """Return the call of the real tool; raises `ToolFailure` for an unknown or unavailable one."""
        try:
            return self.read(call)
        except ToolFailure as failure:
            if failure.code != "not_found":
                raise
            return self._wait_for_source(call, failure)

    def bind(self, subject: Subject) -> Before:
        """Return the step for one session, which resolves a name once.

        A name is kept where catalog and profile alone give it its tool. Switches are read at each call; a call that
        pins a version, is made again or restricts the tool takes the whole step.
        """
        return self if subject.profile is None or subject.tool is not None else _Names(self, self._surroundings).resolve

    async def _wait_for_source(self, call: Call, failure: ToolFailure) -> Call:
        """Resolve the call once a source that may have the tool has listed; raise `failure` where none is starting.

        Resolves anew after each source that has listed, because the one that has the tool need not be the first. A
        source that lists without the tool is not waited for again; the time is that of the call (`allowed_time`).
        """
        began = time.monotonic()
        named = failure.call if isinstance(failure, Refused) else call
        visible = self._surroundings(call.session).visible
        waited = [*visible.starting(named.name)]
        while waited:
            left = began + allowed_time(call) - time.monotonic()
            listed = await visible.sources.wait_first(left, waited)
            if not listed:
                raise Refused(still_starting(waited[0]), named)
            waited.remove(listed)
            try:
                resolved = self.read(call)
            except ToolFailure as again:
                if again.code != "not_found":
                    raise
                failure = again
            else:  # the wait counts: the tool gets what is left of the call's time
                left = began + allowed_time(resolved) - time.monotonic()
                return resolved.evolve(timeout=max(left, _LEAST_SECONDS))
        raise failure

    def read(self, call: Call) -> Call:
        """Do the same at once: nothing here waits, and nothing is spent.

        Order: a call that has its tool already (a saved call), a `raw` call by its catalog name, a meta-tool, any other
        name.
        """
        around = self._surroundings(call.session)
        if call.tool is not None:
            return self._again(call, call.tool, around)
        asked = call.name
        if call.options.raw:
            tool = self._find(call, asked, around, asked)
            return call.evolve(tool=tool, name=tool.name)
        found = around.verbs.get(asked) or _reader(asked, around)
        if found is not None:
            _check_exact(call)
            verb = VERBS[found[0]]
            if verb.unwrap is None:
                _check_no_version(call)
                return call.evolve(tool=found[1])
            meant = verb.unwrap(call.arguments, asked)
            call = call.evolve(
                name=meant.name, arguments=meant.arguments, only=verb.only, verb=found[0], **meant.options
            )
            inner = around.verbs.get(meant.name)
            if inner is not None:
                return self._inner_verb(call, *inner)
        return self._real(call, around, asked)

    def _inner_verb(self, call: Call, verb: str, inner: Tool) -> Call:
        """Return the call of a meta-tool inside a meta-tool; one that makes calls counts as more than a read."""
        _check_exact(call)
        known = VERBS[verb]
        if known.unwrap is not None:
            failure = ToolFailure("invalid_arguments", f"{inner.name} cannot run itself", hint="name the tool to run")
            raise Refused(failure, call)
        if call.options.only == "read" and not known.annotations.read_only:
            raise Refused(ToolFailure("denied", f"{inner.name} may do more than read", hint="call it directly"), call)
        _check_no_version(call)
        return call.evolve(tool=inner, requested=call.name)

    def _real(self, call: Call, around: Surroundings, asked: str) -> Call:
        """Return the call of the real tool for a name that is not a meta-tool.

        The strategy of the profile may read the call first (`read`), as the gateway does with an op.
        """
        read = strategy_of(around.visible.profile).read
        try:
            call = read(around.visible, call) if read is not None else call
            rename = around.visible.aliases.rename_of(call.name)
            if rename is not None and not rename.is_bare:
                call, rename = _in_own_words(call, rename, around)
            tool = self._find(call, rename.tool if rename is not None else call.name, around, asked)
        except ToolFailure as failure:
            raise Refused(failure, call if asked == call.name else call.evolve(requested=asked)) from None
        requested = call.route.requested or (asked if asked != tool.name else "")
        if requested == call.route.requested:  # most calls: the group stays unchanged
            return call.evolve(tool=tool, name=tool.name)
        return call.evolve(tool=tool, name=tool.name, requested=requested)

    def _again(self, call: Call, known: Tool, around: Surroundings) -> Call:
        """Return a call that was resolved before and is made again: its tool is still there, in scope and the same."""
        around = around.at(call.name, call.options.version) if call.options.version else around
        tool = around.visible.catalog.get(call.name)
        if tool is None:
            raise self._missing(call, around)
        _check_open(call, tool, around)
        if tool != known:
            raise definition_changed(tool.name)
        return call.evolve(tool=tool)

    def _find(self, call: Call, name: str, around: Surroundings, asked: str) -> Tool:
        """Return the tool with the catalog name `name`; errors mention the requested name.

        Checks, in this order: the tool exists, is in scope and switched on, the meta-tool may run its kind, it is no
        skill, and the profile has loaded it.
        """
        around = around.at(name, call.options.version) if call.options.version else around
        tool = around.visible.catalog.find(name)
        if tool is None:
            raise self._missing(call, around)
        _check_open(call, tool, around)
        if call.options.only == "read" and tool.kind != "read":
            other = next((name for name in around.verbs if name != asked and _runs_all(name, around)), "")
            raise ToolFailure(
                "denied",
                f"{tool.name} is a {tool.kind} tool and {asked} runs only tools that read",
                hint=f"call it with {other}" if other else "",
            )
        if tool.capability.type == "SKILL" and around.visible.profile.skills == "guide":
            raise _is_skill(tool, around.visible)
        self._check_loaded(call, tool, around, asked)
        return tool

    def _check_loaded(self, call: Call, tool: Tool, around: Surroundings, asked: str) -> None:
        """Raise `ToolFailure` where the profile wants tools to be loaded first and this one is not."""
        profile = around.visible.profile
        if profile.on_miss == "run" or call.options.raw or around.visible.is_denied(tool):  # a deny answers the call
            return
        loaded = around.view().callable
        if loaded is None or tool.name in loaded:
            return
        name = around.visible.aliases.name_used(asked, tool)
        load = next(
            (shown for shown, (verb, _) in around.verbs.items() if verb in ("load", "schemas", "describe", "select")),
            "",
        )
        hint = f'load it with {load} first: {{"names": ["{name}"]}}' if load else _how_to_get(tool, profile.on_miss)
        raise ToolFailure("not_loaded", f"{name} exists and is not among the tools of this turn", hint=hint)

    def _missing(self, call: Call, around: Surroundings) -> ToolFailure:
        catalog, session = around.visible.catalog, call.session
        name = around.visible.aliases.withheld_name(call.name)
        problem = catalog.withheld.get(name)
        # Scope first, here and in `_check_open`: a session learns nothing of tools that it may not have.
        if problem is not None and not session.includes(name):
            return _out_of_scope(call)
        if problem is not None:
            # The findings behind the first semicolon quote the definition that is withheld: they are for a person.
            details = {"reason": "version"} if problem.code == "not_found" else None
            return ToolFailure(problem.code, problem.message.partition("; ")[0], hint=problem.hint, details=details)
        if down := around.visible.down(call.name):
            return unavailable(down[0])
        verbs = [tool.name for tool in around.view().tools if tool.source == SOURCE]
        near = catalog.nearest(call.name, allowed=around.visible.admitted)
        known = [_as_called(call.name, around.visible.aliases.name(catalog.tools[name]), name) for name in near]
        close = [*nearest(call.name, verbs, 1), *known][:3]
        search = around.visible.profile.verbs.get("search")
        hint = f"did you mean {', '.join(close)}?" if close else ""
        if starting := around.visible.starting():
            hint = f"{hint} still starting: {', '.join(starting)}.".strip()
        if search and any(tool.name == search for tool in around.view().tools):
            hint = f"{hint} {search} finds tools by their purpose".strip()
        return ToolFailure("not_found", f"unknown tool {call.name[:200]!r}", hint=hint, details={"nearest": close})


def _as_called(called: str, shown: str, own: str) -> str:
    """Return the name of a tool that is more like what was called: the profile's `shown` one, or its `own`."""
    return max((shown, own), key=lambda name: SequenceMatcher(None, called, name).ratio())


class _Names:
    """Names of one session that were resolved, as long as its plan holds.

    Holds no reference to the session or its surroundings, which would keep them alive: the plan is part of the session.
    """

    def __init__(self, step: Resolve, surroundings: Callable[[SessionState], Surroundings]) -> None:
        self._step = step
        self._surroundings = surroundings
        self._verbs: Mapping[str, tuple[str, Tool]] | None = None
        self._tools: dict[str, Tool] = {}
        self._routes: dict[tuple[str, str], tuple[Options, Route]] = {}
        """Options and route of a plain call by a meta-tool and the name of a tool."""
        self._aliases: dict[str, Route] = {}
        """Route of a plain call by a name that is not the tool's own."""

    def resolve(self, call: Call) -> Call | Awaitable[Call]:
        asked = call.name
        tool = self._tools.get(asked)
        is_plain = call.options is USUAL or not call.options.is_special
        if tool is not None and call.tool is None and is_plain and self._is_on(call, tool):
            if asked == tool.name:
                return replace(call, tool=tool)
            if call.route is not DIRECT:
                return call.evolve(tool=tool, name=tool.name, requested=call.route.requested or asked)
            route = self._aliases.get(asked)
            if route is None:
                route = self._aliases[asked] = Route(requested=asked)
            return replace(call, tool=tool, name=tool.name, route=route)
        if self._verbs is None:  # the surroundings themselves would keep the session alive
            self._verbs = self._surroundings(call.session).verbs
        verb = self._verbs.get(asked)
        if verb is not None and call.tool is None and call.options is USUAL and call.route is DIRECT:
            return self._by_verb(call, verb[0])
        return self._whole(call, asked)

    def _by_verb(self, call: Call, verb: str) -> Call | Awaitable[Call]:
        """Resolve a call of a meta-tool."""
        unwrap = VERBS[verb].unwrap
        if unwrap is None or call.session.scope.exact is not None:
            return self._step(call)
        meant = unwrap(call.arguments, call.name)
        tool = self._tools.get(meant.name)
        if tool is None:
            return self._whole(call, meant.name)
        is_restricted = VERBS[verb].only is not None and tool.kind != VERBS[verb].only
        if meant.options or is_restricted or not self._is_on(call, tool):
            return self._step(call)
        key = (call.name, tool.name)
        known = self._routes.get(key)
        if known is None:
            whole = call.evolve(only=VERBS[verb].only, verb=verb, requested=call.name)
            known = self._routes[key] = (whole.options, whole.route)
        return replace(call, tool=tool, name=tool.name, arguments=meant.arguments, options=known[0], route=known[1])

    def _whole(self, call: Call, name: str) -> Call | Awaitable[Call]:
        """Take the whole step, and keep the tool of `name` if catalog and profile alone give it.

        Past `_NAMES` all are forgotten: a model that makes names up must not fill the memory.
        """
        outcome = self._step(call)
        if not isinstance(outcome, Call) or outcome.tool is None or call.tool is not None:
            return outcome
        around = self._surroundings(call.session)
        visible = around.visible
        rename = visible.aliases.rename_of(name)
        is_plain = rename is None or rename.is_bare
        is_plain = is_plain and visible.profile.on_miss == "run" and strategy_of(visible.profile).read is None
        is_ours = name in around.verbs or _reader(name, around) is not None
        # What a strategy, the list or the arguments may give another meaning at the next call is not kept.
        if is_plain and not is_ours and not call.options.is_special and not outcome.options.version:
            if len(self._tools) >= _NAMES:
                self._tools.clear()
                self._routes.clear()
                self._aliases.clear()
            self._tools[name] = outcome.tool
        return outcome

    @staticmethod
    def _is_on(call: Call, tool: Tool) -> bool:
        """Whether the tool is switched on. Switches change in place and are no term of a plan."""
        scope = call.session.scope
        return tool.name not in scope.disabled and tool.name not in scope.disabled_for_all


def _reader(asked: str, around: Surroundings) -> tuple[str, Tool] | None:
    """Return the meta-tool that reads stored results, if requested by its other name and no tool has that name."""
    if asked != _READ_RESULT or around.visible.catalog.find(asked) is not None:
        return None
    return around.verbs.get(around.visible.profile.verbs.get("read", ""))


def _in_own_words(call: Call, rename: Rename, around: Surroundings) -> tuple[Call, Rename]:
    """Return the call with the arguments of the real tool, and the alias entry used.

    Values that the alias fixes override the caller's.
    """
    visible = around.visible
    shown = visible.aliases.present(visible.catalog.tools[rename.tool], call.name)
    given, notes = repair(call.arguments, shown.input_schema, is_read=shown.kind == "read")
    meant = rename.choose(given)
    if rename.instead:
        shown = visible.aliases.present_as(meant, call.name)
        given = {name: value for name, value in given.items() if name not in meant.when}
    filled = context_values(visible.catalog.tools[meant.tool], call.session.defaults).keys()
    changes = {
        "arguments": meant.arguments(given, filled),
        "repairs": (*call.changes.repairs, *notes),
        "as_written": (shown, given),
    }
    return call.evolve(**changes, unused=meant.notes(given)), meant


def _check_open(call: Call, tool: Tool, around: Surroundings) -> None:
    """Raise `ToolFailure` for a tool that is out of this session's scope, switched off, or unable to run here."""
    if not call.session.admits(tool):
        raise _out_of_scope(call)
    if call.session.is_disabled(tool.name):
        where = "for this session" if tool.name in call.session.scope.disabled else "for every session"
        raise ToolFailure("disabled", f"{around.visible.aliases.name(tool)} is switched off {where}")
    if tool.availability.missing:
        raise cannot_run(around.visible.aliases.name(tool), tool)


def _runs_all(shown: str, around: Surroundings) -> bool:
    """Whether the meta-tool `shown` calls tools of every kind, not those that read alone."""
    verb = VERBS[around.verbs[shown][0]]
    return verb.unwrap is not None and verb.only is None


def _how_to_get(tool: Tool, on_miss: str) -> str:
    if on_miss != "guide":
        return "ask for the tools that the task needs"
    if tool.tags:
        return f"the task must require one of its capabilities: {', '.join(tool.tags)}"
    return f"the task must ask for {tool.name}{f' or for {tool.category}' if tool.category else ''}"


def _is_skill(tool: Tool, visible: VisibleCatalog) -> ToolFailure:
    """Explain the use of a skill that was called as if it were a tool."""
    tags = set(tool.tags)
    doing = [
        other for other in visible.offered() if other.capability.type == "TOOL" and not tags.isdisjoint(other.tags)
    ]
    fallback = visible.find(tool.capability.fallback_tool) if tool.capability.fallback_tool else None
    names = dict.fromkeys(visible.aliases.name(other) for other in ([fallback] if fallback else []) + doing)
    address = f"skill://{tool.local_name}/SKILL.md"  # the argument for `read_resource`
    where = address if tool.origin == "skill" else tool.capability.skill_path or address
    helpers = f"; {', '.join(list(names)[:5])} can do such work" if names else ""
    return ToolFailure(
        "not_loaded",
        f"{visible.aliases.name(tool)} is a skill, not a tool: instructions for work that tools do. {tool.summary}",
        hint=f"read {where}, then follow it with the tools that you have{helpers}",
        details={"skill": tool.local_name, "path": where, "tools": list(names)[:5]},
    )


def _check_exact(call: Call) -> None:
    """Raise `ToolFailure` for a meta-tool outside of the exact set of this interaction."""
    if call.session.scope.exact is not None and call.name not in call.session.scope.exact:
        raise _out_of_scope(call)


def _check_no_version(call: Call) -> None:
    """Raise `ToolFailure` for a version that nothing would heed."""
    if call.options.version:
        raise ToolFailure("invalid_arguments", f"{call.name[:200]} has no versions", hint="leave `version` out")


def _out_of_scope(call: Call) -> ToolFailure:
    """Refuse under the requested name: the tool's real name is out of scope too."""
    return ToolFailure("not_in_scope", f"{call.name[:200]} is not in the scope of this session")
