"""The decision on one call. Every failure denies. The first of these that applies decides, and is named:

  1  a deny: of a written rule, of the permissions of single tools, remembered from a `never`; a missing approved plan
     in a mode that needs one; behind a client also of a rule `call_tool(name=…)`
  2  the tool asks always (seed 002: `alwaysRequireApproval`)
  3  the command is irreversible, or runs without a sandbox
  4  an ask, then an allow: of a written rule or of the permissions, among which the mode's replace the global ones
  5  an `always` that was answered in this session, then `all`, `turn` and `idle`
  6  behind a client (`guard: off`): a call through a meta-tool, and one that another call makes of a tool named in its
     arguments, asks unless a rule `call_tool(name=…)` allows it, for the client's own prompt named the other tool;
     `call_tool_readonly` with a tool that reads is excepted. Such a rule that asks comes before an allow of 4. A call
     by the name of a tool that the client was not listed is treated alike: clients ask about the tools of their list,
     so the name came from elsewhere (a search, a guess, the text of a result) and may have passed no prompt
  7  the mode, by the kind of the tool; a shell command that only reads counts as a read, a request as its method

A call that brings the placeholder of a hidden value asks where it is not denied (`secret_arguments`). In a session
that has read untrusted content, an allow that does not name the tool may become an ask (`taint`). An
allowed call still runs only with the `Grant` that the `approve` step mints.

Listed is a tool that any list sent in this session had: a client may go on with an older list, after the catalog has
changed. Before its first list, a session counts what it would be listed now: clients keep their lists when they connect
again, and requests of the stateless era may each have a session of their own. Under which of its names a tool was
listed has no effect. A tool that has joined the list counts once the client has read the list again.

`decide_call` is for calls on their way: the step `Decide`, and an open question, which asks again while it waits.
`decide` is for what has no `Call`: reads of resources, and explanations (`toolcrib policy test`, `why`). Lists of tools
ask `hiding` alone, as they have no arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from anyio import CapacityLimiter, to_thread

from ..core.call import NESTED, OF_CLIENTS, Call, effective_arguments
from ..core.permission import EFFECTS, Decision, Effect
from ..core.sandbox import SHELL_FOLDER
from ..core.session import UNSANDBOXED, SessionState
from ..core.similar import did_you_mean
from ..core.tool import Tool
from ..errors import UsageError
from .destructive_commands import irrecoverable_effect
from .modes import DONE, MODES, Mode, kind_of, permitted
from .origin import is_local
from .remembered_answers import approved_as, blanket_answer
from .rule_layers import RuleLayers
from .rules import Rule, Rules, names_of, spellings_of
from .secret_arguments import decide_on_placeholders
from .shell.command_tools import CallArguments, as_cell, runs_shell
from .shell.readonly_commands import is_read_only_call
from .taint import Taint

__all__ = ["Policy", "approved_as"]

_logger = logging.getLogger(__name__)
_NO_PERMISSIONS: Final[Mapping[str, Effect]] = MappingProxyType({})
_CALL_TOOL: Final = Tool(name="call_tool", source="toolcrib", local_name="call_tool")
"""Stands for a call through a meta-tool, in rules about such calls."""
_ARGUMENT_TRAITS: Final = frozenset({"by_action", "by_method", "file_writer"})
"""Traits of tools whose decisions look at arguments."""
_READER_THREADS: Final = 2
"""Threads that read files for decisions: their own, as a tool that waits for a decision may hold one of the others."""
_UNDECIDED: Final = Decision(effect="deny", rule="the policy, which could not decide (see the log)")


def _not_strict() -> bool:
    return False


def _no_file(tool: Tool, arguments: Mapping[str, Any]) -> str:
    return ""


class Policy:
    """Permissions of tools, and the rules. One for a crib; immutable, so that a decision depends on the call alone.

    The files that a command runs, which are read for a decision, are those of the moment: a later change of them is
    not seen.

    Reads no clock, store or network. Sessions keep what decisions depend on beside the rules: mode, remembered answers,
    taint. `Policy.is_usual` says whether such state, or the guard, can matter for a call; it must know everything that
    `decide_call` reads and that is not a term of the plan (`dispatch.plan.Subject`).
    """

    def __init__(
        self,
        rules: RuleLayers | None = None,
        modes: Mapping[str, Mode] = MODES,
        permissions: Mapping[str, Effect] = _NO_PERMISSIONS,
        taint: Taint | None = None,
        broken: str = "",
        *,
        behind_client: bool = False,
        is_strict: Callable[[], bool] = _not_strict,
        file_of: Callable[[Tool, Mapping[str, Any]], str] = _no_file,
    ) -> None:
        """`modes` are those that a session may name; `permissions` those of single tools in every mode.

        `broken` names a rule that could not be read: then only read tools of this machine are not denied.
        `behind_client`: MCP clients ask their users themselves, about the tools that they show by name; while
        `is_strict`, decisions are nevertheless those of the mode `cautious`, and taint asks. `file_of` returns the path
        of the file that a call reads where its source chooses the folder; empty for any other call.
        """
        self.is_strict = is_strict
        """Whether the guard is switched on, at this moment, for a crib that was opened without it."""
        self._behind_client = behind_client
        self._rules = rules or RuleLayers()
        self._modes = dict(modes)
        self._permissions = permissions
        self._broken = broken
        self._asking_taint = (taint or Taint()).model_copy(update={"ask": True})
        self.taint = taint or Taint()
        """Effects of untrusted content; the steps that mark results use it, too."""
        self._file_of = file_of
        self._reader_limiter: CapacityLimiter | None = None

    def mode(self, name: str) -> Mode:
        """Return a mode by its name; raises `UsageError` with the nearest one."""
        if name not in self._modes:
            known = ", ".join(sorted(self._modes))
            raise UsageError(f"unknown mode {name!r} (known: {known}){did_you_mean(name, self._modes)}")
        return self._modes[name]

    def reads_files(self, call: Call) -> bool:
        """Whether a rule in force looks into the files that the command of `call` runs."""
        return self._rules.of(call.session).read_files(call.target)

    async def read(self, call: Call) -> CallArguments | None:
        """Read the files that the command of `call` runs, for `decide_call`; None where no rule in force needs them.

        In a thread: a large Makefile takes longer than the event loop may stand still.

        Two threads of its own: with the pool's, forty tools that wait in threads could hold back every decision.
        Cancelling the caller leaves the thread behind, whose answer is not used.
        """
        if not self.reads_files(call):
            return None
        tool, session, arguments = call.target, call.session, None
        decide = self._rules.of(session).decide  # it asks for just what the rules need, and keeps what they answer
        with suppress(Exception):  # the decision meets it again, and denies
            arguments = self._arguments_for_rules(tool, call.arguments, session)
            self._reader_limiter = self._reader_limiter or CapacityLimiter(_READER_THREADS)
            await to_thread.run_sync(
                decide, tool, arguments, _folder_of(session), abandon_on_cancel=True, limiter=self._reader_limiter
            )
            arguments.started.clear()  # the question of a call may be open for hours
        return arguments

    def decide_call(self, call: Call, read: CallArguments | None = None) -> Decision:
        """Return the decision on a resolved call, as `decide` does, by the way that it took to its tool.

        `read` is what `read` returned for the call: its files are taken as they were then.

        Beside `decide`, it knows the way of the call: a meta-tool, a tool that the client was not listed, a
        placeholder, a step of a workflow that wants to ask. None of these turns a deny into anything else.
        """
        session, arguments = call.session, call.arguments if read is None else read
        decision = self.decide(call.target, arguments, session, is_unlisted_call=self._is_unlisted_call(call))
        if decision.effect != "deny" and call.may_use_secrets:
            secret = decide_on_placeholders(call.target, call.arguments, session, self._rules.of(session))
            decision = secret or decision
        if call.options.ask and decision.effect == "allow":
            return Decision(effect="ask", rule=f"workflow step: its definition asks before {call.target.name}")
        return decision

    def rests_on_lists(self, call: Call) -> bool:
        """Whether an MCP client that asks its user calls a tool by its name, and no list of the session had it."""
        audience, tool = call.session.audience, call.target
        if not self._behind_client or not audience.is_client or call.origin not in OF_CLIENTS or call.route.verb:
            return False
        is_known = audience.listed is not None and (tool.source, tool.local_name) in audience.listed
        return not is_known and tool.source != _CALL_TOOL.source

    def _is_unlisted_call(self, call: Call) -> bool:
        """Whether the client's prompt named another tool, which takes this one among its arguments, or none.

        A workflow and a delegate of a catalog are shown by their own names: what they call, the user wrote down.

        `approval: never` excepts a tool, whose author declared that it need not ask; a workflow cannot except itself
        so.
        """
        tool = call.target
        is_unnamed = bool(call.route.verb) or call.origin == NESTED or call.route.is_unlisted
        is_asked = self._behind_client and is_unnamed and call.session.audience.is_client
        never_asks = tool.approval == "never" and tool.origin != "workflow"
        if not is_asked or never_asks or self.is_strict():
            return False
        return not (tool.kind == "read" and (call.options.only == "read" or is_local(tool)))

    def decide(
        self, tool: Tool, arguments: Mapping[str, Any], session: SessionState, *, is_unlisted_call: bool = False
    ) -> Decision:
        """Return the decision on this tool with these arguments. Never raises: an undecidable call is denied.

        It concerns the effective arguments (`core.call`): the same before and after filling in defaults.
        `is_unlisted_call`: the client before us, which asks its user itself, has not shown the tool by its name.

        The order inside: rules and modes first, then taint on an allow. An exception anywhere is a deny, named
        `_UNDECIDED`, which no plan keeps.
        """
        try:
            if not isinstance(arguments, CallArguments):
                arguments = self._arguments_for_rules(tool, arguments, session)
            decision = self._decide(tool, arguments, session, is_unlisted_call=is_unlisted_call)
            if decision.effect == "allow" and session.taint.cause:  # taint only takes away: it never allows
                taint = self._asking_taint if self.is_strict() else self.taint
                return taint.asks(tool, arguments, session, decision) or decision
            return decision
        except Exception:  # the gate stays shut when it breaks
            _logger.exception("the policy could not decide on %s", tool.name)
            return _UNDECIDED

    def is_usual(self, call: Call) -> bool:
        """Whether nothing but tool, arguments, rules and mode decides on this call: no answers, taint or guard."""
        session = call.session
        approvals, taint = session.approvals, session.taint
        if call.options.ask or taint.source or taint.is_unread or approvals.remembered or approvals.blanket:
            return False
        if call.may_use_secrets:
            return False
        is_asked = self._behind_client and session.audience.is_client
        return not (is_asked and (call.route.verb or self.rests_on_lists(call))) and not self.is_strict()

    def is_settled(self, tool: Tool, session: SessionState, decision: Decision) -> bool:
        """Whether `decision` on a usual call holds for any arguments, until rules or mode change.

        Arguments matter for tools with a trait in `_ARGUMENT_TRAITS`, for shells, and wherever a rule about the tool
        has a condition.
        """
        looks = not _ARGUMENT_TRAITS.isdisjoint(tool.traits) or runs_shell(tool)
        return not looks and decision is not _UNDECIDED and not self._rules.of(session).look_at_arguments(tool)

    def rules_of(self, session: SessionState) -> Iterable[Rule]:
        """Return the written rules that hold for a session, layer by layer."""
        return tuple(self._rules.of(session))

    def hiding(self, session: SessionState) -> Rules | None:
        """Return the rules of a session where some of them deny tools for all arguments: lists leave these out."""
        rules = self._rules.of(session)
        return rules if rules.has_whole_denials else None

    def permissions(self, session: SessionState) -> Mapping[str, Effect]:
        """Return the permissions of single tools in the session's mode."""
        return self.mode(session.mode).tools

    def _arguments_for_rules(self, tool: Tool, arguments: Mapping[str, Any], session: SessionState) -> CallArguments:
        """Return the effective arguments as the rules look at them. Raises what `effective_arguments` does.

        `CallArguments` keep what rules find in the files of the command, so that several rules read each file once.
        """
        arguments = as_cell(tool, effective_arguments(tool, arguments, session.defaults))
        if "file_reader" in tool.traits and (path := self._file_of(tool, arguments)):
            arguments = {**arguments, "path": path}
        if not isinstance(arguments, CallArguments):
            arguments = CallArguments(arguments, session.runtime.get(SHELL_FOLDER) if runs_shell(tool) else None)
        return arguments

    def _decide(
        self, tool: Tool, arguments: Mapping[str, Any], session: SessionState, *, is_unlisted_call: bool
    ) -> Decision:
        if self._broken and not (tool.kind == "read" and is_local(tool)):
            return Decision(effect="deny", rule=f"rules that cannot be read: {self._broken}")
        # The numbers are those of the list at the top of this module.
        mode = self.mode(session.mode)
        ruled = self._decide_by_rules(tool, arguments, session, mode)
        if ruled is not None and ruled.effect == "deny":  # 1
            return ruled
        through = self._decide_by_call_tool_rules(tool, session) if is_unlisted_call else None
        if through is not None and through.effect == "deny":  # 1, behind a client
            return through
        if through is not None and through.effect == "ask" and ruled is not None and ruled.effect == "allow":
            ruled = None  # 6 comes before an allow of 4
        decided = (
            _decide_before_rules(tool, arguments, session, mode) or ruled or _decide_by_answers(tool, session)
        )  # 1 to 3, 4, 5
        if decided is not None:
            return decided
        usual = _decide_by_mode(tool, arguments, session, mode)  # 7, which 6 narrows
        if self.is_strict():  # a mode stricter than `cautious` stays so
            careful = _decide_by_mode(tool, arguments, session, self.mode("cautious"))
            usual = min(usual, careful, key=lambda one: EFFECTS.index(one.effect))
        if is_unlisted_call and usual.effect == "allow":
            default = f"call_tool: the client did not ask about {tool.name} by its name"
            return through or Decision(effect="ask", rule=default)
        return usual

    def _decide_by_call_tool_rules(self, tool: Tool, session: SessionState) -> Decision | None:
        """Return the strictest decision of the rules `call_tool(name=…)` that match `tool`, None without one.

        A deny and an ask hold for every spelling of the name; an allow only for the names that the catalog itself
        gives.
        """
        about = Rules(rule for rule in self._rules.of(session) if rule.text.partition("(")[0] == _CALL_TOOL.name)
        names = names_of(tool)
        found: list[Decision] = []
        for name in sorted(spellings_of(tool, "deny")):
            decision = about.decide(_CALL_TOOL, {"name": name})
            if decision is not None and (decision.effect != "allow" or name in names):
                found.append(decision)
        return min(found, key=lambda decision: EFFECTS.index(decision.effect), default=None)

    def _decide_by_rules(
        self, tool: Tool, arguments: Mapping[str, Any], session: SessionState, mode: Mode
    ) -> Decision | None:
        """Return the strictest decision of the written rules and the permissions; a written rule is named first.

        A deny is stricter than an ask, an ask than an allow; of two equal ones, that which names the tool itself.
        """
        written = self._rules.of(session).decide(tool, arguments, _folder_of(session))
        if not mode.tools and not self._permissions:
            return written
        entered = permitted(tool, mode.tools, self._permissions, mode.name)
        decisions = [decision for decision in (written, entered) if decision is not None]
        return min(decisions, key=lambda one: (EFFECTS.index(one.effect), not one.named), default=None)


def _folder_of(session: SessionState) -> Path:
    """Return the folder in which the commands of a session run."""
    workspace = session.files.workspace
    return workspace.root if workspace is not None else session.files.cwd


def _decide_before_rules(
    tool: Tool, arguments: Mapping[str, Any], session: SessionState, mode: Mode
) -> Decision | None:
    """Return the decision that allowing rules cannot override."""
    if session.approvals.remembered.get(tool.name) == "deny":
        return Decision(effect="deny", rule=f"the answer 'never' for {tool.name} in this session")
    if session.scope.planning and mode.plan:
        return mode.before_plan(tool)
    if tool.approval == "always":
        return Decision(effect="ask", rule=f"approval always: {tool.name} asks in every mode")
    if UNSANDBOXED in session.scope.provided and _runs_programs(tool):
        return Decision(effect="ask", rule=f"no sandbox: {tool.name} asks in every mode")
    if lost := irrecoverable_effect(tool, arguments):
        return Decision(effect="ask", rule=f"irrecoverable: {lost} asks in every mode")
    return None


def _runs_programs(tool: Tool) -> bool:
    """Whether it runs programs of the workspace: a language server loads plugins from there at any request."""
    return ("shell" in tool.availability.needs and tool.kind != "read") or "language_server" in tool.availability.needs


def _decide_by_answers(tool: Tool, session: SessionState) -> Decision | None:
    """Return the decision of a blanket approval of this session."""
    if session.approvals.remembered and session.approvals.remembered.get(approved_as(tool)) == "allow":
        return Decision(effect="allow", rule=f"the answer 'always' for {tool.name} in this session", named=True)
    if session.approvals.blanket and (answer := blanket_answer(session)):
        return Decision(effect="allow", rule=f"the answer '{answer}' in this session")
    return None


def _decide_by_mode(tool: Tool, arguments: Mapping[str, Any], session: SessionState, mode: Mode) -> Decision:
    """Return the mode's effect for the tool's kind; a read-only command is a read, even of a tool that can do more.

    Not so for what the session treats as a write.
    """
    is_write = tool.is_among(session.treat_as_write)
    if not is_write and tool.kind != "read" and runs_shell(tool) and is_local(tool) and is_read_only_call(arguments):
        return Decision(effect=mode.read, rule=f"mode {mode.name}: a command that only reads is {DONE[mode.read]}")
    is_diverted = session.files.workspace is not None and session.files.workspace.diverts
    return mode.decide(tool, kind_of(tool, arguments), treat_as_write=is_write, diverted=is_diverted)
