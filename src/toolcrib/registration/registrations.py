"""Tools registered while everything runs, each for one instance: the library's way and the one behind REST.

A registration is one definition, word for word. A registration over REST does not allow a call by itself: it waits
until an operator accepts exactly that definition (by its hash), unless the operator takes such definitions as reviewed.
Every act, refused ones too, is a row in the record of calls.

    definition ─> read ─> address looked up ─> judged: ready or quarantined ─> store (`persist`) ─> offered
                                                       └─ accept(hash): ready

A lock covers the part from the check of the name on: two registrations at the same time cannot take one name. What is
to be kept is stored before it is offered, and a kept one is removed from the store before it goes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
from msgspec import Struct

from ..catalog.overlay import Overlay
from ..catalog.pins import review
from ..core.call import Call
from ..core.events import Problem
from ..core.result import ToolResult
from ..core.session import LOCAL, SessionState
from ..core.tool import Tool
from ..crib.assembly import Parts, Slice
from ..crib.tools import FUNCTIONS
from ..disclosure.meta_tools import RESERVED
from ..errors import ToolFailure, UsageError
from ..net.guard import Guard, NetFailure
from ..sources.source import Listing
from ..sources.yaml.implementation import Command
from ..sources.yaml.run_command import CommandRunner
from ..sources.yaml.run_endpoint import EndpointRunner
from ..store.definitions import RegistrationRow
from .definitions import (
    ApiRunner,
    BadDefinition,
    Closable,
    Definition,
    Registered,
    RestSource,
    Run,
    Wrong,
    read_definition,
)

if TYPE_CHECKING:
    from ..net.client import WebClient

Way = Literal["library", "rest"]
"""Origin of a registration: this program, or a client with a token."""

_LOOK_UP_SECONDS: Final = 5.0
"""For the check of an address at the registration; every call checks it again."""
_INSTANCE_LENGTH: Final = 128
_REVIEW: Final = "look at it with GET, then accept it by its hash"


class Taken(UsageError):
    """A name that means something else already."""


class Full(UsageError):
    """More registrations than are allowed."""


class Limits(Struct, frozen=True, kw_only=True):
    """Highest numbers of registrations at a time."""

    per_instance: int = 100
    in_all: int = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One registered tool as it is now."""

    instance: str
    tool: Tool
    definition: Definition = dataclasses.field(repr=False)
    way: Way
    by: str
    """The principal that registered it."""
    persist: bool
    """Whether it is there after a restart."""
    registered: float
    """Seconds since 1970."""
    accepted: bool
    """Whether it may be called; else it exists, and a call is refused as `quarantined`."""
    reason: str = ""
    """Reason why it waits."""

    @property
    def name(self) -> str:
        """The tool's name, unique for its instance."""
        return self.tool.name

    @property
    def source(self) -> str:
        """The source that the tools of its instance are in, as rules and records call it."""
        return _source(self.instance)

    @property
    def state(self) -> Literal["ready", "quarantined"]:
        """Whether it can be called."""
        return "ready" if self.accepted else "quarantined"


class Registrations(Slice):
    """All registrations of one crib. Used from its event loop while it is open."""

    def __init__(
        self,
        parts: Parts,
        limits: Limits | None = None,
    ) -> None:
        """The overlays and sources of the `parts` get the registered tools."""
        super().__init__(parts)
        self._settings = parts.settings
        self._registry = parts.inventory.registry
        self._overlays = parts.inventory.overlays
        self._sources = parts.inventory.sources
        self._store = parts.storage.store
        self._ingest = parts.ingest
        self._locking = parts.ingest.locking
        self._calls = parts.calls
        self._limits = limits or Limits()
        self._kept: dict[str, dict[str, Registration]] = {}
        self._lock = anyio.Lock()
        self._net: WebClient | None = None

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances that have registered something, in the order in which they began."""
        return tuple(self._kept)

    def of(self, instance: str) -> tuple[Registration, ...]:
        """Return the registrations of an instance, oldest first; none for an unknown instance."""
        return tuple(self._kept.get(instance, {}).values())

    def get(self, instance: str, name: str) -> Registration:
        """Return one. Raises `ToolFailure("not_found")`."""
        found = self._kept.get(instance, {}).get(name)
        if found is None:
            raise ToolFailure("not_found", f"nothing named {name[:200]!r} is registered for {instance[:200]!r}")
        return found

    async def register(
        self,
        instance: str,
        definition: Mapping[str, Any],
        *,
        persist: bool = False,
        accept: bool = True,
        way: Way = "library",
        by: str = LOCAL,
    ) -> Registration:
        """Offer an HTTP endpoint or an API to the sessions of `instance`, and to no other, from now on.

        `definition` is an entry of a YAML catalog, or has `api` instead of `implementation`. `persist` keeps it over a
        restart; without `accept`, and when its text gives cause to look at it, it waits for `accept`. Raises
        `UsageError`: `BadDefinition` with a place for each thing that is wrong, `Taken`, `Full`; and
        `ToolFailure("storage")` where it is to be kept and cannot be.

        With the `way` `rest` only what the operator's settings accept may be registered; `accept` has no effect there.
        """
        details = {"instance": instance, "name": str(definition.get("name", ""))[:200], "persist": persist}
        try:
            registration = await self._register(instance, definition, persist=persist, accept=accept, way=way, by=by)
        except (UsageError, ToolFailure) as error:
            self.journal("register", details, by=by, way=way, failed=error)
            raise
        read = registration.definition
        details |= {"name": registration.name, "target": read.target, "hash": read.hash, "state": registration.state}
        self.journal("register", details, by=by, way=way)
        return registration

    async def unregister(self, instance: str, name: str, *, way: Way = "library", by: str = LOCAL) -> None:
        """Take a tool away, for good. Raises `ToolFailure`: `not_found`, `storage` where it is kept and cannot go."""
        details = {"instance": instance, "name": name}
        try:
            async with self._lock:
                gone = self.get(instance, name)
                if gone.persist:
                    await self._store.registrations.remove(instance, name)
                del self._kept[instance][name]
                await self._drop(instance, name)
        except ToolFailure as error:
            self.journal("unregister", details, by=by, way=way, failed=error)
            raise
        self.journal("unregister", {**details, "hash": gone.definition.hash}, by=by, way=way)

    async def accept(
        self, instance: str, name: str, *, hash: str, way: Way = "library", by: str = LOCAL
    ) -> Registration:
        """Let a tool that waits be called. `hash` is that of the definition that was looked at.

        Raises `Taken` when it is another one by now, `UsageError` where a lock says what is reviewed, `ToolFailure`:
        `not_found`, `storage`.
        """
        details = {"instance": instance, "name": name, "hash": hash}
        try:
            async with self._lock:
                waiting = self.get(instance, name)
                if waiting.definition.hash != hash:
                    raise Taken(f"{name} has another definition than the one that this hash is of; look at it again")
                if self._locking.is_on:
                    raise UsageError("what is reviewed stands in the lock; nothing else can be accepted")
                accepted = dataclasses.replace(waiting, accepted=True, reason="")
                if accepted.persist:
                    await self._store.registrations.put(_row(accepted))
                self._kept[instance][name] = accepted
                source = _source(instance)
                tools = tuple(kept.tool for kept in self._kept[instance].values())
                self._put(instance, source, Listing(tools=tools))
                self._ingest.announce(())
        except (UsageError, ToolFailure) as error:
            self.journal("accept", details, by=by, way=way, failed=error)
            raise
        self.journal("accept", details, by=by, way=way)
        return accepted

    async def restore(self, rows: Iterable[RegistrationRow]) -> None:
        """Offer again what is kept. What cannot be any more is a problem, and stays kept."""
        for row in rows:
            try:
                await self._restore(row)
            except (UsageError, ToolFailure) as error:
                source, message = _source(row.instance), f"{row.name} of {row.instance} is not offered again: {error}"
                self._ingest.report(Problem(source=source, tool=row.name, code="bad_tool", message=message))

    async def aclose(self) -> None:
        """Close the connections that registered tools share."""
        if self._net is not None:
            await self._net.aclose()

    def journal(
        self,
        action: str,
        details: Mapping[str, Any],
        *,
        by: str,
        way: Way,
        failed: ToolFailure | UsageError | None = None,
    ) -> None:
        """Write an act down among the calls; it is on the disk within 250 ms."""
        session = SessionState(key="registrations", principal=by, instance=str(details.get("instance", "")))
        name = f"toolcrib.{action}"
        call = Call(id=self._calls.next_id(), name=name, arguments=dict(details), session=session, origin=way)
        if failed is None:
            result = ToolResult.of_text("done")
        elif isinstance(failed, ToolFailure):
            result = ToolResult.of_failure(failed)
        else:
            code = "conflict" if isinstance(failed, Taken | Full) else "invalid_arguments"
            result = ToolResult.failed(code, str(failed))
        self._store.calls.note(call, result)

    async def _register(
        self, instance: str, given: Mapping[str, Any], *, persist: bool, accept: bool, way: Way, by: str
    ) -> Registration:
        if not instance or len(instance) > _INSTANCE_LENGTH or not instance.isprintable():
            raise UsageError(f"an instance has a name of 1 to {_INSTANCE_LENGTH} visible characters")
        definition = self._read(instance, given, way)
        await self._look_up(definition)
        made = self._judged(
            Registration(
                instance=instance,
                tool=definition.tool,
                definition=definition,
                way=way,
                by=by,
                persist=persist,
                registered=time.time(),
                accepted=self._settings.http.registration.accept if way == "rest" else accept,
            )
        )
        async with self._lock:
            self._refuse_taken(instance, made.tool)
            if persist:
                await self._store.registrations.put(_row(made))
            await self._offer(made)
        return made

    async def _restore(self, row: RegistrationRow) -> None:
        if row.definition is None:
            raise UsageError("its definition was sealed with another key than this installation has")
        way: Way = "library" if row.way == "library" else "rest"
        definition = self._read(row.instance, row.definition, way)
        registration = Registration(
            instance=row.instance,
            tool=definition.tool,
            definition=definition,
            way=way,
            by=row.principal,
            persist=True,
            registered=row.registered,
            accepted=row.accepted and not (way == "rest" and self._locking.is_on),
            reason="" if row.accepted else "not accepted yet",
        )
        self._refuse_taken(row.instance, registration.tool)
        await self._offer(registration)

    def _read(self, instance: str, given: Mapping[str, Any], way: Way) -> Definition:
        is_rest = way == "rest"
        commands = not is_rest or self._settings.http.registration.commands
        return read_definition(_source(instance), given, over_rest=is_rest, commands=commands)

    def _judged(self, made: Registration) -> Registration:
        """Withhold unaccepted definitions, and accepted ones that need a review (`catalog.preflight`)."""
        vouched = made.accepted and not (made.way == "rest" and self._locking.is_on)
        judged = review(made.tool.source, [made.tool], {}, accept=vouched, how=_REVIEW)
        problem = judged.withheld.get(made.tool.local_name)
        return dataclasses.replace(made, accepted=problem is None, reason=problem.message if problem else "")

    async def _look_up(self, definition: Definition) -> None:
        """Raise `BadDefinition` for an address that would be refused now. One that cannot be found may come yet."""
        how = definition.how
        if isinstance(how, Command) or how.allow_private:
            return
        try:
            with anyio.move_on_after(_LOOK_UP_SECONDS):
                await self._client().check(definition.url)
        except NetFailure as failure:
            path = "api.url" if definition.api else "implementation.endpoint.url"
            message = f"{failure.message}; the operator allows a host by `registration.private_hosts`"
            raise BadDefinition([Wrong(path=path, message=message)]) from None

    def _refuse_taken(self, instance: str, tool: Tool) -> None:
        if not isinstance(self._sources.get(_source(instance)), RestSource | None):
            raise Taken(f"{_source(instance)} is the name of a source already")
        overlay = self._overlays.get(instance)
        catalog = overlay.catalog if overlay else self._registry.catalog
        for name in (tool.name, *tool.aliases):
            found = catalog.find(name)
            whose = found.source if found else catalog.withheld[name].source if name in catalog.withheld else ""
            if name in RESERVED:
                whose = "Toolcrib"
            if whose:
                raise Taken(f"{name} is a name of {whose} already")
        if len(self._kept.get(instance, ())) >= self._limits.per_instance:
            raise Full(f"{instance} has {self._limits.per_instance} tools of its own, which is the most there may be")
        if sum(map(len, self._kept.values())) >= self._limits.in_all:
            raise Full(f"{self._limits.in_all} tools are registered, which is the most there may be")

    async def _offer(self, registration: Registration) -> None:
        instance, definition = registration.instance, registration.definition
        source = await self._source_of(instance)
        self._kept.setdefault(instance, {})[registration.name] = registration
        run, closing = self._runner(definition)
        tool = registration.tool
        one = Registered(tool=tool, run=run, hash=definition.hash, secrets=definition.secrets, closing=closing)
        source.put(one)
        self._ingest.announce(())

    def _runner(self, definition: Definition) -> tuple[Run, Closable | None]:
        how = definition.how
        if isinstance(how, Command):
            return CommandRunner(how, Path(), self._settings.environment), None
        client = _web_client([how.url.pieces[0]]) if how.allow_private else self._client()
        run = ApiRunner(how, client) if definition.api else EndpointRunner(how, client)
        return run, client if how.allow_private else None

    def _client(self) -> WebClient:
        """Return the client of all registrations without an address of their own; it is loaded now."""
        if self._net is None:
            self._net = _web_client(self._settings.http.registration.private_hosts)
        return self._net

    async def _source_of(self, instance: str) -> RestSource:
        name = _source(instance)
        found = self._sources.get(name)
        if isinstance(found, RestSource):
            return found
        source = RestSource(name)
        self._overlays.setdefault(instance, Overlay(self._registry))
        await source.open(partial(self._put, instance, name))
        self._sources[name] = source
        return source

    def _put(self, instance: str, source: str, listing: Listing) -> None:
        """Sort a listing into what may be called and what waits."""
        kept = self._kept.get(instance, {})
        ready = [tool for tool in listing.tools if kept[tool.name].accepted]
        withheld = {
            tool.name: Problem(
                source=source, tool=tool.name, code="quarantined", message=kept[tool.name].reason, hint=_REVIEW
            )
            for tool in listing.tools
            if not kept[tool.name].accepted
        }
        self._overlays[instance].put(source, ready, withheld)

    async def _drop(self, instance: str, name: str) -> None:
        """Take a tool out; the last one of an instance takes along all that is kept for the instance."""
        source = _source(instance)
        rest = cast("RestSource", self._sources[source])
        rest.remove(name)
        if not self._kept[instance]:
            del self._kept[instance], self._sources[source]
            await rest.close()
            self._overlays[instance].remove(source)
            if self._overlays[instance].is_empty and f"{FUNCTIONS}@{instance}" not in self._sources:
                del self._overlays[instance]
        self._ingest.announce(())


def _source(instance: str) -> str:
    return f"rest@{instance}"


def _row(registration: Registration) -> RegistrationRow:
    return RegistrationRow(
        instance=registration.instance,
        name=registration.name,
        definition=registration.definition.given,
        way=registration.way,
        principal=registration.by,
        accepted=registration.accepted,
        registered=registration.registered,
    )


def _web_client(hosts: Iterable[str]) -> WebClient:
    from ..net.client import WebClient  # the HTTP client is slow to load: few cribs have registrations

    return WebClient(Guard.of(hosts))
