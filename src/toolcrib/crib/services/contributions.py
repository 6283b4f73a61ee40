"""Contributions of guests besides tools, at work: their calls of tools, and their services under supervision.

A service runs in one of the processes that share a store and carry background work (`jobs.work`). One that raises is
begun again, later each time; one that returns is done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio

from ...core.entry_points import SERVICES
from ...core.json import loads
from ...core.services.contributions import Service, ToolCaller
from ...core.services.host import Host
from ...disclosure.settings import BY_CATALOG
from ...errors import ToolFailure
from ...plugin import Guest, load_entry_points
from ...system.tasks import Background
from ..assembly import Parts, Slice
from ..options import SessionOptions
from ..session import Session

_logger = logging.getLogger(__name__)
_RETRY_SECONDS: Final = (0.2, 60.0)
"""Before a failed service is begun again: at first, and at most; each time twice as long."""
_CLAIM_SECONDS: Final = 10.0
"""Between two looks whether this process holds a service."""


class SessionCaller:
    """Implements `core.services.contributions.ToolCaller` for one session."""

    def __init__(self, session: Session, origin: str) -> None:
        """`origin` stands in the record of the calls."""
        self._session = session
        self._origin = origin

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Return a tool's structured result, else its text; whole, also where a model would get a part."""
        result = await self._session.call(tool, dict(arguments), origin=self._origin)
        if error := result.error:
            raise ToolFailure(error.code, error.message, hint=error.hint, details=error.details)
        if result.is_error:
            raise ToolFailure("tool_error", result.text)
        if result.structured_content is not None:
            return result.structured_content
        if kept := result.meta.get("artifact"):
            text = await self._session.recover(kept)
            try:
                return loads(text)
            except ValueError:
                return text
        return result.text


def unattended_session(parts: Parts, key: str, principal: str, instance: str = "") -> Session:
    """Return a session without a person: where calls are guarded, those that would be asked wait in the store."""
    options: SessionOptions = {
        "key": key,
        "principal": principal,
        "instance": instance,
        "for_client": parts.settings.policy.guard,
        "profile": BY_CATALOG,
    }
    return Session(parts, parts.sessions.open(options))


class GuestServices(Slice):
    """The services of installed packages."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._tasks: Background | None = None

    async def start(self) -> None:
        """Run them from now on; one that cannot be loaded is a problem, and the others run."""
        if self._tasks is not None:
            return
        self._tasks = Background()
        guests, problems = load_entry_points(SERVICES)
        for problem in problems:
            self.parts.tools.report(problem)
        if guests:
            await self._tasks.start()
        for guest in guests:
            self._tasks.spawn(_Supervised(self.parts, guest).run)

    async def aclose(self) -> None:
        """Cancel them, and wait for their ends."""
        if self._tasks is not None:
            await self._tasks.stop()


class _Supervised:
    """One service, and its `core.services.contributions.ServiceHost`."""

    def __init__(self, parts: Parts, guest: Guest) -> None:
        self._parts = parts
        self._guest = guest
        self.name = guest.name
        self.log = logging.getLogger(f"toolcrib.services.{guest.name}")

    @property
    def host(self) -> Host:
        """Services of the crib."""
        return self._parts.host_services

    def caller(self, principal: str) -> ToolCaller:
        """Return calls as a principal."""
        session = unattended_session(self._parts, f"service/{self.name}/{principal}", principal)
        return SessionCaller(session, "service")

    async def run(self) -> None:
        """Run the service while this process holds it."""
        rows, is_done = self._parts.storage.store.services, False
        while not is_done:
            try:
                if await rows.claim(self.name):
                    is_done = await self._while_held()
            except Exception:  # the store, or the code of a guest; the others live on
                _logger.warning("service %s of %s stands still", self.name, self._guest.origin, exc_info=True)
            if not is_done:
                await anyio.sleep(_CLAIM_SECONDS)

    async def _while_held(self) -> bool:
        """Return True once the service has returned, False when another process holds it."""
        rows, is_done = self._parts.storage.store.services, False

        async def work() -> None:
            nonlocal is_done
            await self._work()
            is_done = True
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                while await rows.claim(self.name):  # noqa: ASYNC110 - another process is waited for
                    await anyio.sleep(_CLAIM_SECONDS)
                group.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(1, shield=True):
                await rows.release(self.name)
        return is_done

    async def _work(self) -> None:
        """Run the service to its end, again after each exception."""
        service = cast("Service", self._guest.thing)
        wait, longest = _RETRY_SECONDS
        while True:
            begun = anyio.current_time()
            try:
                await service(self)
            except Exception:  # a service of a guest may raise anything
                if anyio.current_time() - begun > longest:
                    wait = _RETRY_SECONDS[0]
                _logger.warning(
                    "service %s of %s failed, again in %g s", self.name, self._guest.origin, wait, exc_info=True
                )
            else:
                return
            await anyio.sleep(wait)
            wait = min(wait * 2, longest)
