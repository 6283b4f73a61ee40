"""Language Server Protocol: the JSON-RPC connection to one server, and the types of its answers.

The types have the fields that we read; others are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import anyio
from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from toolcrib.plugin import Running, ToolFailure

MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of one message."""
_HEADER: Final = 4 * 1024
"""Bytes before a message."""
_SHOWN: Final = 200
_END: Final = b"\r\n\r\n"
_BEGINNING: Final = b"content-"
_LENGTH: Final = b"content-length"

_Message = dict[str, Any]

_WAITING: Final = 10_000
"""Messages to a server that does not read them; with more it hangs."""
_LAST_WORDS: Final = 1_500
"""Bytes of its log that are kept, for a message when it fails."""
_UNKNOWN: Final = -32601
_FAILED: Final = -32603

T = TypeVar("T")

SEVERITIES: Final = ("error", "warning", "information", "hint")
"""Numbered from 1."""
KINDS: Final = (
    "file module namespace package class method property field constructor enum interface function variable constant"
    " string number boolean array object key null enum-member struct event operator type-parameter"
).split()
"""Kinds of symbols, numbered from 1 (LSP 3.17, SymbolKind)."""


class ProtocolError(Exception):
    """The server's output is not the Language Server Protocol; the text quotes it."""


def packed(message: _Message) -> bytes:
    """Return a message as it is sent."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Frames:
    """Messages out of pieces of a stream. Lives as long as the stream, and is of no use once it has raised."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length = -1
        """Length of the message whose header was read; -1 before a header."""

    def feed(self, piece: bytes) -> list[_Message]:
        """Return the messages that are whole now. Raises `ProtocolError`."""
        self._buffer += piece
        found: list[_Message] = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> _Message | None:
        if self._length < 0:
            self._read_header()
        if self._length < 0 or len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length = -1
        try:
            message: Any = json.loads(body)
        except (ValueError, RecursionError):
            raise ProtocolError(f"it sent a message that is not JSON: {_excerpt(body)}") from None
        if not isinstance(message, dict):
            raise ProtocolError(f"it sent a message that is not an object: {_excerpt(body)}")
        return cast("_Message", message)

    def _read_header(self) -> None:
        start = bytes(self._buffer[: len(_BEGINNING)]).lower()
        if not _BEGINNING.startswith(start):
            raise ProtocolError(f"its stdout is not JSON-RPC: {_excerpt(self._buffer)}")
        end = self._buffer.find(_END, 0, _HEADER)
        if end < 0:
            if len(self._buffer) >= _HEADER:
                raise ProtocolError(f"it sent a header without an end: {_excerpt(self._buffer)}")
            return
        fields = [line.partition(b":") for line in bytes(self._buffer[:end]).split(b"\r\n")]
        length = next((value.strip() for name, _, value in fields if name.strip().lower() == _LENGTH), b"")
        if not length.isdigit() or len(length) > len(str(MOST_BYTES)):
            raise ProtocolError(f"it sent a header that tells no length: {_excerpt(self._buffer)}")
        if int(length) > MOST_BYTES:
            raise ProtocolError(f"it sent a message of {int(length):,} bytes, and {MOST_BYTES >> 20} MiB are the most")
        del self._buffer[: end + len(_END)]
        self._length = int(length)


def _excerpt(data: bytes | bytearray) -> str:
    return repr(bytes(data[:_SHOWN]).decode("utf-8", "replace"))


class ServerEnded(Exception):
    """The server has ended; the text gives the reason."""


class RequestTimeout(Exception):
    """The server did not answer in time."""


class ErrorResponse(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Waiting(Struct, eq=False):
    """A request without an answer."""

    over: anyio.Event = field(default_factory=anyio.Event)
    result: Any = None
    error: Exception | None = None


class LspConnection:
    """One server process, spoken to. `answer` gives what it asks for, and `hear` takes what it tells.

    `answer` raises `LookupError` for what we do not know. Both are called on the event loop and return at once.
    """

    def __init__(self, running: Running, answer: Callable[[str, Any], Any], hear: Callable[[str, Any], None]) -> None:
        """Wrap a running process; no message is sent or read before `serve`."""
        self._running = running
        self._answer = answer
        self._hear = hear
        self._frames = Frames()
        self._waiting: dict[int, _Waiting] = {}
        self._count = 0
        self._log = b""
        self._out, self._outgoing = anyio.create_memory_object_stream[bytes](_WAITING)
        self.ended = ""
        """Reason for the end of the connection; empty while it works."""

    async def serve(self) -> None:
        """Read messages until the server ends or violates the protocol; pending requests then fail."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write)
                self.end(await self._read())
                group.cancel_scope.cancel()
        finally:
            self.end("it was stopped")
            self._out.close()
            self._outgoing.close()

    def end(self, why: str) -> None:
        """Say that it is over; the first reason counts."""
        self.ended = self.ended or why
        for waiting in self._waiting.values():
            waiting.error = waiting.error or ServerEnded(self.ended)
            waiting.over.set()

    async def request(self, method: str, params: Any, *, seconds: float) -> Any:
        """Return the answer; cancel on abandonment. Raises `ServerEnded`, `RequestTimeout` or `ErrorResponse`."""
        self._count += 1
        number, waiting = self._count, _Waiting()
        self._waiting[number] = waiting
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            with anyio.fail_after(seconds):
                await waiting.over.wait()
        except BaseException as error:
            if not self.ended:
                self.notify("$/cancelRequest", {"id": number})
            if isinstance(error, TimeoutError):
                raise RequestTimeout(f"no answer to {method} within {seconds:.0f} s") from None
            raise
        finally:
            del self._waiting[number]
        if waiting.error is not None:
            raise waiting.error
        return waiting.result

    def notify(self, method: str, params: Any) -> None:
        """Tell the server something. Raises `ServerEnded`."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        if self.ended:
            raise ServerEnded(self.ended)
        try:
            self._out.send_nowait(packed(message))
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.end("it reads no messages any more")
            raise ServerEnded(self.ended) from None

    async def _write(self) -> None:
        async for data in self._outgoing:
            try:
                await self._running.write(data)
            except ToolFailure:
                return  # it is about to end, and says so itself

    async def _read(self) -> str:
        """Read messages; return the reason for the end."""
        while piece := await self._running.read():
            name, data = piece
            if name == "stderr":
                self._log = (self._log + data)[-_LAST_WORDS:]
                continue
            try:
                for message in self._frames.feed(data):
                    self._take(message)
            except ProtocolError as garbage:
                return str(garbage)
            except ServerEnded as ended:
                return str(ended)
        finished = await self._running.wait()
        why = finished.stopped or f"it ended with exit status {finished.status}"
        log = " ".join(self._log.decode("utf-8", "replace").split())
        return f"{why}; its last output: {log}" if log else why

    def _take(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            waiting = self._waiting.get(number) if isinstance(number, int) else None
            if waiting is not None:  # else the request was abandoned
                waiting.error, waiting.result = _error_of(message.get("error")), message.get("result")
                waiting.over.set()
        elif number is None:
            self._hear(method, message.get("params"))
        else:
            self._send({"jsonrpc": "2.0", "id": number, **self._replied(method, message.get("params"))})

    def _replied(self, method: str, params: Any) -> dict[str, Any]:
        try:
            return {"result": self._answer(method, params)}
        except LookupError:
            return {"error": {"code": _UNKNOWN, "message": f"there is no {method} here"}}
        except (AttributeError, TypeError, ValueError) as error:
            return {"error": {"code": _FAILED, "message": str(error)}}


def _error_of(text: Any) -> Exception | None:
    if text is None:
        return None
    error: dict[str, Any] = cast("dict[str, Any]", text) if isinstance(text, dict) else {"message": text}
    code = error.get("code")
    return ErrorResponse(code if isinstance(code, int) else _FAILED, " ".join(str(error.get("message", "")).split()))


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class Position(_Shape):
    """A place in a text; both count from 0, characters in UTF-16."""

    line: int = Field(ge=0)
    character: int = Field(ge=0)


class Range(_Shape):
    """From a place up to another one."""

    start: Position
    end: Position


class LspLocation(_Shape):
    """A range in a file (`Location`)."""

    uri: str
    range: Range


class Link(_Shape):
    """Target of a definition (`LocationLink`)."""

    uri: str = Field(alias="targetUri")
    range: Range = Field(alias="targetSelectionRange")


class DocumentSymbol(_Shape):
    """A symbol of a file, with those in it."""

    name: str
    kind: int
    range: Range
    selection: Range = Field(alias="selectionRange")
    children: Sequence[DocumentSymbol] = ()


class _SymbolLocation(_Shape):
    uri: str
    range: Range | None = None
    """A `WorkspaceSymbol` may leave it out until it is asked for."""


class SymbolInformation(_Shape):
    """A symbol of the workspace, or of a file in a server of the older kind."""

    name: str
    kind: int
    location: _SymbolLocation
    container: str | None = Field(default=None, alias="containerName")


class Hover(_Shape):
    """Hover content: text, `{language, value}`, `{kind, value}`, or a list of them."""

    contents: Any


class Diagnostic(_Shape):
    """One finding."""

    range: Range
    severity: int | None = None
    code: Any = None
    source: str | None = None
    message: str


class TextEdit(_Shape):
    """A piece of text in the place of another one."""

    range: Range
    text: str = Field(alias="newText")


class _Versioned(_Shape):
    uri: str
    version: int | None = None


class ChangedText(_Shape):
    """Edits of one file (`TextDocumentEdit`)."""

    document: _Versioned = Field(alias="textDocument")
    edits: Sequence[TextEdit]


class _Choices(_Shape):
    overwrite: bool = False
    skips_existing: bool = Field(default=False, alias="ignoreIfExists")
    skips_missing: bool = Field(default=False, alias="ignoreIfNotExists")


class FileChange(_Shape):
    """A file that is made, renamed or removed."""

    kind: str
    uri: str = ""
    old: str = Field(default="", alias="oldUri")
    new: str = Field(default="", alias="newUri")
    options: _Choices = _Choices()


class WorkspaceEdit(_Shape):
    """Changes in several files."""

    changes: dict[str, list[TextEdit]] | None = None
    in_order: Sequence[ChangedText | FileChange] | None = Field(default=None, alias="documentChanges")


class CodeAction(_Shape):
    """A code action; `command` is a text where the whole of it is a command."""

    title: str
    kind: str | None = None
    is_preferred: bool = Field(default=False, alias="isPreferred")
    disabled: dict[str, Any] | None = None
    edit: WorkspaceEdit | None = None
    command: str | dict[str, Any] | None = None
    arguments: list[Any] | None = None


def parse_answer(shape: type[T] | Any, answer: Any, what: str) -> T:
    """Return an answer in its shape. Raises `ToolFailure("tool_error")` for one that has another."""
    try:
        return TypeAdapter[T](shape).validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ToolFailure("tool_error", f"the language server answered {what} in no known way: {where}") from None
