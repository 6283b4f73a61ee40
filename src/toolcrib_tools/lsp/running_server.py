"""A running language server: handshake, capabilities, and notifications from the server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import anyio
from msgspec import Struct, field

from toolcrib.plugin import Running, ToolFailure, Workspace, as_list, as_mapping

from .documents import Documents, OpenDocument, key_of
from .protocol import ErrorResponse, LspConnection, RequestTimeout, ServerEnded
from .settings import ServerSpec

_MARGIN: Final = 2.0
"""Seconds of the call's own time that are left to say what came of it."""
_BREATH: Final = 0.3
"""Seconds after the handshake in which a server says that it begins to read the project, where it says so at all."""
PUBLISHED: Final = 20.0
"""Seconds that findings are waited for which a server gives by itself."""
_AGAIN: Final = 2.0
"""Seconds that new findings are waited for where only other files have changed."""
_QUIET: Final = 0.7
"""Seconds without new findings of a file after which they are taken for all: some servers give them in parts."""
_MOST_FINDINGS: Final = 2_000
"""Diagnostics of one file."""
_TRIES: Final = 5
_PAUSE: Final = 0.5
_BUSY: Final = (-32801, -32802)
"""ContentModified and ServerCancelled: ask again."""
_PROVIDERS: Final[Mapping[str, str]] = {
    "codeAction/resolve": "codeActionProvider.resolveProvider",
    "textDocument/codeAction": "codeActionProvider",
    "textDocument/definition": "definitionProvider",
    "textDocument/diagnostic": "diagnosticProvider",
    "textDocument/documentSymbol": "documentSymbolProvider",
    "textDocument/hover": "hoverProvider",
    "textDocument/references": "referencesProvider",
    "textDocument/rename": "renameProvider",
    "workspace/symbol": "workspaceSymbolProvider",
}
"""Capability for each method; a server may also register it later (`client/registerCapability`)."""
_ACCEPTED: Final = frozenset(
    {
        "client/registerCapability", "client/unregisterCapability", "window/showMessageRequest",
        "window/workDoneProgress/create", "workspace/codeLens/refresh", "workspace/diagnostic/refresh",
        "workspace/foldingRange/refresh", "workspace/inlayHint/refresh", "workspace/inlineValue/refresh",
        "workspace/semanticTokens/refresh",
    }
)  # fmt: skip
_ACTIONS: Final = (
    "", "quickfix", "refactor", "refactor.extract", "refactor.inline", "refactor.move", "refactor.rewrite", "source",
    "source.organizeImports", "source.fixAll",
)  # fmt: skip
_CLIENT: Final[Mapping[str, Any]] = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True, "showMessage": {}, "showDocument": {"support": False}},
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {
            "documentChanges": True,
            "resourceOperations": ["create", "rename", "delete"],
            "failureHandling": "transactional",
        },
        "configuration": True,
        "workspaceFolders": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": True},
        "symbol": {"dynamicRegistration": True},
        "executeCommand": {"dynamicRegistration": True},
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"relatedInformation": True, "versionSupport": True, "dataSupport": True},
        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": False},
        "definition": {"linkSupport": True},
        "references": {},
        "hover": {"contentFormat": ["plaintext", "markdown"]},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "rename": {"prepareSupport": False},
        "codeAction": {
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": list(_ACTIONS)}},
            "isPreferredSupport": True,
            "disabledSupport": True,
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit", "command"]},
        },
    },
}
"""Our capabilities (LSP 3.17, ClientCapabilities)."""


class _Published(Struct, frozen=True, kw_only=True):
    """Findings of one file that the server gave by itself."""

    number: int
    """Number among all publications."""
    opened: OpenDocument
    """The text that they are about."""
    items: Sequence[Any]


class _ServerState(Struct, eq=False):
    """State that the server's notifications have set so far."""

    count: int = 0
    published: dict[str, _Published] = field(default_factory=dict[str, _Published])
    mark: int | None = None
    """Number of publications when the server was last sent a change; None if there was no change."""
    busy: set[Any] = field(default_factory=set[Any])
    """Tokens of work that has begun and not ended."""
    registered: set[str] = field(default_factory=set[str])
    news: anyio.Event = field(default_factory=anyio.Event)

    def tell(self) -> None:
        """Wake tasks that wait for a notification."""
        self.news.set()
        self.news = anyio.Event()


class RunningServer:
    """One run of a server. Everything but `serve`, `fail` and `end` belongs to the question that has the turn.

        begin ──> (sync ──> request, findings, run) for each question ──> leave
        serve     beside all of it, in the task that holds the process: reads answers and notifications

    Findings come in two ways. A server with `textDocument/diagnostic` is asked for them. Any other publishes them at a
    time of its own, and does not say that they are all: they are taken once none have come for a while.
    """

    def __init__(self, spec: ServerSpec, roots: Sequence[Path]) -> None:
        """`roots` are the folders of the workspace, sent to the server in `begin`."""
        self.spec = spec
        self.deadline = float("inf")
        """Deadline of the current request, on the clock of `time.monotonic`."""
        self.pid: int | None = None
        self.documents = Documents(spec, self._notify, saves=False)
        self._folders = [{"uri": root.as_uri(), "name": root.name} for root in roots]
        self._connection: LspConnection | None = None
        self._began = anyio.Event()
        self._ended = ""
        self._failure: ToolFailure | None = None
        self._capabilities: Mapping[str, Any] = {}
        self._heard = _ServerState()
        self._collected: list[Any] | None = None
        """Changes that the server asks for while a command of it runs; None when none does."""

    @property
    def ended(self) -> str:
        """Reason for the end of the server; empty while it runs."""
        return self._ended or (self._connection.ended if self._connection is not None else "")

    async def serve(self, running: Running) -> None:
        """Speak to its process until that is gone."""
        self.pid = running.pid
        self._connection = LspConnection(running, self._answer, self._hear)
        self._began.set()
        await self._connection.serve()

    def fail(self, failure: ToolFailure) -> None:
        """Say that its process could not be started."""
        self._failure = failure
        self.end(failure.message)

    def end(self, why: str) -> None:
        """Say that it is over; the first reason counts."""
        self._ended = self.ended or why
        self._began.set()
        self._heard.tell()

    async def begin(self) -> None:
        """Shake hands. Raises `ServerEnded`, `RequestTimeout`, or `ToolFailure` if the process cannot be started."""
        await self._began.wait()
        if self._failure is not None:
            raise self._failure
        hello = {
            "processId": None,
            "clientInfo": {"name": "toolcrib"},
            "rootUri": self._folders[0]["uri"],
            "workspaceFolders": self._folders,
            "capabilities": _CLIENT,
            "initializationOptions": self.spec.options,
        }
        answer = as_mapping(await self.request("initialize", hello))
        self._capabilities = as_mapping(answer.get("capabilities"))
        sync = self._capabilities.get("textDocumentSync")
        saves = isinstance(sync, dict) and bool(cast("dict[str, Any]", sync).get("save"))
        self.documents = Documents(self.spec, self._notify, saves=saves)
        self._notify("initialized", {})
        if self.spec.settings:
            self._notify("workspace/didChangeConfiguration", {"settings": self.spec.settings})
        await anyio.sleep(_BREATH)

    async def leave(self, seconds: float) -> None:
        """Say goodbye. Raises as `request` does."""
        assert self._connection is not None
        await self._connection.request("shutdown", None, seconds=seconds)
        self._notify("exit", None)

    async def is_awake(self, seconds: float) -> bool:
        """True if the server answers at all: an unknown method that begins with `$/` gets an error (LSP 3.17)."""
        assert self._connection is not None
        try:
            await self._connection.request("$/toolcrib/ping", {}, seconds=seconds)
        except ErrorResponse:
            return True
        except (ServerEnded, RequestTimeout):
            return False
        return True

    def can(self, method: str) -> bool:
        """True if the server supports a method."""
        value: Any = self._capabilities
        for step in _PROVIDERS[method].split("."):
            value = as_mapping(value).get(step)
        return method in self._heard.registered or (value is not None and value is not False)

    async def request(self, method: str, params: Any) -> Any:
        """Return its answer; ask a busy server again. Raises `ServerEnded`, `RequestTimeout` and `ErrorResponse`."""
        for left in range(_TRIES - 1, -1, -1):
            if self._connection is None or self.ended:
                raise ServerEnded(self.ended)
            try:
                return await self._connection.request(method, params, seconds=self._seconds)
            except ErrorResponse as refused:
                if refused.code not in _BUSY or not left:
                    raise
            await anyio.sleep(_PAUSE)
        raise AssertionError("unreachable")

    async def sync(self, workspace: Workspace, *names: str) -> tuple[OpenDocument, ...]:
        """Send changes to the server, and return these files as it has them, once it has read the project.

        Raises `ToolFailure` for a file that cannot be read, or is not text.
        """
        heard, count = self._heard, self._heard.count
        heard.mark = count if await self.documents.sync(workspace, names) else None
        with anyio.move_on_after(self._seconds):
            while heard.busy and not self.ended:
                await heard.news.wait()
        return tuple(one for name in names if (one := self.documents.get(name)) is not None)

    async def findings(self, opened: OpenDocument, *, patience: float = PUBLISHED) -> list[Any] | None:
        """Return the server's diagnostics of a file; None if it publishes none within `patience` seconds."""
        found: list[Any] = []
        pulls = self.can("textDocument/diagnostic")
        if pulls:
            answer = await self.request("textDocument/diagnostic", {"textDocument": {"uri": opened.uri}})
            found += as_list(as_mapping(answer).get("items"))
        given = self._published_for(opened) if pulls else await self._published(opened, patience)
        if given is not None:
            found += [one for one in given.items if one not in found]
        return found[:_MOST_FINDINGS] if pulls or given is not None else None

    async def run(self, command: str, arguments: Sequence[Any]) -> list[Any]:
        """Have it run one of its commands; return the changes that it asks for meanwhile, none of which was made."""
        collected: list[Any] = []
        self._collected = collected
        try:
            await self.request("workspace/executeCommand", {"command": command, "arguments": list(arguments)})
        finally:
            self._collected = None
        return collected

    @property
    def _seconds(self) -> float:
        return max(0.1, min(self.spec.seconds, self.deadline - time.monotonic() - _MARGIN))

    def _published_for(self, opened: OpenDocument) -> _Published | None:
        """Return the diagnostics that were published of a file as it is now."""
        given = self._heard.published.get(key_of(opened.uri))
        return given if given is not None and given.opened is opened else None

    async def _published(self, opened: OpenDocument, patience: float) -> _Published | None:
        """Return the diagnostics of a file as it is now, once no more come."""
        heard = self._heard
        with anyio.move_on_after(min(patience, self._seconds)):
            while self._published_for(opened) is None and not self.ended:
                await heard.news.wait()
        if heard.mark is None:  # no change was sent, so no new publication will come
            return self._published_for(opened)
        with anyio.move_on_after(_AGAIN):
            while (given := self._published_for(opened)) is not None and given.number <= heard.mark and not self.ended:
                await heard.news.wait()
        is_over = False
        while not is_over and not self.ended:
            last = self._published_for(opened)
            with anyio.move_on_after(_QUIET) as waiting:
                while self._published_for(opened) is last:
                    await heard.news.wait()
            is_over = waiting.cancelled_caught
        return self._published_for(opened)

    def _notify(self, method: str, params: Any) -> None:
        if self._connection is None:
            raise ServerEnded(self.ended)
        self._connection.notify(method, params)

    def _answer(self, method: str, params: Any) -> Any:
        """Return the answer to a request of the server. Raises `LookupError`."""
        if method == "workspace/configuration":
            return [self.spec.section(str(item.get("section") or "")) for item in params["items"]]
        if method == "workspace/workspaceFolders":
            return self._folders
        if method == "workspace/applyEdit":
            return self._collect(params["edit"])
        if method == "window/showDocument":
            return {"success": False}
        if method == "client/registerCapability":
            self._heard.registered |= {str(one["method"]) for one in params["registrations"]}
        if method not in _ACCEPTED:
            raise LookupError(method)
        return None

    def _collect(self, edit: Any) -> dict[str, Any]:
        if self._collected is None:
            return {"applied": False, "failureReason": "no change was requested"}
        self._collected.append(edit)
        return {"applied": True}

    def _hear(self, method: str, params: Any) -> None:
        if not isinstance(params, dict):
            return
        fields, heard = cast("dict[str, Any]", params), self._heard
        if method == "textDocument/publishDiagnostics" and isinstance(fields.get("uri"), str):
            self._publish(fields)
        elif (
            method == "$/progress"
            and isinstance(fields.get("token"), str | int)
            and isinstance(fields.get("value"), dict)
        ):
            kind = fields["value"].get("kind")
            if kind == "begin":
                heard.busy.add(fields["token"])
            elif kind == "end":
                heard.busy.discard(fields["token"])
            heard.tell()

    def _publish(self, published: dict[str, Any]) -> None:
        opened = self.documents.by_uri(published["uri"])
        version, items = published.get("version"), published.get("diagnostics")
        if opened is None or not isinstance(items, list) or (isinstance(version, int) and version < opened.version):
            return  # a file that was never opened, or an older version of it
        heard = self._heard
        heard.count += 1
        given = cast("list[Any]", items)[:_MOST_FINDINGS]
        heard.published[key_of(published["uri"])] = _Published(number=heard.count, opened=opened, items=given)
        heard.tell()
