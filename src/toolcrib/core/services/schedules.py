"""Schedules: calls that are made at a time, as tools may keep them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct


class Schedule(Struct, frozen=True, kw_only=True):
    """A call that is made later, once or again and again. Times are seconds since 1970."""

    id: str
    principal: str
    title: str
    trigger_type: str
    """once, cron or interval."""
    trigger_config: Mapping[str, Any]
    """`run_at`, `cron` or `interval_seconds`."""
    zone: str
    """IANA name of the time zone whose wall time the trigger means."""
    action: Mapping[str, Any]
    """`{type: send_message, content}`, `{type: agent_task, prompt}` or `{type: call, tool, arguments}`."""
    status: str
    """active, paused, completed or cancelled."""
    next_run: float | None
    """None while it is paused, and once it does not fire any more."""
    next_run_at: str | None
    """`next_run` in ISO 8601, in its own zone."""
    runs: int = 0
    last_run_at: str | None = None
    """Time that it was due for last, in ISO 8601."""
    outcome: str = ""
    """Outcome of the last run: `ok`, an error code, or the state of an approval."""
    mode: str = ""
    """Mode of its runs: what they may do unasked."""
    is_running: bool = False
    created: float = 0.0
    tainted: str = ""
    """The tool that had brought untrusted content into the session which wrote it unasked; empty for a clean one."""
    place: str = ""
    """Configuration whose processes fire it: its files, one a line."""
    problem: str = ""
    """Reason why it cannot be read and does not fire; its title and action are empty then, and it can be cancelled."""


class Schedules(Protocol):
    """The schedules of one principal. Stored over restarts, fired by the processes that serve or work.

    Raises `ToolFailure`: `invalid_arguments` for a trigger or action that cannot be taken, `not_found` for an unknown
    id, `conflict` for a schedule that has ended, `overloaded` beyond the limit, `storage`.
    """

    async def create(
        self, *, title: str, trigger_type: str, trigger_config: Mapping[str, Any], action: Mapping[str, Any]
    ) -> tuple[Schedule, bool]:
        """Return a new schedule and True, or the active one with equal trigger and action and False.

        It fires under the rules of the session that creates it.
        """
        ...

    async def list(self) -> list[Schedule]:
        """Return the active and paused schedules, the next one first."""
        ...

    async def update(
        self,
        id: str,
        *,
        title: str | None = None,
        trigger_type: str | None = None,
        trigger_config: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Change what is given; a schedule that is changed fires under the rules of the session that changes it."""
        ...

    async def cancel(self, id: str) -> Schedule:
        """Let it fire no more."""
        ...

    async def warning(self) -> str:
        """Return that no process fires schedules, and what starts one; empty while one does."""
        ...
