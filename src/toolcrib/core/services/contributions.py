"""Contributions of guests besides tools: commands, REST resources and services, each by an entry point group.

    [project.entry-points."toolcrib.commands"]
    weather = "weather_tools.command:weather"        # a function or a group of typer: `toolcrib weather`

    [project.entry-points."toolcrib.resources"]
    weather = "weather_tools.resource:RESOURCE"      # a `RestResource`: `/v1/weather/…` of `toolcrib serve --http`

    [project.entry-points."toolcrib.services"]
    weather = "weather_tools.service:run"            # an async function of a `ServiceHost`

All three reach tools by a `ToolCaller`: rules, membership, redaction and the record of calls apply as to a model.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from .host import Host

T = TypeVar("T")


class ToolCaller(Protocol):
    """Calls of tools in one session of one principal."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Return a tool's structured result, its text for a tool without one.

        `tool` is a name or an operation (`onto.task.list`). Raises `ToolFailure` with the error of the call.
        """
        ...


class CommandHost(Protocol):
    """Services for a command. It is the `obj` of the command's `typer.Context`."""

    @property
    def folder(self) -> Path:
        """The folder in which the command was typed: a daemon that carries it out runs in another one."""
        ...

    def run(
        self,
        work: Callable[[ToolCaller], Awaitable[T]],
        *,
        categories: Sequence[str],
        config: Sequence[Path] | None = None,
        yes: bool | None = None,
        workspace: Path | None = None,
    ) -> T:
        """Open the built-in tools of these categories, run `work` as the user of this terminal, and return its result.

        Servers of the configuration, and categories that are not installed, are left out. What must be asked is asked
        on the terminal, else denied; `yes` is the command's option `--yes`, if it has one: the answer to each question.
        `workspace` is the folder of the tools instead of that of the configuration.
        """
        ...

    def out(self, text: str) -> None:
        """Print lines, folded to the width of the terminal; invisible characters as escapes."""
        ...

    def table(self, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under headings, each with `<` or `>` for its side; no line is wider than the terminal."""
        ...

    def json(self, value: Any) -> None:
        """Print a value as JSON."""
        ...


class SignedRequest(Struct, frozen=True, kw_only=True):
    """A request to a signed route, before its check."""

    place: Mapping[str, str]
    """The arguments of the path."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    """As it came; at most 4 MiB."""


class SignedCall(Struct, frozen=True, kw_only=True):
    """The call of the route's tool that a signed request is."""

    principal: str
    """The principal whose rules and roles hold for it; empty for the first caller of the server."""
    arguments: Mapping[str, Any]


SignatureCheck = Callable[[Host, SignedRequest], SignedCall]
"""Raises `ToolFailure("denied")` for a wrong signature, compared in constant time."""


class RestRoute(Struct, frozen=True, kw_only=True):
    """One method of one path: a call of a tool."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """Behind `/v1/NAME`, with `{argument}` for arguments of the tool: `/projects/{project_id}`."""
    tool: str
    """Its name or operation. The other arguments come by the query, or by the JSON object of the body."""
    status: int = 200
    """Of a call that succeeded."""
    signed: SignatureCheck | None = None
    """For senders without a token of the server: decides by the signature. The path has no `{argument}` of the tool."""


class RestResource(Struct, frozen=True, kw_only=True):
    """Paths below `/v1/NAME`, where NAME is that of the entry point."""

    routes: tuple[RestRoute, ...]


class ServiceHost(Protocol):
    """Services for a service."""

    @property
    def name(self) -> str:
        """Name of the entry point."""
        ...

    @property
    def host(self) -> Host:
        """Services of the crib: storage, events, guarded requests, folders, settings."""
        ...

    @property
    def log(self) -> logging.Logger:
        """Logger of this service."""
        ...

    def caller(self, principal: str) -> ToolCaller:
        """Return calls as a principal, under its rules; what would be asked waits in the store for a person."""
        ...


Service = Callable[[ServiceHost], Awaitable[None]]
"""Runs until it is cancelled, in one process of those that share a store. It returns when it has no work to do.

Begun again after an exception, later each time.
"""
