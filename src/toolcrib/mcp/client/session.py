"""Session of a connection whose era is known: its lists of tools, resources and prompts, calls, and tasks.

A list of resources or prompts that cannot be had, or holds nonsense, is a problem and costs neither the tools nor the
other lists; each entry is checked by itself.

A server's answer becomes a `ToolResult`. Nothing in it is trusted: a wrong type is an error with its name.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import anyio
from msgspec import Struct

from ...core.context import Context
from ...core.json import as_list, as_mapping, dumps
from ...core.patterns import regex
from ...core.result import ToolError, ToolResult
from ...core.sanitize import Icons, clean_text, cut
from ...core.schema import FieldError, Validator
from ...core.server_features import ServerFeatures
from ...errors import ToolFailure
from ...results.untrusted_text import visible_json
from ..jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LATEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    RpcError,
)
from ..stdio import SpooledMessage
from .content_blocks import content_blocks
from .handshake import ClientInfo, Era, envelope
from .server_requests import SEVERAL_CLIENTS, cannot_ask, elicitation_from, peer_of
from .spec import McpLimits, ServerSpec
from .spooled_result import SpooledAnswer
from .transport import Link, LinkLost, Outgoing, Reply

_FEATURES_SECONDS: Final = 10.0
"""Seconds that all of these lists may take together: the tools do not wait longer for them."""
_URI_BYTES: Final = 2048
_ENTRY_BYTES: Final = 16 * 1024
"""Of one entry; a larger one is a load, not a description."""
_FEATURE_LISTS: Final = (
    ("resources", "resources/list", "resources"),
    ("resources", "resources/templates/list", "resourceTemplates"),
    ("prompts", "prompts/list", "prompts"),
)
"""The capability, the method, and the key of the entries."""
_FEATURE_FIELDS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "resources": {"mimeType": str, "size": int, "annotations": dict, "_meta": dict},
    "resourceTemplates": {"mimeType": str, "annotations": dict, "_meta": dict},
    "prompts": {"_meta": dict},
}
"""Members of an entry that are passed on beside its texts, with their types; one of another type is left out."""

_MOMENT: Final = regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)")
"""A moment with its offset from UTC."""

_Ask = Callable[[str, Mapping[str, Any]], Awaitable[Reply]]

_Report = Callable[[str, str], None]
"""Takes the code and the message of a problem."""

_LONGEST_TTL: Final = 3600.0
"""Seconds that a server is asked to keep a task whose call has no deadline."""
_CANCEL_SECONDS: Final = 1.0

_logger = logging.getLogger(__name__)

_RESUMING: Final = ("inputResponses", "requestState")
"""Keys of a call's resumption that go to a server."""

_RELISTEN: Final = 30.0
"""Seconds before a subscription that ended is opened again."""

_MOST_LISTED: Final = 20
"""A list is cut off at this many times the tools that are taken (`McpLimits.tools`): it would only cost memory."""

_MESSAGE: Final = 500
"""Characters of a failure's own text that are repeated in the error's message."""

_OURS: Final = "io.modelcontextprotocol/"


class RawFeatures(Struct, frozen=True, kw_only=True):
    """Entries of the lists, unchecked, by their key; and the reason why one of the lists is missing."""

    lists: Mapping[str, Sequence[Any]]
    missing: Mapping[str, str]
    reads: bool


async def list_features(ask: _Ask, capabilities: Mapping[str, Any], limits: McpLimits) -> RawFeatures:
    """Fetch every list that a server of these capabilities says it has; `ask` sends a request.

    Raises `LinkLost` alone.
    """
    lists: dict[str, Sequence[Any]] = {}
    missing: dict[str, str] = {}
    wanted = [entry for entry in _FEATURE_LISTS if entry[0] in capabilities]
    with anyio.move_on_after(_FEATURES_SECONDS):
        for _, method, key in wanted:
            try:
                lists[key] = await _feature_pages(ask, method, key, limits)
            except RpcError as error:
                if error.code == METHOD_NOT_FOUND:
                    lists[key] = ()
                else:
                    missing[key] = error.message
            except ToolFailure as failure:
                missing[key] = failure.message
    for _, _, key in wanted:
        if key not in lists and key not in missing:
            missing[key] = f"it was not listed within {_FEATURES_SECONDS:g} s"
    return RawFeatures(lists=lists, missing=missing, reads="resources" in capabilities)


async def _feature_pages(ask: _Ask, method: str, key: str, limits: McpLimits) -> list[Any]:
    found: list[Any] = []
    cursor: Any = None
    for _ in range(limits.pages):
        reply = await ask(method, {} if cursor is None else {"cursor": cursor})
        if isinstance(reply, SpooledMessage):
            reply.discard()
            raise ToolFailure("unavailable", f"a page of it has {reply.size} bytes, more than is taken")
        page = reply.get(key)
        if not isinstance(page, list):
            raise ToolFailure("unavailable", f"it is malformed: `{key}` is not a list")
        found += cast("list[Any]", page)
        cursor = reply.get("nextCursor")
        if not (isinstance(cursor, str) and cursor) or len(found) > limits.tools:
            break
    return found


def build_features(raw: RawFeatures, limits: McpLimits, report: _Report, icons: Icons) -> ServerFeatures:
    """Check every entry of `raw` and return what can be offered."""
    for key, reason in raw.missing.items():
        report("unavailable", f"its list of {key} cannot be used: {cut(clean_text(reason)[0], 300)}")
    return ServerFeatures(
        resources=_feature_entries(raw, "resources", "uri", limits, report, icons),
        templates=_feature_entries(raw, "resourceTemplates", "uriTemplate", limits, report, icons),
        prompts=_feature_entries(raw, "prompts", "name", limits, report, icons),
        reads=raw.reads,
    )


def _feature_entries(
    raw: RawFeatures, key: str, naming: str, limits: McpLimits, report: _Report, icons: Icons
) -> tuple[Mapping[str, Any], ...]:
    listed = raw.lists.get(key, ())
    if len(listed) > limits.tools:
        report("too_many", f"the server lists {len(listed)} {key}; the first {limits.tools} are taken")
    taken: dict[str, Mapping[str, Any]] = {}
    for entry in map(as_mapping, listed[: limits.tools]):
        named = entry.get(naming)
        reason = _feature_refusal(entry, named, naming)
        if reason or not isinstance(named, str):
            shown = ascii(named)[:200] if named else "one without a name"
            report("bad_entry", f"{shown} of its {key} is left out: {reason}")
        elif named in taken:
            report("duplicate", f"{ascii(named)[:200]} is twice among its {key}; the first one is taken")
        else:
            shown = icons.take(entry.get("icons"))
            taken[named] = _feature_entry(entry, key, naming, limits) | ({"icons": shown} if shown else {})
    return tuple(taken.values())


def _feature_refusal(entry: Mapping[str, Any], named: Any, naming: str) -> str:
    """Say why an entry cannot be offered; empty when it can."""
    if not isinstance(named, str) or not named or len(named.encode("utf-8", "replace")) > _URI_BYTES:
        return f"its {naming} is not a text of 1 to {_URI_BYTES} bytes"
    if clean_text(named)[1] or not named.isprintable():
        return f"its {naming} holds invisible characters"
    if naming != "name" and ":" not in named:
        return f"its {naming} is not a URI"
    try:
        size = len(dumps({name: value for name, value in entry.items() if name != "icons"}))
    except (TypeError, ValueError, RecursionError):
        return "it is not JSON that could be passed on"
    return f"it has {size} bytes; {_ENTRY_BYTES} are allowed" if size > _ENTRY_BYTES else ""


def _feature_entry(entry: Mapping[str, Any], key: str, naming: str, limits: McpLimits) -> dict[str, Any]:
    """Return the entry with clean words and nothing of a wrong type."""
    shown: dict[str, Any] = {naming: entry[naming]}
    if naming != "name":
        name = entry.get("name")
        shown["name"] = cut(clean_text(name)[0], 200) if isinstance(name, str) and name else entry[naming]
    for word, most in (("title", 200), ("description", limits.description_bytes)):
        if isinstance(text := entry.get(word), str) and text:
            shown[word] = cut(clean_text(text)[0], most)
    if key == "prompts" and (arguments := _prompt_arguments(entry, limits)):
        shown["arguments"] = arguments
    kept = {name: entry[name] for name, kind in _FEATURE_FIELDS[key].items() if isinstance(entry.get(name), kind)}
    if "annotations" in kept:
        kept["annotations"] = _feature_annotations(kept["annotations"])
    return {**shown, **kept}


def _feature_annotations(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations without what SDKs refuse, and a whole list of all servers with it."""
    known: dict[str, Callable[[Any], bool]] = {
        "audience": lambda value: (
            isinstance(value, list) and all(one in ("user", "assistant") for one in as_list(value))
        ),
        "priority": lambda value: isinstance(value, int | float) and 0 <= value <= 1,
        "lastModified": lambda value: isinstance(value, str) and _MOMENT.fullmatch(value) is not None,
    }
    return {name: value for name, value in given.items() if name not in known or known[name](value)}


def _prompt_arguments(entry: Mapping[str, Any], limits: McpLimits) -> list[dict[str, Any]]:
    given = entry.get("arguments")
    found: list[dict[str, Any]] = []
    for argument in map(as_mapping, as_list(given)):
        name = argument.get("name")
        if not isinstance(name, str) or not name or clean_text(name)[1]:
            continue
        shown: dict[str, Any] = {"name": name}
        for word in ("title", "description"):
            if isinstance(text := argument.get(word), str) and text:
                shown[word] = cut(clean_text(text)[0], limits.description_bytes)
        found.append({**shown, "required": argument.get("required") is True})
    return found


def needing_tasks(tools: Iterable[Any]) -> frozenset[str]:
    """Return the names of the listed tools that refuse a plain call."""
    entries = (as_mapping(entry) for entry in tools)
    needing = (entry for entry in entries if as_mapping(entry.get("execution")).get("taskSupport") == "required")
    return frozenset(str(entry.get("name")) for entry in needing)


async def run_task(link: Link, params: Mapping[str, Any], context: Context, version: str) -> Reply:
    """Run `tools/call` with `params` as a task and return its result.

    Raises `RpcError`, `LinkLost`, or `ToolFailure` when the server starts no task.
    """
    ttl = round(min(context.remaining, _LONGEST_TTL) * 1000)
    started = await link.ask(Outgoing("tools/call", {**params, "task": {"ttl": ttl}}, version=version, context=context))
    if isinstance(started, SpooledMessage):
        started.discard()
        raise ToolFailure("tool_error", "the server answered a task with a message that is too large")
    task: Any = as_mapping(started.get("task")).get("taskId")
    if not isinstance(task, str):
        raise ToolFailure("tool_error", "the server runs this tool only as a task, and started none")
    request = Outgoing("tasks/result", {"taskId": task}, version=version, context=context)
    try:
        return await link.ask(request)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
            await _cancel(link, task, version)
        raise


async def _cancel(link: Link, task: str, version: str) -> None:
    try:
        await link.ask(Outgoing("tasks/cancel", {"taskId": task}, version=version))
    except (LinkLost, RpcError, ToolFailure):
        return


class RawListing(Struct, frozen=True, kw_only=True):
    """Answer to `tools/list`, unchecked."""

    tools: Sequence[Any]
    more: str = ""
    """Reason why `tools` is not all: the server would not stop."""
    features: RawFeatures | None = None
    """Its other lists; None if they were not asked for."""


class ClientSession:
    """One live connection in one era. Ends with its link.

    Made by `Connection` after the handshake. In the modern era each request carries the envelope, with the
    capabilities of the client of that call; in the handshake era `initialize` has declared them for all calls.
    """

    def __init__(self, link: Link, era: Era, client: ClientInfo, limits: McpLimits) -> None:
        self.link = link
        self.era = era
        self.served = 0
        """Calls that were answered."""
        self.tasks: frozenset[str] = frozenset()
        """Names of the tools that run only as tasks."""
        self._client = client
        self._limits = limits
        self._envelope = envelope(client, {}) if era.modern else {}

    async def list_tools(self) -> RawListing:
        """Fetch every page; raises `LinkLost`, `RpcError` or `ToolFailure`."""
        tools: list[Any] = []
        cursor: str | None = None
        for _ in range(self._limits.pages):
            try:
                reply = await self.ask("tools/list", {} if cursor is None else {"cursor": cursor})
            except RpcError as error:
                if error.code == METHOD_NOT_FOUND and not tools:
                    return RawListing(tools=())
                raise
            tools += _page(reply)
            if len(tools) > self._limits.tools * _MOST_LISTED:
                return RawListing(
                    tools=tools, more=f"the server lists more than {len(tools)} tools; the rest was not read"
                )
            cursor = reply.get("nextCursor") if not isinstance(reply, SpooledMessage) else None
            if not isinstance(cursor, str) or not cursor:
                return RawListing(tools=tools)
        return RawListing(tools=tools, more=f"the list goes on after {self._limits.pages} pages; the rest was not read")

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: Context, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Run a tool; raises `RpcError`, `LinkLost` or `ToolFailure`. `headers` go along on HTTP."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if self.era.modern and context.resume:
            params.update({key: context.resume[key] for key in _RESUMING if key in context.resume})
        request = Outgoing("tools/call", params, version=self.era.version, context=context, headers=headers)
        meta = self._meta(context)
        if meta:
            params["_meta"] = meta
        if name in self.tasks and not self.era.modern:
            reply = await run_task(self.link, params, context, self.era.version)
        else:
            reply = await self.link.ask(request)
        self.served += 1
        return reply

    async def ask(self, method: str, params: Mapping[str, Any], context: Context | None = None) -> Reply:
        """Ask for something that only reads; raises `RpcError`, `LinkLost` or `ToolFailure`."""
        asked = dict(params)
        if self.era.modern and context is not None and context.resume:
            asked.update({key: context.resume[key] for key in _RESUMING if key in context.resume})
        meta = self._meta(context) if context is not None else dict(self._envelope)
        if meta:
            asked["_meta"] = meta
        reply = await self.link.ask(Outgoing(method, asked, version=self.era.version, context=context))
        if context is not None:
            self.served += 1
        return reply

    async def listen(self, wanted: Mapping[str, Any]) -> None:
        """Have a server of the modern era say when something of `wanted` changes; returns when it stops to."""
        params = {"notifications": wanted, "_meta": self._envelope}
        try:
            await self.link.ask(Outgoing("subscriptions/listen", params, version=LATEST))
        except (LinkLost, ToolFailure, RpcError) as error:
            _logger.debug("no notice of changes: %s", error)

    async def follow_changes(self) -> None:
        """Have the server say when its tools change, where the era wants that asked for. Runs until the link ends."""
        if not (self.era.modern and self.era.lists_changes):
            return
        wanted = {"toolsListChanged": True}
        while not self.link.reason:
            params = {"notifications": wanted, "_meta": self._envelope}
            try:
                await self.link.ask(Outgoing("subscriptions/listen", params, version=LATEST))
            except (LinkLost, ToolFailure):
                pass
            except RpcError as error:
                _logger.debug("no notice of changed tools: %s", error)
                return
            with anyio.move_on_after(_RELISTEN):
                await self.link.lost.wait()

    def _meta(self, context: Context) -> dict[str, Any]:
        meta = dict(context.meta)
        if self.era.modern:
            peer = peer_of(context)
            offered = as_mapping(peer.capabilities if peer is not None else None)
            capabilities = {key: offered[key] for key in self._client.capabilities if key in offered}
            meta.update(envelope(self._client, capabilities) if capabilities else self._envelope)
        return meta


def _page(reply: Reply) -> list[Any]:
    if isinstance(reply, SpooledMessage):
        reply.discard()
        raise ToolFailure("unavailable", f"its list of tools has {reply.size} bytes on one page, more than is taken")
    tools = reply.get("tools")
    if not isinstance(tools, list):
        raise ToolFailure("unavailable", "its list of tools is malformed: `tools` is not a list")
    return cast("list[Any]", tools)


def of_reply(reply: Mapping[str, Any], spec: ServerSpec, output: Validator | None) -> ToolResult:
    """Return the outcome that a `tools/call` result means; raises `ToolFailure` when it means nothing."""
    if (asked := asked_for_input(reply, spec)) is not None:
        return asked
    content = _content(reply)
    structured = reply.get("structuredContent")
    meta = _meta(reply)
    if reply.get("isError") is True:
        error = ToolError(code="tool_error", message=_message(content))
        return ToolResult(content=content, structured_content=structured, error=error, meta=meta)
    if output is not None and (wrong := _output_error(structured, "structuredContent" in reply, output)):
        raise ToolFailure("tool_error", wrong, hint="The tool ran; its output breaks its own outputSchema.")
    return ToolResult(content=content, structured_content=structured, meta=meta)


def asked_for_input(reply: Mapping[str, Any], spec: ServerSpec) -> ToolResult | None:
    """Return the outcome of a reply that asks for input first; None when it does not. Raises `ToolFailure`."""
    kind = reply.get("resultType", "complete")
    if kind == "input_required":
        return ToolResult(input_required=_input_required(reply, spec))
    if kind != "complete":
        raise ToolFailure("tool_error", f"the server answered with a result of unknown type {str(kind)[:60]!r}")
    return None


def of_error(error: RpcError, tool: str) -> ToolFailure:
    """Return the failure that a JSON-RPC error means."""
    details: dict[str, Any] = {"rpc_code": error.code}
    if error.data is not None:
        details["data"] = error.data
    if error.code in (METHOD_NOT_FOUND, INTERNAL_ERROR) and cannot_ask(error.message):
        is_shared = SEVERAL_CLIENTS in error.message
        hint = "Call it again when no other client has a call there." if is_shared else ""
        return ToolFailure(
            "tool_error", f"the server could not ask its client: {error.message}", hint=hint, details=details
        )
    if error.code == METHOD_NOT_FOUND:
        return ToolFailure(
            "unavailable", f"the server does not know {tool!r} any more: {error.message}", details=details
        )
    if error.code == REQUEST_CANCELLED:
        return ToolFailure("cancelled", f"the server cancelled the call: {error.message}", details=details)
    code = "invalid_arguments" if error.code == INVALID_PARAMS else "tool_error"
    return ToolFailure(code, f"the server refused the call: {error.message}", details=details)


def of_spooled(answer: SpooledAnswer) -> ToolResult:
    """Return the result whose output is on disk."""
    error = None
    if answer.is_error:
        error = ToolError(code="tool_error", message=answer.spooled.head[:_MESSAGE] or "the tool failed")
    return ToolResult(spooled=answer.spooled, error=error)


def _content(reply: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    value = reply.get("content")
    if value is None and "structuredContent" in reply:
        return ()
    return content_blocks(value)


def _message(content: tuple[Mapping[str, Any], ...]) -> str:
    text = "\n".join(block["text"] for block in content if block["type"] == "text").strip()
    return text[:_MESSAGE] or "the tool failed and gave no reason"


def _meta(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the server's own `_meta` under one key, without what the protocol put there."""
    given = {key: value for key, value in as_mapping(reply.get("_meta")).items() if not key.startswith(_OURS)}
    return {"_meta": given} if given else {}


def _output_error(structured: Any, given: bool, output: Validator) -> str:
    if not given:
        return "the tool declares an outputSchema but gave no structuredContent"
    errors = [error for error in output.check(structured) if error.keyword != "limit"]
    return (
        "the structuredContent is not what the tool promised: " + "; ".join(map(_shown, errors[:3])) if errors else ""
    )


def _shown(error: FieldError) -> str:
    return f"{error.path}: {error.message}" if error.path else error.message


def _input_required(reply: Mapping[str, Any], spec: ServerSpec) -> Mapping[str, Any]:
    """Return the server's question; what it asks a person carries the server's name."""
    if not spec.relay:
        raise ToolFailure("denied", "the server asks for input, which its configuration does not let through")
    asked = as_mapping(visible_json(reply.get("inputRequests"))[0])
    if not asked and not isinstance(reply.get("requestState"), str):
        raise ToolFailure("tool_error", "the server asks for input but says neither what nor in which state")
    requests: dict[str, Any] = {}
    for key, one in asked.items():
        request = as_mapping(one)
        if request.get("method") == "elicitation/create":
            request = {**request, "params": elicitation_from(spec.name, as_mapping(request.get("params")))}
        requests[key] = request
    return {**reply, "inputRequests": requests} if requests else reply
