"""The only place where a tool's body is entered.

A call without a grant that covers exactly this tool and these arguments does not run. The intent of a call with side
effects is on disk before it starts; if it cannot be written, the call does not start. That of a call which changes
nothing but the store is written with the change. The grant is spent last, without a pause before the body: while it is
unspent, nothing ran.

A call that may outlive its caller runs as a job, for which the caller waits a while. The permission was given before,
and the job finishes the call (enrich, redact, limit, record) once, when it ends. A caller that leaves while it waits
cancels the call, as without a job.

Tools and sources reach the client through a peer that redacts secrets (`dispatch.redacted_peers`).

    Execute.__call__     the locks (`lock_keys`) and the seconds (`allowed_time`) of the call
      _timed             one deadline around everything that follows, the wait for locks and memory included
        _run             1. what runs is what it was when a person was asked
                         2. intent on disk, unless the tool only reads
                         3. hidden values in the place of their placeholders
                         4. grant spent ── no await ──► 5. Source.call
                         6. in any case: taint, and output that was held back
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio import to_thread
from msgspec.structs import replace

from ...catalog.catalog import Catalog
from ...core.call import NO_CLIENT, OF_CLIENTS, UNREAD, USUAL, Call
from ...core.call_guards import Deadlines, Lag, Signal
from ...core.context import CallHost, Context, Sent
from ...core.elicitation import Elicitor
from ...core.intent import Intent
from ...core.json import with_texts
from ...core.kept_secrets import KeptSecrets, placeholders_in
from ...core.memory import MemoryBudget
from ...core.permission import Effect
from ...core.result import ToolResult
from ...core.session import SessionState
from ...core.taint import StoredTaint
from ...core.tool import Tool
from ...disclosure.base import Profile
from ...disclosure.renames import in_profile_words
from ...errors import ToolFailure
from ...jobs.job import LOOK, Jobs, requested_name
from ...policy.grant import spend
from ...policy.secret_arguments import passes_arguments_on
from ...sources.source import Source, still_starting
from ...store.calls import Calls
from ...workspace.marked_workspace import MarkedWorkspace
from ...workspace.tainted_files import FileMarks
from ..plan import Execute as Run
from ..plan import Subject
from ..redacted_peers import RedactedPeers
from ..running_calls import Locks, allowed_time, lock_keys

_AT_ONCE: Final = 0.0
"""Seconds that the caller of a background call waits."""

_logger = logging.getLogger(__name__)
_CHECK: Final = 10.0
"""Seconds for a check before a question."""
_RETRY: Final = 5.0
"""Seconds after which a call that found no memory may be tried again."""
_LAST_WORDS: Final = 1.0
"""Seconds for a client to take the rest of the output of an ended call."""


class InBackground:
    """Decides which calls may go on in the background, and answers their callers. One for a crib.

    Called by the pipeline after `approve`, so that a call which needs an answer asks for it in front of its caller.
    """

    def __init__(
        self,
        jobs: Jobs,
        envelope: Callable[[Call, ToolResult], ToolResult],
        profile_of: Callable[[SessionState], Profile],
        catalog_of: Callable[[SessionState], Catalog],
    ) -> None:
        """`envelope` converts the caller's interim answer to the form of its profile, which `profile_of` returns.

        The answer names the tool that has the result, where `catalog_of` has it: a program asks for a job by itself.
        """
        self._jobs = jobs
        self._envelope = envelope
        self._profile_of = profile_of
        self._catalog_of = catalog_of

    def __call__(self, call: Call) -> Awaitable[Callable[[], Awaitable[ToolResult]]] | None:
        """Return the function that starts `call` as a job; None for a call that runs in the foreground.

        A call that only exceeds its waiting time stays in the foreground if the limit of jobs is reached; one that was
        requested in the background is refused then.
        """
        if call.options.job_seconds is not None:  # it is made as a job already
            return None
        threshold = call.target.execution.background_after
        if call.options.background:
            return self._start(call, _AT_ONCE)
        if threshold is None or _has_to_wait(call) or not self._jobs.room(call.session.principal):
            return None
        return self._start(call, threshold)

    async def _start(self, call: Call, threshold: float) -> Callable[[], Awaitable[ToolResult]]:
        """Start the job, and return the wait of its caller. Raises `ToolFailure("overloaded")`."""
        id = await self._jobs.start(call)
        return lambda: self._wait(call, id, threshold)

    async def _wait(self, call: Call, id: str, threshold: float) -> ToolResult:
        """Return the answer for the caller of the job `id`, after `threshold` seconds at most.

        Three ends: the job ends in time and was an ordinary call; the caller leaves, which cancels the job; the time is
        up, which hands the job over to its principal.
        """
        try:
            result = await self._jobs.wait(id, threshold)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._jobs.forget(id)
            raise
        if result is not None and not call.options.background:
            await self._jobs.forget(id)
            return result
        try:
            await self._jobs.hand_over(id)
        except ToolFailure:  # it cannot be stored, or the limit is reached: its caller waits on, as for any call
            return await self._wait(call, id, math.inf)
        profile, look = self._profile_of(call.session), ""
        if not call.options.takes_task and LOOK in self._catalog_of(call.session):
            call.session.history.loaded.setdefault(LOOK)  # the model had nothing to ask for before
            look = in_profile_words(LOOK, profile.naming.names)
        return self._envelope(call, _job_notice(call, id, threshold, profile.plugin_of(call.target), look))


def _has_to_wait(call: Call) -> bool:
    """Whether a caller could not use the answer with a job.

    True for a session that may not ask for the result later, for a command, which ends with its answer and takes its
    jobs with it, and for an MCP client that expects structured content and accepts nothing else.

    `takes_task` is set by callers that follow jobs on their own, such as MCP clients with tasks.
    """
    if call.options.takes_task:
        return False
    if not call.session.includes(LOOK) or call.origin == "cli":
        return True
    return call.origin in OF_CLIENTS and not call.route.verb and call.target.output_schema is not None


def _job_notice(call: Call, id: str, threshold: float, plugin: str, look: str) -> ToolResult:
    """Return the interim answer to the caller of a job, in seed 003's form; `look` is the tool that has the result."""
    name = requested_name(call)
    answer: dict[str, Any] = {"background": True} if call.options.background else {"auto_backgrounded": True}
    answer |= {"task_id": id, "plugin_name": plugin, "tool_name": name}
    if not call.options.background:
        answer["threshold_seconds"] = threshold
    took = "" if call.options.background else f" takes longer than {threshold:g} s and"
    answer["message"] = f"{name}{took} goes on in the background as task {id}. It runs once: do not call it again."
    if look:
        answer["message"] += f" {look} has its result."
    rule = call.decision.rule if call.decision else ""
    return ToolResult.of_json(answer).with_meta(call_id=call.id, job=id, rule=rule)


def _nothing(values: Iterable[str], principal: str) -> None:
    """Learn nothing."""


class Execute:
    """Run the granted call at its source, inside its deadline. One for a crib.

    The locks, the deadline timer and the watchdog of the event loop are shared by all calls of the crib.
    """

    def __init__(
        self,
        sources: Callable[[str], Source | None],
        journal: Calls,
        permissions: Callable[[SessionState], Mapping[str, Effect]],
        peers: RedactedPeers,
        mark_tainted: Callable[[str, SessionState], None],
        host: CallHost | None = None,
        memory: MemoryBudget | None = None,
        learn: Callable[[Iterable[str], str], None] = _nothing,
        marks: FileMarks | None = None,
    ) -> None:
        """`sources` finds a source by name; `journal` records the intents of calls with side effects.

        `permissions` returns the permissions of single tools in a session's mode; `peers` redacts the tools' output to
        clients; `mark_tainted` taints a session with a cause; `host` provides their services; `memory` is the budget
        for large contents, None without a limit; `learn` gets the hidden values that are put in arguments, to be
        masked, and the principal; `marks` are those of files with untrusted content, None keeps none.
        """
        self._marks = marks
        self._learn = learn
        self._sources = sources
        self._journal = journal
        self._permissions = permissions
        self._peers = peers
        self._mark_tainted = mark_tainted
        self._host = host
        self._memory = memory or MemoryBudget(0)
        self._locks = Locks()
        self._deadlines = Deadlines()
        self._lag = Lag()

    def __call__(self, call: Call) -> Awaitable[ToolResult]:
        """Return the tool's result; raises `ToolFailure` when it could not run or did not end in time."""
        tool = call.target
        turns = lock_keys(tool, call.arguments, call.session.files.cwd)
        return self._timed(call, tool, turns, allowed_time(call), self._session_context(call.session))

    async def check(self, call: Call) -> str:
        """Return what stands for the implementation that `call` would run now; empty where its source does not tell.

        Raises the `ToolFailure` of a call that would fail after any answer; nothing of the tool runs.
        """
        source = self._sources(call.target.source)
        check = getattr(source, "check", None)
        if check is not None:
            await self._check(call, check)
        return await _implementation(source, call.target)

    async def _check(self, call: Call, check: Callable[[Tool, Any, Context], Awaitable[None]]) -> None:
        """Raise what `check` does.

        A check that fails itself, or takes too long, stops nothing: the call is asked about, and fails when it runs.
        """
        signal = Signal(time.monotonic() + _CHECK)
        silent = call.evolve(client=NO_CLIENT)
        taint = StoredTaint(session=call.session.taint, is_approved=False)
        context = self._context(silent, self._session_context(call.session), signal, taint)
        try:
            with anyio.move_on_after(_CHECK):
                await check(call.target, call.arguments, context)
        except ToolFailure:
            raise
        except Exception:
            _logger.exception("the check of %s failed", call.target.name)
        finally:
            if taint.read and call.origin not in UNREAD:  # its failure may show what it read
                self._mark_tainted(taint.cause_for(call.target.name), call.session)

    def bind(self, subject: Subject) -> Run:
        """Return the execution for one tool and one mode: the part of the context that no call changes is made once."""
        tool = subject.tool
        if tool is None:
            return self
        takes_turns = tool.execution.serial or not tool.annotations.read_only
        limits = subject.limits
        usual = min(tool.execution.timeout or limits.timeout, limits.max_timeout)
        base: Context | None = None

        def execute(call: Call) -> Awaitable[ToolResult]:
            nonlocal base
            if base is None:
                base = self._session_context(call.session)
            seconds = usual if call.options is USUAL else allowed_time(call)
            turns = lock_keys(tool, call.arguments, call.session.files.cwd) if takes_turns else ()
            return self._timed(call, tool, turns, seconds, base)

        return execute

    def _session_context(self, session: SessionState) -> Context:
        """Return a context with what no call of the session changes, as long as its terms are the same."""
        return Context(
            call_id="",
            session_key=session.key,
            principal=session.principal,
            runtime=session.runtime,
            host=self._host,
            cleaner=self._peers.cleaner,
            permissions=self._permissions(session),
            result_bytes=session.result_tokens * 4,
        )

    def _context(
        self, call: Call, base: Context, signal: Signal, taint: StoredTaint, intent: Intent | None = None
    ) -> Context:
        """Return the context of one call."""
        session, client, files = call.session, call.client, call.session.files
        workspace = files.workspace
        if workspace is not None and self._marks is not None:
            workspace = MarkedWorkspace(workspace, self._marks, taint, session.key)
        context = replace(
            base,
            call_id=call.id,
            first_call=call.first or call.id,
            instance=session.instance,
            defaults=session.defaults,
            user=session.user,
            deadline=signal.deadline,
            cwd=files.cwd,
            workspace=workspace,
            stored_taint=taint,
            intent=intent,
            signal=signal,
            elicitor=_elicitor(session),
            sent=Sent(),
        )
        if client is NO_CLIENT:
            return context
        return replace(
            context,
            peer=client.peer and self._peers.to(client.peer, session.principal),
            progress_token=client.progress_token,
            client_name=client.client_name,
            meta=client.meta or {},
            resume=client.resume,
            listener=client.listener,
        )

    async def _timed(self, call: Call, tool: Tool, turns: tuple[str, ...], seconds: float, base: Context) -> ToolResult:
        """Run the call inside its deadline, with its locks and its share of the memory.

        A deadline that passes leaves no result, as the scope swallows its cancellation. The end names the cause: the
        source had not started or another call held the lock (the tool did not run), a read waited for memory, or the
        tool took too long.
        """
        source = self._sources(tool.source)
        if source is None:
            raise ToolFailure("unavailable", f"{tool.source}, where {tool.name} comes from, is not open")
        call.session.history.activated.setdefault(tool.name)
        now = time.monotonic()
        # Calls that never pause, one after another, would starve the loop and its timers: each gives it a turn when one
        # is due.
        if now > self._lag.due:
            await anyio.lowlevel.checkpoint()
            now = time.monotonic()
        signal = Signal(now + seconds, is_enforced=True)  # waiting for an approval takes none of it
        is_waiting = bool(turns)
        scope = self._deadlines.open(signal.deadline, signal)
        self._lag.enter(tool)
        share = self._memory.share()
        try:
            with share, scope:
                if not turns:
                    return await self._run(call, tool, source, signal, base)
                async with self._locks.hold(turns, signal):
                    is_waiting = False
                    return await self._run(call, tool, source, signal, base)
        finally:
            self._deadlines.close(scope)
            self._lag.leave(tool)
        if signal.is_starting:
            raise still_starting(tool.source)
        if share.is_waiting and tool.annotations.read_only:
            raise _no_memory(call)
        raise _not_started(call) if is_waiting else _timed_out(call)

    async def _run(self, call: Call, tool: Tool, source: Source, signal: Signal, base: Context) -> ToolResult:
        """Enter the body of the tool.

        The order is the guarantee. An intent without an outcome means `outcome_unknown` after a crash, so it is written
        before the grant is spent; the grant is spent last, so that an unspent grant proves that nothing ran
        (`record._is_final`).
        """
        if call.implementation and await _implementation(source, tool) != call.implementation:
            raise ToolFailure(
                "definition_changed",
                f"what {call.name} runs changed after a person was asked about this call; it did not run",
                hint="call it anew where it is still wanted: the question is asked again",
            )
        intent = None
        if not tool.annotations.read_only:
            if "store_writer" in tool.traits:
                # The tool changes nothing but the store: intent and first change share one transaction, and one write
                # to the disk.
                intent = self._journal.later_intent(call)
            else:
                await self._journal.intend(call)
        taint = StoredTaint(session=call.session.taint, is_approved=_is_read_by_person(call))
        context = self._context(call, base, signal, taint, intent)
        arguments = self._filled(call) if call.may_use_secrets else call.arguments
        if call.grant is None or not spend(call.grant, tool, call.arguments, call.id):
            raise ToolFailure("denied", f"no grant covers this call of {tool.name}")
        try:
            result = await source.call(tool, arguments, context)
            is_read = taint.read and call.origin not in UNREAD
            return result.with_meta(source=tool.source, trust="untrusted") if is_read else result
        except anyio.get_cancelled_exc_class():
            # Work in a thread or process is not reached by the cancellation; it polls the signal.
            signal.abort("timeout" if time.monotonic() >= signal.deadline else "cancelled")
            raise
        finally:
            taint.is_over = True
            if taint.read and call.origin not in UNREAD:  # a call that failed, too: its error may show what it read
                self._mark_tainted(taint.cause_for(tool.name), call.session)
            if context.is_waiting:  # for output that it held back
                with anyio.move_on_after(_LAST_WORDS, shield=True):
                    await context.settle()

    def _filled(self, call: Call) -> Mapping[str, Any]:
        """Return the arguments with hidden values in the place of their placeholders, which the question named.

        The values are masked from now on wherever they come back. Raises `ToolFailure("denied")` without an approval
        of this very call, and for a value that was dropped while a person was asked.

        Placeholders stay in `Call.arguments`: grant, record and question never hold the value.
        """
        found = {} if passes_arguments_on(call.target) else {name: "" for _, name in placeholders_in(call.arguments)}
        for placeholder in found:
            kept = call.session.state_of(KeptSecrets).get(placeholder)
            if kept is None or not call.approval:
                reason = "stands for nothing any more" if kept is None else "was not approved"
                hint = "read the value again, and call the tool with its new placeholder"
                raise ToolFailure("denied", f"{placeholder} {reason}: {call.name} did not run", hint=hint)
            found[placeholder] = kept.value
        self._learn(found.values(), call.session.principal)
        return with_texts(call.arguments, lambda text: found.get(text, text)) if found else call.arguments


async def _implementation(source: Source | None, tool: Tool) -> str:
    """Return what stands for the implementation of `tool` in this moment; empty where its source does not tell."""
    read: Callable[[Tool], str] | None = getattr(source, "implementation_of", None)
    return "" if read is None else await to_thread.run_sync(read, tool)


def _is_read_by_person(call: Call) -> bool:
    """Whether a person approved this very call, and the question showed all of its arguments."""
    return bool(call.approval) and all(one.trust != "untrusted" for one in call.references)


def _elicitor(session: SessionState) -> Elicitor | None:
    """Return the session's elicitor, else its approver if it can answer questions."""
    if session.elicitor is not None or session.approvals.approver is None:
        return session.elicitor
    return getattr(session.approvals.approver, "clarify", None)


def _not_started(call: Call) -> ToolFailure:
    took = f"{time.monotonic() - call.started:.1f} s"
    return ToolFailure(
        "overloaded",
        f"{call.name} did not get its turn within its time ({took}), and did not run",
        hint="another call works on the same thing; send this one again",
    )


def _no_memory(call: Call) -> ToolFailure:
    took = f"{time.monotonic() - call.started:.1f} s"
    return ToolFailure(
        "overloaded",
        f"{call.name} read nothing: there was no room in `memory.budget` within its time ({took})",
        hint=f"other calls hold large contents: try again in {_RETRY:g} s, or read a part",
        details={"retry_after": _RETRY},
    )


def _timed_out(call: Call) -> ToolFailure:
    took = f"{time.monotonic() - call.started:.1f} s"
    if call.target.annotations.read_only:
        return ToolFailure("timeout", f"{call.name} did not end within its time ({took})")
    return ToolFailure(
        "timeout",
        f"{call.name} did not end within its time ({took}); it was cancelled and may have run in part",
        hint="check its effects before calling it again",
        details={"outcome": "unknown"},
    )
