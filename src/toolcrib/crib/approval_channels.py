"""Approval channels of a crib: what asks, desktop notifications, and approved calls whose callers left.

    a call asks ──> row in the store ──┬──> desktop notification
                                       ├──> webhook, which may answer
                                       └──> readers of the store: `toolcrib approvals`, the console
    answered, its caller waits         ──> the call goes on
    answered yes, its caller has left  ──> `_LateRuns`: one process claims the row, and makes the call as a job

The store has the question in every case; a notification that fails costs nothing but its hint.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final

import anyio
from msgspec.structs import replace

from ..config import Settings
from ..core.permission import Approval
from ..errors import ToolFailure
from ..jobs.job import Jobs
from ..policy.approval import Approvals
from ..policy.approval_options import ApprovalNotices, ApprovalOptions
from ..policy.call_diff import diff_of_call
from ..policy.decision import Policy
from ..results.redaction.redactor import Redactor
from ..store.approvals import ApprovalRows
from ..store.store import Store
from ..system.tasks import Background
from .approvals import LOOK_AGAIN
from .calls import SavedCalls

_logger = logging.getLogger(__name__)
_SECONDS: Final = 5.0
_AT_ONCE: Final = 3
"""Notifications on their way; more than these are dropped: the questions wait in the store all the same."""
_DESKTOP: Final = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which a desktop session of Linux has at least one."""
_NEEDED: Final = (*_DESKTOP, "HOME", "PATH", "XAUTHORITY", "XDG_RUNTIME_DIR")
_SCRIPT: Final = (
    "-e",
    "on run argv",
    "-e",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "-e",
    "end run",
)


class DesktopNotifier:
    """Shows that a call waits. One for a crib; without a desktop it shows nothing. Never raises."""

    def __init__(self, environ: Mapping[str, str], platform: str = sys.platform) -> None:
        """`environ` says where programs are, and whether there is a desktop."""
        self._is_mac = platform == "darwin"
        self._environ = {name: environ[name] for name in _NEEDED if name in environ}
        self._running = 0

    async def show(self, asked: Approval) -> None:
        """Show the tool and the command that answers; arguments stay where the question is answered."""
        program = self._program()
        if program is None or self._running >= _AT_ONCE:
            return
        title, text = "Toolcrib: a call waits for approval", f"{asked.tool}: toolcrib approvals show {asked.id}"
        from html import escape  # as for secrets: 2 ms at each opening of a crib

        # What a desktop takes for markup is only text here.
        words = [*_SCRIPT, title, text] if self._is_mac else ["--app-name=Toolcrib", "--", title, escape(text)]
        self._running += 1
        try:
            with anyio.move_on_after(_SECONDS):
                await anyio.run_process(
                    [program, *words],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                    env=self._environ,
                )
        except OSError as error:
            _logger.warning("the desktop notification of approval %s failed: %s", asked.id, error)
        finally:
            self._running -= 1

    def _program(self) -> str | None:
        """Return the program that shows notifications; None without one."""
        path = self._environ.get("PATH")
        if self._is_mac:
            return shutil.which("osascript", path=path)
        has_desktop = any(self._environ.get(name) for name in _DESKTOP)
        return shutil.which("notify-send", path=path) if has_desktop else None


class ApprovalChannels:
    """Asks for approvals over the configured channels, and runs approved calls whose callers left."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        policy: Policy,
        redactor: Redactor,
        notices: ApprovalNotices,
        saved_calls: SavedCalls,
        jobs: Jobs,
        *,
        is_shared: bool,
        memory_by_default: bool,
    ) -> None:
        """Open nothing. `notices` notifies of approvals that this process asks for or settles.

        `is_shared`: other processes, such as `toolcrib approvals`, can open the store. With `memory_by_default` the
        store is in memory for want of a setting: the first approval that is meant to outlive the process logs that.
        """
        self._warns_of_memory = memory_by_default
        self._settings = settings.approvals
        self._timeout = settings.approvals.timeout
        self._wait = settings.policy.approval_wait
        self._is_shared = is_shared
        self._desktop = DesktopNotifier(settings.environment) if self._settings.notify and is_shared else None
        self._store = store
        self._policy = policy
        self._redactor = redactor
        self._notices = notices
        self._tasks = Background()
        self._late = _LateRuns(store.approvals, saved_calls, jobs, notices)

    def asker(self, stack: AsyncExitStack) -> Approvals:
        """Return the approvals of the approve step; they are closed with `stack`."""
        options = ApprovalOptions(
            settings=self._settings,
            timeout=self._timeout,
            wait=self._wait,
            is_shared=self._is_shared,
            notify=self._notify,
            notices=self._notices,
            redact_for=lambda principal: self._redactor.of(principal).value,
            outlives=self._warn_of_memory,
            diff=diff_of_call,
        )
        if self._settings.webhook is not None:
            from .approval_webhook import WebhookChannel  # it brings the HTTP client, which only webhooks need

            hook = WebhookChannel(self._settings.webhook)
            stack.push_async_callback(hook.aclose)

            def tell(settled: Approval) -> None:
                self._tasks.spawn(lambda: hook.tell(settled))

            options = replace(options, channels=(hook,), settled=tell)
        return Approvals(self._policy, self._store.approvals, options)

    def _warn_of_memory(self, id: str) -> None:
        if self._warns_of_memory:
            self._warns_of_memory = False
            _logger.warning(
                "approval %s waits for an answer in memory and ends with this process, as all records of this crib do: "
                "give it a store, Toolcrib(store='toolcrib.db') or a configuration file, or say Toolcrib(memory=True)",
                id,
            )

    def _notify(self, asked: Approval) -> None:
        """Announce a held call on the desktop, beside everything else."""
        desktop = self._desktop
        if desktop is not None:
            self._tasks.spawn(lambda: desktop.show(asked))

    async def open(self, stack: AsyncExitStack) -> None:
        """Begin to notify channels of settled questions, and to run what is approved for callers that left."""
        await self._tasks.start()
        stack.push_async_callback(self._tasks.stop)
        if self._settings.when_gone == "run":
            await self._late.start()
            stack.push_async_callback(self._late.stop)


class _LateRuns:
    """Makes the calls that were approved after their callers had left, once each, as jobs of their principals."""

    def __init__(self, rows: ApprovalRows, saved_calls: SavedCalls, jobs: Jobs, notices: ApprovalNotices) -> None:
        self._rows = rows
        self._saved_calls = saved_calls
        self._jobs = jobs
        self._notices = notices
        self._tasks = Background()
        self._news = anyio.Event()
        self._announced: set[str] = set()
        """Approvals that could not be read, and were logged: a process with the key of their seal runs the call."""
        self._unwatch: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Begin to look."""
        self._unwatch = self._notices.watch(lambda approval: self._news.set())
        await self._tasks.start()
        self._tasks.spawn(self._look)

    async def stop(self) -> None:
        """Look no more. A call that was handed over goes on as a job."""
        self._unwatch()
        await self._tasks.stop()

    async def _look(self) -> None:
        rows = self._rows
        while True:
            self._news = anyio.Event()
            try:
                for id in await rows.waiting():
                    await self._run(id)
            except ToolFailure as failure:  # the store cannot be had now
                _logger.warning("approved calls wait: %s", failure)
            with anyio.move_on_after(LOOK_AGAIN):
                await self._news.wait()

    async def _run(self, id: str) -> None:
        """Make one call, if it is still to be made and no other process has taken it."""
        rows = self._rows
        try:
            saved = await rows.claim(id)
        except ToolFailure as failure:
            if id not in self._announced:
                _logger.warning("approval %s is left to others: %s", id, failure)
            self._announced.add(id)
            return
        if saved is None:
            return
        result = await self._saved_calls.make(saved, approval=id, background=True)
        job = str(result.meta.get("job", ""))
        if not job:
            await rows.finished(id, result)
            return
        await rows.started(id, job)
        self._tasks.spawn(lambda: self._collect(id, job, saved.session.principal))

    async def _collect(self, id: str, job: str, principal: str) -> None:
        """Keep the result of the job under the approval."""
        await self._rows.finished(id, await self._jobs.result(job, principal))
