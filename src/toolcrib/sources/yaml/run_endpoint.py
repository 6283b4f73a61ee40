"""One HTTP request as a tool: an argument fills one place of it and changes nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

from msgspec.structs import replace

from ...core.context import Context
from ...core.json import dumps, read_json
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...net.guard import Guard, NetFailure
from ...net.urls import DEFAULT_PORTS, is_dots
from ...results.normalize import to_result
from ...telemetry.otel import trace_headers
from .fields import as_text
from .implementation import Endpoint

if TYPE_CHECKING:
    from ...net.client import WebClient, WebRequest

_READS: Final = ("GET", "HEAD")
_SHOWN: Final = 2_000
"""Characters of an error's body that a failure quotes."""
_CODES: Final[Mapping[int, str]] = {401: "denied", 403: "denied", 404: "tool_error"}
_BUSY: Final = (429, 502, 503, 504)
_BETWEEN: Final = (502, 504)
"""Status codes of proxies without an answer: the server behind may have acted."""
_LOOK_FIRST: Final = "check its effects before calling it again"


class EndpointRunner:
    """One endpoint, with the connections that it keeps. Closed with its source."""

    def __init__(self, endpoint: Endpoint, client: WebClient | None = None) -> None:
        """`client` is the caller's, who closes it; None makes one with the endpoint's permitted addresses."""
        self._endpoint = endpoint
        self._client = client
        self._is_own = client is None

    async def __call__(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Send it. Raises `ToolFailure`; a write that may have arrived is `outcome_unknown`, never sent again."""
        endpoint = self._endpoint
        try:
            request = self._request(arguments)
            request = replace(request, headers={**trace_headers(), **request.headers})
            answer = await self._opened().send(request, seconds=context.remaining)
        except NetFailure as failure:
            if failure.sent and endpoint.method not in _READS and failure.code in ("timeout", "unavailable"):
                raise ToolFailure("outcome_unknown", failure.message, hint=_LOOK_FIRST) from failure
            raise
        return _result(tool, endpoint, answer)

    async def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise the `ToolFailure` of a request whose address may not be reached, or that cannot be made."""
        await self._opened().check(self._request(arguments).url)

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the curl line of a call. Raises `ToolFailure` for arguments without a valid request."""
        from ...net.client import curl  # as above

        return curl(self._request(arguments))

    def _opened(self) -> WebClient:
        from ...net.client import WebClient  # the HTTP client is slow to load: few catalogs have endpoints

        if self._client is None:
            self._client = WebClient(_guard(self._endpoint))
        return self._client

    def _request(self, arguments: Mapping[str, Any]) -> WebRequest:
        from ...net.client import WebRequest  # as above

        endpoint = self._endpoint
        content, kind = _content(endpoint, arguments)
        headers = {"accept": "application/json, text/*;q=0.9, */*;q=0.5", **kind, **_headers(endpoint, arguments)}
        return WebRequest(method=endpoint.method, url=_url(endpoint, arguments), headers=headers, content=content)

    async def aclose(self) -> None:
        """Close the connections that are its own."""
        if self._client is not None and self._is_own:
            await self._client.aclose()


def _guard(endpoint: Endpoint) -> Guard:
    if not endpoint.allow_private:
        return Guard()
    parts = urlsplit(endpoint.url.pieces[0])
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return Guard.of([f"{host}:{parts.port or DEFAULT_PORTS[parts.scheme]}"])


def _url(endpoint: Endpoint, arguments: Mapping[str, Any]) -> str:
    url = endpoint.url.fill(arguments, _quoted)
    if url is None:
        missing = next(name for name in endpoint.url.names if arguments.get(name) is None)
        raise ToolFailure("invalid_arguments", f"{missing} is needed: it is part of the address")
    pairs = [
        (name, text)
        for name, template in endpoint.query.items()
        for text in _values(arguments.get(template.only) if template.only else template.fill(arguments, as_text))
    ]
    if not pairs:
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(pairs)}"


def _values(value: Any) -> list[str]:
    if value is None:
        return []
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [as_text(item) for item in items]


def _quoted(value: Any) -> str:
    """Return a value as one segment. Empty, `.` and `..` would name something else (security.md T21)."""
    text = as_text(value)
    if not text or is_dots(text):
        raise ToolFailure("invalid_arguments", f"{text!r} is not allowed in an address")
    return quote(text, safe="")


def _headers(endpoint: Endpoint, arguments: Mapping[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, template in endpoint.headers.items():
        text = template.fill(arguments, as_text)
        if text is None:
            continue
        if any(character in text for character in "\r\n\0") or not text.isascii():
            raise ToolFailure("invalid_arguments", f"the header {name} cannot have this value")
        headers[name] = text
    return headers


def _content(endpoint: Endpoint, arguments: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    if endpoint.content is not None:
        text = endpoint.content.fill(arguments, lambda value: dumps(value).decode())
        if text is None:
            raise ToolFailure("invalid_arguments", f"the body needs {', '.join(endpoint.content.names)}")
        return text.encode(), {"content-type": "application/json"}
    if endpoint.body == "none":
        return b"", {}
    used = set(endpoint.names)
    rest = {name: value for name, value in arguments.items() if name not in used}
    return dumps(rest), {"content-type": "application/json"}


def _result(tool: Tool, endpoint: Endpoint, answer: Any) -> ToolResult:
    if not 200 <= answer.status < 300:
        raise _failure(tool, endpoint, answer)
    kind = answer.media_type
    is_json = endpoint.output == "json" or kind == "application/json" or kind.endswith("+json")
    if not is_json or not answer.body.strip():
        return to_result(answer.body)
    try:
        return to_result(read_json(answer.body, limit=len(answer.body)))
    except ValueError as error:
        text = answer.body[:_SHOWN].decode("utf-8", "replace")
        raise ToolFailure("tool_error", f"{tool.name} answered no JSON: {error}", details={"body": text}) from None


def _failure(tool: Tool, endpoint: Endpoint, answer: Any) -> ToolFailure:
    code = "unavailable" if answer.status in _BUSY else _CODES.get(answer.status, "tool_error")
    is_unknown = answer.status in _BETWEEN and endpoint.method not in _READS
    text = " ".join(answer.body[: 4 * _SHOWN].decode("utf-8", "replace").split())[:_SHOWN]
    details: dict[str, Any] = {"status": answer.status, "body": text}
    if "retry-after" in answer.headers:
        details["retry_after"] = answer.headers["retry-after"]
    message = f"{tool.name}: HTTP {answer.status}: {text}".rstrip(": ")
    if 300 <= answer.status < 400:
        message = f"{tool.name}: HTTP {answer.status}: redirects elsewhere, which is not followed"
    if is_unknown:
        return ToolFailure("outcome_unknown", message, hint=_LOOK_FIRST, details=details)
    return ToolFailure(code, message, details=details)
