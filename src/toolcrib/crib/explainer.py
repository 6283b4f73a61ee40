"""Whether a session could call a tool here and now and, if not, what stops it.

Asks what the pipeline asks, in its order: `Resolve` for the name, the pin, the scope, the switches and the profile,
`repair` and `migrate` for the arguments, the budget, `Policy.decide` for the rules, then the state of the source. Runs
nothing, asks no approver, spends nothing; references to kept outputs in the arguments stay references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..core.call import Call
from ..core.events import Problem
from ..core.permission import Decision
from ..core.session import SessionState
from ..core.tool import Tool
from ..disclosure.profiles import VERBS
from ..dispatch.budgets import BudgetUsage
from ..dispatch.steps.arguments import Migrate, Repair
from ..dispatch.steps.custom import CustomSteps, step_name
from ..dispatch.steps.resolve import Resolve, Surroundings
from ..errors import ToolFailure, UsageError
from ..policy.decision import Policy
from ..sources.source import Source
from .needs import held_back
from .session import Session
from .tools import ToolRegistry
from .views import Views

Stop = Literal[
    "",
    "name",
    "source",
    "definition",
    "pin",
    "scope",
    "context",
    "need",
    "disabled",
    "profile",
    "arguments",
    "budget",
    "rule",
    "approval",
]
"""Reason that stops a call: none, an unknown tool, the state of its source, its own definition, …"""

_BY_CODE: Final[Mapping[str, Stop]] = {
    "not_found": "name",
    "quarantined": "pin",
    "definition_changed": "pin",
    "not_in_scope": "scope",
    "unavailable": "need",
    "disabled": "disabled",
    "not_loaded": "profile",
    "denied": "profile",
    "invalid_arguments": "arguments",
    "budget_exceeded": "budget",
}
"""Part that refused, by the code of a refusal before the rules; any other code is the profile's own."""

_BEFORE_STEPS: Final = ("name", "definition", "pin", "scope", "context", "need", "disabled", "profile", "arguments")
"""Reasons that stop a call before the program's own steps get it."""

_PROVIDED_BY: Final[Mapping[str, str]] = {
    "language_server": (
        "name one: `tools: {lsp: {servers: {python: {command: [pyright-langserver, --stdio], files: ['*.py']}}}}`"
        " in the config (`pip install pyright`; or gopls: `go install golang.org/x/tools/gopls@latest`);"
        " it runs in a sandbox"
    ),
    "plan": "only a session that is in a mode with a plan, and has none yet, has it",
    "shell": (
        "commands run in a sandbox: install bubblewrap (`apt install bubblewrap`); without one they run where a person"
        " can be asked before each of them: session(approver=…); `toolcrib doctor` says more"
    ),
    "sockets": (
        "programs that talk to each other over sockets run in bubblewrap (`apt install bubblewrap`) or a container, not"
        " under Landlock or Seatbelt"
    ),
    "user": "give the session an elicitor: session(elicitor=…), or a client that can ask its user",
    "workspace": "declare the folder that tools may work in: `workspace: .` in the config, or session(workspace=…)",
}
"""Ways to meet a tool's needs; a key for each of `sources.python.declaration.NEEDS`."""

_AWAY: Final = ("failed", "stale", "needs_login", "closed")
"""States of a source that cannot be reached."""


class Why(Struct, frozen=True, kw_only=True):
    """The answer. It is about the tool: whether arguments are valid is another question."""

    asked: str
    verdict: Literal["runs", "asks", "refused"]
    """`asks`: runs after an approval."""
    reason: str
    """Reason for the outcome: the rule by its name, or the refusal as the model would read it."""
    tool: str = ""
    """Its name in the catalog; empty if there is none."""
    source: str = ""
    results: str = ""
    """Trust and origin of the tool's results (`policy.origin`); empty where no tool is reached."""
    stopped_by: Stop = ""
    code: str = ""
    """The code of the error that the call would get."""
    hint: str = ""
    version: str = ""
    """The version that this session has; empty for a tool that says none."""
    deprecated: str = ""
    """Reason of the deprecation, and the replacement."""
    before: tuple[str, ...] = ()
    """Names of the program's own steps that would get the call before anything is decided. They are not run here."""
    after: tuple[str, ...] = ()
    """Names of the program's own steps that would get the result."""


class Explainer:
    """Answers for one crib."""

    def __init__(
        self,
        views: Views,
        policy: Policy,
        sources: Mapping[str, Source],
        tools: ToolRegistry,
        budget_usage: BudgetUsage,
        custom: CustomSteps,
    ) -> None:
        """Take the parts that the pipeline of the crib decides with, and the program's own steps, to name them."""
        self._before = tuple(map(step_name, custom.before))
        self._after = tuple(map(step_name, custom.after))
        self._views = views
        self._resolve, self._repair, self._migrate = Resolve(views.surroundings), Repair(), Migrate()
        self._policy = policy
        self._sources = sources
        self._tools = tools
        self._budget_usage = budget_usage

    def why(self, name: str, session: Session, arguments: Mapping[str, Any] | None = None) -> Why:
        """Return whether `session` could call `name` now and, if not, what stops it; see `Why`.

        `arguments` matter where a rule looks at them. For operators: the answer reveals tools out of scope, too.
        """
        why = self._explain(name, session.state, arguments or {})
        if not (self._before or self._after):
            return why
        reached = why.tool and why.stopped_by not in _BEFORE_STEPS
        return replace(why, before=self._before if reached else (), after=self._after)

    def decide(self, name: str, session: Session, arguments: Mapping[str, Any] | None = None) -> Decision:
        """Return the decision of the policy on a call of `name` in `session`, regardless of other obstacles.

        Names and arguments may be the profile's or the tool's own. Raises `UsageError` for a name without a tool.
        """
        decision = self._decide(name, session.state, arguments or {})
        if decision is None:
            raise UsageError(f"there is no tool {name!r}; `toolcrib tools` lists them")
        return decision

    def _explain(self, name: str, state: SessionState, arguments: Mapping[str, Any]) -> Why:
        """Return the outcome of a call of `name` in this session, with its reasons."""
        around = self._views.surroundings(state)
        meant = _local(name, around)
        if _is_verb_itself(meant, around, arguments) and (state.scope.exact is None or meant in state.scope.exact):
            return Why(asked=name, verdict="runs", reason=f"a verb of the profile {state.profile}", tool=meant)
        try:
            call = self._read(meant, state, arguments)
        except ToolFailure as failure:
            return self._refused(name, meant, failure, around)
        tool = call.target
        try:
            self._budget_usage.check(state, tool.name)
        except ToolFailure as failure:
            return _stopped(name, tool, failure, "budget")
        return self._decided(name, call)

    def _decide(self, name: str, state: SessionState, arguments: Mapping[str, Any]) -> Decision | None:
        """Return the decision of the policy alone on a call of `name`; None where the catalog has no such tool.

        Where the call would be refused before any decision, `name` and `arguments` are taken as the tool's own.
        """
        around = self._views.surroundings(state)
        meant = _local(name, around)
        try:
            call = self._read(meant, state, arguments)
        except ToolFailure:
            tool = around.visible.catalog.find(meant)
            return None if tool is None else self._policy.decide(tool, arguments, state)
        return self._policy.decide_call(call)

    def _read(self, name: str, state: SessionState, arguments: Mapping[str, Any]) -> Call:
        """Return the call of the real tool with its own arguments; raises `ToolFailure` as the pipeline does."""
        call = self._resolve.read(Call(id="", name=name, arguments=arguments, session=state))
        return self._migrate(self._repair(self._by_client(call)))

    def _by_client(self, call: Call) -> Call:
        """Return the call as a client's model makes it: by a meta-tool where the client's list lacks the tool."""
        tool, around = call.target, self._views.surroundings(call.session)
        shown = ((one.source, one.local_name) for one in around.view().tools)
        if not call.session.audience.is_client or call.route.verb or (tool.source, tool.local_name) in shown:
            return call
        verbs = around.visible.profile.verbs
        if tool.kind == "read" and "call_readonly" in verbs:
            return call.evolve(verb="call_readonly", only="read")
        return call.evolve(verb="call") if "call" in verbs else call

    def _decided(self, name: str, call: Call) -> Why:
        tool, state = call.target, call.session
        decision = self._policy.decide_call(call)
        if decision.effect == "deny":
            return _stopped(name, tool, ToolFailure("denied", f"denied by {decision.rule}"), "rule")
        find_defect = getattr(self._sources.get(tool.source), "find_defect", None)
        if find_defect is not None and (defect := find_defect(tool)):
            return _stopped(name, tool, defect, "definition")
        if decision.effect == "ask" and state.approvals.approver is None:
            failure = ToolFailure("denied", f"{decision.rule}, and this session has no approver")
            return _stopped(name, tool, failure, "approval")
        health = self._tools.state_of(tool)
        if health.state in _AWAY:
            message = f"{health.source} {health.state}: {health.detail}"
            failure = ToolFailure("unavailable", message, hint="`toolcrib doctor` looks at the servers")
            if health.state == "needs_login":
                failure = ToolFailure("unavailable", health.detail)
            return _stopped(name, tool, failure, "source")
        verdict = "runs" if decision.effect == "allow" else "asks"
        origin = self._policy.taint.origin_of(tool)
        instead = f"; use {tool.replaced_by}" if tool.replaced_by else ""
        return Why(
            asked=name,
            verdict=verdict,
            reason=decision.rule,
            tool=tool.name,
            source=tool.source,
            results=f"{origin.trust}: {origin.reason}",
            version=tool.version,
            deprecated=f"{tool.deprecated}{instead}",
        )

    def _refused(self, name: str, meant: str, failure: ToolFailure, around: Surroundings) -> Why:
        """Say what refused the name. The one who asks may know what the model may not: what there is out of scope."""
        rename = around.visible.aliases.rename_of(meant)
        tool = around.visible.catalog.find(rename.tool if rename is not None else meant)
        if tool is None:
            return self._missing(name, meant, failure, around)
        return _kept_back(name, tool, failure, around.visible.session)

    def _missing(self, name: str, meant: str, failure: ToolFailure, around: Surroundings) -> Why:
        """Say why the catalog has no tool of this name: its source holds it back, it is withheld, or never arrived."""
        stands = around.visible.profile.naming.names.get(meant)
        waiting = stands.tool if stands is not None else meant
        if (held := held_back(self._sources.values(), waiting)) is not None:
            source, needs = held
            shown = _needing(failure.code, set(needs - around.visible.session.scope.provided))
            return _why(name, shown, "need", tool=waiting, source=source)
        stop: Stop = "source" if failure.code == "unavailable" else _BY_CODE.get(failure.code, "profile")
        local = around.visible.aliases.withheld_name(meant)
        problem = around.visible.catalog.withheld.get(local)
        if problem is None and (problem := self._broken(local)) is not None:
            stop = "definition" if problem.tool else "source"
        if problem is not None:
            shown = ToolFailure(failure.code, problem.message, hint=problem.hint)
            return _why(name, shown, stop, source=problem.source)
        if failure.code == "not_found":
            failure = ToolFailure(failure.code, failure.message, hint=_how_to_find(failure, around))
        return _why(name, failure, stop)

    def _broken(self, name: str) -> Problem | None:
        """Return the problem of a listed tool that was not taken, or of a source that has not listed."""
        problems = tuple(self._tools.problems)
        for problem in problems:
            if problem.tool and name in (f"{problem.source}__{problem.tool}", f"{problem.source}/{problem.tool}"):
                return problem
        for source in self._sources.values():
            state = source.state
            if state.state in (*_AWAY, "connecting") and name.startswith((f"{source.name}__", f"{source.name}/")):
                if state.state == "needs_login":
                    return Problem(source=source.name, code="unavailable", message=state.detail)
                return Problem(
                    source=source.name,
                    code="unavailable",
                    message=f"{source.name} is {state.state} and has listed no such tool: {state.detail}".rstrip(": "),
                    hint="`toolcrib doctor` looks at the servers",
                )
        return None


def _is_verb_itself(name: str, around: Surroundings, arguments: Mapping[str, Any]) -> bool:
    """Whether the call is of a meta-tool, and not of the tool that its arguments name."""
    found = around.verbs.get(name)
    return found is not None and (VERBS[found[0]].unwrap is None or not arguments)


def _local(name: str, around: Surroundings) -> str:
    """Return the catalog's name for SERVER/NAME, as problems and `toolcrib show` write it; any other as it is."""
    source, slash, local = name.partition("/")
    catalog = around.visible.catalog
    if not slash or catalog.find(name) is not None:
        return name
    known = {(tool.source, tool.local_name): tool.name for tool in catalog.tools.values()}
    known |= {(problem.source, problem.tool): withheld for withheld, problem in catalog.withheld.items()}
    return known.get((source, local), name)


def _kept_back(name: str, tool: Tool, failure: ToolFailure, state: SessionState) -> Why:
    """Say what keeps a tool of the catalog from this session; of one in scope, what the session lacks for it."""
    if failure.code == "not_loaded" and tool.capability.type != "SKILL":  # its hint is a call for a model to make
        hint = "a model loads it before it calls it; the profile flat has every tool loaded"
        failure = ToolFailure(failure.code, failure.message, hint=hint)
    if failure.code != "not_in_scope" or not state.includes(tool.name):
        return _stopped(name, tool, failure, _BY_CODE.get(failure.code, "profile"))
    if missing := set(tool.availability.needs) - state.scope.provided:
        return _stopped(name, tool, _needing(failure.code, missing), "need")
    wanted, has = (", ".join(sorted(contexts)) for contexts in (tool.availability.contexts, state.scope.contexts))
    shown = ToolFailure(failure.code, f"it is for sessions that are {wanted}; this one is {has}")
    return _stopped(name, tool, shown, "context")


def _needing(code: str, missing: set[str]) -> ToolFailure:
    """Say what the session would have to have, and where one says that it has it."""
    return ToolFailure(
        code,
        f"it needs a {' and a '.join(sorted(missing))}, and this session has none",
        hint="; ".join(_PROVIDED_BY[need] for need in sorted(missing)),
    )


def _how_to_find(failure: ToolFailure, around: Surroundings) -> str:
    """Say to a person how to find the tool that an unknown name was to mean; models have a meta-tool for it."""
    close, starting = failure.details.get("nearest", ()), around.visible.starting()
    hint = f"did you mean {', '.join(close)}? " if close else ""
    hint += f"still starting: {', '.join(starting)}. " if starting else ""
    return f"{hint}`toolcrib tools` lists all, `toolcrib find` searches"


def _stopped(name: str, tool: Tool, failure: ToolFailure, stop: Stop) -> Why:
    return _why(name, failure, stop, tool=tool.name, source=tool.source)


def _why(name: str, failure: ToolFailure, stop: Stop, *, tool: str = "", source: str = "") -> Why:
    return Why(
        asked=name,
        verdict="refused",
        reason=failure.message,
        tool=tool,
        source=source,
        stopped_by=stop,
        code=failure.code,
        hint=failure.hint,
    )
