"""A conversation, as the library's user and every way in hold it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, Unpack, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..config import Settings
from ..core.call import Call
from ..core.json import dumps
from ..core.permission import Answer
from ..core.result import ToolResult
from ..core.services.records import Records
from ..core.session import SessionState
from ..core.tool import Tool
from ..disclosure.base import VisibleCatalog
from ..disclosure.formats import Definitions, definitions
from ..disclosure.selection import Route, Selection, analyse, route, select
from ..errors import UsageError
from ..policy.decision import Policy
from ..policy.remembered_answers import forget_answers
from ..results.artifacts import Artifacts
from ..workspace.tainted_files import FileMarks
from .approvals import DeferredCalls
from .calls import CallRunner
from .options import CallOptions, InteractionOptions, SessionOptions, check_calls, check_options, check_values
from .plan_mode import SUBMIT
from .resources import ResourceRegistry, SessionResources
from .sessions import SessionFactory
from .tools import Switches, ToolRegistry
from .views import Views

_ICON_BYTES: Final = 1024 * 1024
_PAGE_BYTES: Final = 240 * 1024
"""Of an artifact that is read whole, at a time; a multiple of 3, so that base64 pages can be joined."""


class SessionParts(Struct, frozen=True, kw_only=True):
    """The parts of a crib that its sessions use."""

    settings: Settings
    policy: Policy
    calls: CallRunner
    views: Views
    sessions: SessionFactory
    tools: ToolRegistry
    resources: ResourceRegistry
    artifacts: Artifacts
    deferred_calls: DeferredCalls
    file_marks: FileMarks
    records: Callable[[str, str], Records]
    """Returns the records of a principal in a collection."""


class Session:
    """One conversation: what its model sees, and the way to call it.

    Made by `Toolcrib.session`, and used from its event loop; calls may run concurrently. It holds nothing that must be
    closed, as the crib closes what its tools have opened: `async with` does so at the end of the conversation, and
    forgets the answers that were remembered for it.

        async with crib.session(principal="ada", mode="cautious", approver=ask) as session:
            request = session.definitions("anthropic")        # `tools=` of the request to the model
            results = await session.call_many([("search_tools", {"query": "invoices"})])
    """

    def __init__(self, parts: SessionParts, state: SessionState) -> None:
        """Made by `Toolcrib.session`."""
        self.parts = parts
        """The parts of the crib that the session belongs to."""
        self._blank = Call(id="", name="", arguments=None, session=state)
        self.state = state

    async def __aenter__(self) -> Self:
        """Return the session."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Forget the answers that were remembered for this session, and close what its tools have kept."""
        forget_answers(self.state)  # before it is stored: the same key in another process must not find them either
        await self.parts.calls.keep(self.state)
        await self.state.runtime.aclose()

    def __repr__(self) -> str:
        """Return the terms of the session, for the screen."""
        state = self.state
        return f"<Session of {state.principal}: profile {state.profile}, mode {state.mode}, key {state.key!r}>"

    @property
    def _switches(self) -> Switches:
        """Made at each use: kept, it would refer to this session, which only garbage collection would end then."""
        visible = self.visible
        return Switches(self.state.scope.disabled, find=visible.find, tools=visible.tools)

    def sibling(self, **options: Unpack[SessionOptions]) -> Session:
        """Open another session of the same crib. Raises `UsageError` as `Toolcrib.session` does."""
        return Session(self.parts, self.parts.sessions.open(options))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools that the model sees now, in stable order."""
        return self.parts.views.view(self.state).tools

    @property
    def mode(self) -> str:
        """The mode it works in. Setting it lets changes that wait for review go on waiting.

        Raises `UsageError` for a mode that does not exist.
        """
        return self.state.mode

    @mode.setter
    def mode(self, name: str) -> None:
        self.parts.sessions.enter(self.state, name)

    async def approve_plan(self, plan: str) -> ToolResult:
        """Ask the session's approver for `plan`, in a mode that wants one; once it is approved all tools are there.

        A refusal, with the approver's comment, is a failure `denied`: the session goes on planning.
        """
        return await self.call(SUBMIT, {"plan": plan})

    @property
    def instructions(self) -> str:
        """The prompt part that explains the profile."""
        return self.parts.views.view(self.state).instructions

    @property
    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """Introductions of the MCP servers whose tools are in scope: name, title, version, icons, by source.

        For clients that show servers to people; icons beyond 1 MiB in all are left out.
        """
        visible, room = self.visible, _ICON_BYTES
        about = {name: one.server for name, one in visible.catalog.about.items() if one.server}
        reached = {tool.source for tool in visible.offered()} if about else set[str]()
        shown: dict[str, Mapping[str, Any]] = {}
        for name, server in about.items():
            if name in reached:
                room -= len(dumps(server.get("icons", ())))
                shown[name] = server if room >= 0 else {key: server[key] for key in server if key != "icons"}
        return shown

    @property
    def visible(self) -> VisibleCatalog:
        """The profile, the catalog, and what the one calls the tools of the other."""
        return self.parts.views.visible(self.state)

    @property
    def listing(self) -> bytes:
        """The MCP definitions of `tools` as a JSON array, made once for a catalog version."""
        return self.parts.views.listing(self.state)

    def definitions(self, format: str, *, strict: bool = False, defer: bool = False) -> Definitions:
        """Return `tools` in a model API's own form: anthropic, openai, openai-responses, gemini or mcp.

        It goes into a request as it is; its `problems` say what the API will refuse or did not get in full. `strict`
        asks for the API's strict form, `defer` adds all other tools as ones that the API itself searches. Raises
        `UsageError` for a format that does not exist or has no such form, and when the crib is not open.
        """
        self.parts.calls.check_open()
        return definitions(self.visible, self.parts.views.view(self.state), format, strict=strict, defer=defer)

    def op_of(self, tool: Tool) -> str:
        """Return the op by which the `gateway` profile knows a tool of the catalog."""
        return self.visible.aliases.ops.of(tool)

    def begin(self, **options: Unpack[InteractionOptions]) -> None:
        """Begin the next interaction: one request of the user, until its answer.

        What was loaded for the last one is gone where the profile says so, and what that one was given (`tools`,
        `intent` …) holds no longer. Raises `UsageError` for an option that does not exist, and for a name in `tools`
        that no tool in scope has, and when the crib is not open.
        """
        self.parts.calls.check_open()
        check_options(options, InteractionOptions)
        self.parts.sessions.begin(self.state, options)

    @property
    def status(self) -> Mapping[str, bool]:
        """Whether each tool in scope is switched on, by the name that the profile gives it."""
        visible = self.visible
        return {visible.aliases.name(tool): not self.state.is_disabled(tool.name) for tool in visible.tools()}

    def disable(self, *names: str) -> None:
        """Switch tools off: they are not listed, and calls of them fail. Raises `UsageError` for an unknown name."""
        self._switches.off(names)

    def enable(self, *names: str) -> None:
        """Switch tools on again that were switched off here; what is off for all sessions stays off in each."""
        self._switches.on(names)

    def disable_all(self) -> None:
        """Switch off every tool that exists now; later ones are on."""
        self._switches.all_off()

    def enable_all(self) -> None:
        """Switch on every tool that was switched off here."""
        self._switches.all_on()

    @property
    def loaded(self) -> Mapping[str, bool]:
        """The tools that a verb loaded, by catalog name, and whether a call of each has succeeded since."""
        tools = self.visible.catalog.tools
        return {name: name in self.state.history.succeeded for name in self.state.history.loaded if name in tools}

    def unload_unused(self) -> tuple[str, ...]:
        """Take those of `loaded` away that no call has used with success; return their names.

        For hosts that run short of context: a definition that was used stays, the others can be loaded again.
        """
        unused = tuple(name for name, was_used in self.loaded.items() if not was_used)
        for name in unused:
            del self.state.history.loaded[name]
        return unused

    async def call(self, name: str, arguments: Any = None, **options: Unpack[CallOptions]) -> ToolResult:
        """Run one tool, or a meta-tool (verb) of the profile, and return its result.

        `name` is the one that the model was shown; another spelling counts where it can mean one tool only. `arguments`
        is an object or its JSON text. `options` are those of `CallOptions`: `timeout` in seconds, `idempotency_key`,
        `background`, `dry_run`, `listener` …

        Every outcome is a result: `error` has a code of `toolcrib.errors.CODES` and words for the
        model, for refusals (`denied`, `invalid_arguments`, `not_found` …) as well as for the tool's own failures. It
        waits for a person's answer as long as the approver does. A cancelled caller cancels the call, which is
        recorded.

        Raises `UsageError` for an option that does not exist, for a name that is not a string, and where the crib is
        not open or belongs to another event loop.
        """
        return await self._send(name, arguments, options)

    async def call_many(
        self,
        calls: Sequence[tuple[str, Any]],
        *,
        each: Sequence[CallOptions] = (),
        ended: Callable[[int, ToolResult], None] = lambda place, result: None,
        **options: Unpack[CallOptions],
    ) -> list[ToolResult]:
        """Run several calls at once; one result a call, in the order of the calls.

        Reads run concurrently, calls that write the same resource take turns, and one that fails leaves the others
        alone. Where the profile bounds how many run at once, a serial tool runs alone, when those before it have ended.
        `each` holds options of single calls, by their place; `ended` hears each result with its place as it comes.
        Raises `UsageError`, before anything runs, for anything but a pair of a name and arguments, and for an
        unknown option.
        """
        check_calls(calls)
        for own in (options, *each):
            check_options(own, CallOptions)
            check_values(own)
        if each and len(each) != len(calls):
            raise UsageError(f"each: has the options of {len(each)} calls, and there are {len(calls)}")
        results: dict[int, ToolResult] = {}
        places = anyio.CapacityLimiter(self.visible.profile.parallel or math.inf)

        async def one(index: int, name: str, arguments: Any) -> None:
            own: CallOptions = {**options, **each[index]} if each else options
            async with places:
                results[index] = await self._send(name, arguments, own, together=len(calls), place=index + 1)
            ended(index, results[index])

        for part in self._parts(calls):
            async with anyio.create_task_group() as group:
                for index in part:
                    group.start_soon(one, index, *calls[index])
        return [results[index] for index in range(len(calls))]

    async def resume(self, approval: str, answer: Answer | None = None) -> ToolResult:
        """Answer a question that a call has left (`defer_approval`), and return what comes of the call: it is made now.

        Without an answer it uses the one given elsewhere. The call runs once: resumed again, it has the same
        result. A question that is not answered, was refused or is too old gives a failure `denied`; one of another
        principal, `not_found`.
        """
        return await self.parts.deferred_calls.resume(approval, answer, principal=self.state.principal)

    async def recover(self, ref: str) -> str:
        """Return the whole of a result that was cut; `ref` names it, alone or as the mark `[COMPRESSED:<ref>]`.

        Content other than text comes as base64. Raises `ToolFailure("not_found")` for what this principal never got.
        """
        name, offset, pages = ref.strip().removeprefix("[COMPRESSED:").removesuffix("]"), 0, list[str]()
        while True:
            page = await self.parts.artifacts.read(name, self.state.principal, offset, _PAGE_BYTES)
            pages.append(page.text)
            if page.next_offset is None:
                return "".join(pages)
            offset = page.next_offset

    @property
    def resources(self) -> SessionResources:
        """Resources, templates and prompts of servers, as far as this session may know of them."""
        return self.parts.resources.open(self.state, partial(self._send, raw=True))

    @property
    def selection(self) -> Selection:
        """The tools that the profile `selection` gives this interaction, and why these."""
        return select(self.visible)

    def intent_of(self, task: str, *, follows: bool = False) -> Mapping[str, Any]:
        """Return the analysis of a task in words, for `begin(intent=…)`; empty if the profile does not analyse tasks.

        Complexity and required tools are found by the ranking. `follows` says that a conversation goes before it.
        """
        profile = self.visible.profile
        if profile.strategy != "selection" or not profile.progressive or not profile.options.get("analyse", True):
            return {}
        return analyse(self.visible, task, follows=follows)

    def route(self, query: str = "", *, capability: str = "", quality: str = "") -> Route:
        """Return the one tool or skill for a request in words, or for a capability tag, and the next best.

        `quality` is `low`, `medium` or `high`.
        """
        return route(self.visible, query, capability=capability, quality=quality)

    def _send(
        self,
        name: str,
        arguments: Any,
        options: CallOptions,
        *,
        together: int = 1,
        place: int = 0,
        raw: bool = False,
    ) -> Coroutine[Any, Any, ToolResult]:
        if not isinstance(cast("Any", name), str):  # such as the function itself
            raise UsageError(f"a call names its tool: a string was expected, not {type(name).__name__}")
        if options:
            check_options(options, CallOptions)
            check_values(options)
        calls = self.parts.calls
        call = replace(self._blank, id=calls.next_id(), name=name, arguments=arguments, started=time.monotonic())
        changes: Mapping[str, Any] = options
        if place:  # one of several; an option of its own goes before
            changes = {"together": together, "place": place, **changes}
        if raw:
            changes = {**changes, "raw": True}
        return calls.run(call.evolve(**changes) if changes else call)

    def _parts(self, calls: Sequence[tuple[str, Any]]) -> Iterator[list[int]]:
        """Yield the places of calls that may run at the same time, part after part."""
        visible = self.visible
        part: list[int] = []
        for index, (name, _) in enumerate(calls):
            tool = visible.find(name) if visible.profile.parallel else None
            if tool is not None and tool.execution.serial:
                yield part
                yield [index]
                part = []
            else:
                part.append(index)
        yield part
