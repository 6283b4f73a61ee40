"""Requests and notices of a server: handed to the client of the call they belong to, or refused at once.

Where no client made the call, the elicitor of its session answers what the server asks a person.

On HTTP a message arrives on the stream of the call it belongs to. On stdio nothing says so: progress is known by its
token, and anything else is handed on only when all calls in flight on that connection come from one client. A server
can therefore never reach the client of another caller's call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import anyio

from ...core.context import Context, Peer
from ...core.elicitation import Clarification, Elicitor, Form
from ...core.json import as_mapping
from ...core.patterns import regex
from ...errors import ToolFailure
from ...results.untrusted_text import visible_json
from ...system.tasks import Background
from ..jsonrpc import INTERNAL_ERROR, LOG_LEVELS, METHOD_NOT_FOUND
from .spec import McpLimits, ServerSpec
from .transport import Link, Outgoing

_ADDRESS: Final = regex(
    r"(?:https|HTTPS)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?#][^\\\s\x00-\x1f\x7f]*)?"
)
"""An address whose host is read in one way: browsers take `\\` for `/`, and letters of other scripts look alike."""
RELAYED: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""The requests that a client may be asked, and the capability that says it can answer."""

SEVERAL_CLIENTS: Final = "calls of several clients are running, and it does not say for which it asks"
"""Reason why a server's request cannot be handed on if only its connection is known."""

_CHANGES: Final = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/subscriptions/acknowledged",
)
"""Notifications after which the lists are read again; a subscription does not report changes from before it began."""


class Relay:
    """Receives the messages of one source's connections. Lives as long as the source."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: McpLimits,
        background: Background,
        changed: Callable[[], None],
        updated: Callable[[str], None],
    ) -> None:
        """`changed` is called when the server says that a list of it changed, `updated` with a resource that did."""
        self._spec = spec
        self._limits = limits
        self._background = background
        self._changed = changed
        self._updated = updated
        self._open: dict[tuple[int, Any], anyio.CancelScope] = {}
        self._log = logging.getLogger(f"toolcrib.server.{spec.name}")

    def on_request(self, link: Link, message: Mapping[str, Any], owner: Outgoing | None) -> None:
        """Answer at once, or ask the client and answer when it does."""
        key, method = message["id"], message.get("method")
        if not isinstance(key, int | str):
            return
        if method == "ping":
            link.answer({"id": key, "result": {}})
            return
        call = self._call(link, owner)
        peer = peer_of(call.context) if call is not None and call.context is not None and not call.settled else None
        if call is None and method in RELAYED and self._clients(link) > 1:
            error = {"code": INTERNAL_ERROR, "message": f"{method} cannot be handed on: {SEVERAL_CLIENTS}"}
            link.answer({"id": key, "error": error})
            return
        is_open = (id(link), key) in self._open
        if call is None or peer is None or is_open or not isinstance(method, str) or not self._may_ask(peer, method):
            link.answer({"id": key, "error": {"code": METHOD_NOT_FOUND, "message": f"{method} is not available here"}})
            return
        params = as_mapping(visible_json(message.get("params"))[0])
        scope = self._open[id(link), key] = anyio.CancelScope()  # it counts from now on: many can come in one piece
        call.scopes.append(scope)
        self._background.spawn(partial(self._ask, link, key, method, params, peer, scope))

    def on_notification(self, link: Link, message: Mapping[str, Any], owner: Outgoing | None) -> None:
        """Hand progress and log messages to the call they belong to; note what changed."""
        method, params = message.get("method"), as_mapping(visible_json(message.get("params"))[0])
        if method == "notifications/progress":
            self._progress(link, params)
        elif method == "notifications/message":
            self._message(link, params, owner)
        elif method in _CHANGES:
            self._changed()
        elif method == "notifications/resources/updated":
            if isinstance(uri := params.get("uri"), str):
                self._updated(uri)
        elif method == "notifications/cancelled":
            key = params.get("requestId")
            scope = self._open.get((id(link), key)) if isinstance(key, int | str) else None
            if scope is not None:
                scope.cancel()

    def _may_ask(self, peer: Peer, method: str) -> bool:
        capability = RELAYED.get(method)
        if capability is None or not self._spec.relay or len(self._open) >= self._limits.relays:
            return False
        return capability in peer.capabilities

    def _call(self, link: Link, owner: Outgoing | None) -> Outgoing | None:
        """Return the call that an unaddressed message belongs to; None when that cannot be known."""
        if owner is not None:
            return owner
        return next(_calls_of_clients(link)) if self._clients(link) == 1 else None

    def _clients(self, link: Link) -> int:
        """Return the number of clients, and of elicitors in place of one, with calls in flight."""
        contexts = (call.context for call in _calls_of_clients(link))
        return len({(one.peer or one.elicitor, one.principal) for one in contexts if one is not None})

    def _progress(self, link: Link, params: Mapping[str, Any]) -> None:
        token, progress = params.get("progressToken"), params.get("progress")
        call = link.pending.get(token) if isinstance(token, int) else None
        if call is None or call.context is None or call.context.progress_token is None:
            return
        if not isinstance(progress, int | float):
            return
        relayed: dict[str, Any] = {"progressToken": call.context.progress_token, "progress": progress}
        if isinstance(total := params.get("total"), int | float):
            relayed["total"] = total
        if isinstance(message := params.get("message"), str):
            relayed["message"] = message
        call.note("notifications/progress", relayed)

    def _message(self, link: Link, params: Mapping[str, Any], owner: Outgoing | None) -> None:
        level = params.get("level")
        call = self._call(link, owner)
        if call is None or not isinstance(level, str) or level not in LOG_LEVELS or "data" not in params:
            return
        logger = params.get("logger")
        name = f"{self._spec.name}.{logger}" if isinstance(logger, str) and logger else self._spec.name
        call.note("notifications/message", {"level": level, "logger": name, "data": params["data"]})

    async def _ask(
        self,
        link: Link,
        key: int | str,
        method: str,
        params: Mapping[str, Any],
        peer: Peer,
        scope: anyio.CancelScope,
    ) -> None:
        error: dict[str, Any] = {"code": INTERNAL_ERROR, "message": "the client is gone"}
        try:
            with scope:
                if method == "elicitation/create":
                    params = elicitation_from(self._spec.name, params)
                result = await peer.request(method, params)
                link.answer({"id": key, "result": result})
                return
        except ToolFailure as failure:
            error = {"code": INTERNAL_ERROR, "message": failure.message}
        except Exception:  # noqa: BLE001 - the server waits for an answer
            self._log.exception("a request %s could not be handled", method)
            error = {"code": INTERNAL_ERROR, "message": "Internal error"}
        finally:
            self._open.pop((id(link), key), None)
        link.answer({"id": key, "error": error})


def peer_of(context: Context) -> Peer | None:
    """Return what answers the questions of a server during a call: the client, else the session's elicitor."""
    if context.peer is None and context.elicitor is not None:
        return _ElicitorPeer(context.call_id, context.elicitor)
    return context.peer


async def elicited(context: Context, required: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what continues a call that ended with questions (`input_required`), answered by the session's elicitor.

    None where a client made the call: it answers itself. Raises `ToolFailure` for a question that is no form.
    """
    if context.peer is not None or (peer := peer_of(context)) is None:
        return None
    requests = ((key, as_mapping(one)) for key, one in as_mapping(required.get("inputRequests")).items())
    responses = {
        key: await peer.request(str(one.get("method")), as_mapping(one.get("params"))) for key, one in requests
    }
    state = {"requestState": required["requestState"]} if "requestState" in required else {}
    return {"inputResponses": responses, **state}


class _ElicitorPeer:
    """The elicitor of a session in place of a client."""

    capabilities: Mapping[str, Any] = {"elicitation": {}}
    takes_requests = True

    def __init__(self, call_id: str, elicitor: Elicitor) -> None:
        self._call_id = call_id
        self._elicitor = elicitor

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Nothing hears it."""

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put a form to the elicitor, question by question. Raises `ToolFailure` for anything but a form."""
        if method != "elicitation/create" or params.get("mode", "form") != "form":
            raise ToolFailure("unavailable", "the elicitor of the session answers questions, and opens no address")
        form = Form.of_request(self._call_id, params)
        if not form.blanks:
            asked = Clarification(
                call_id=self._call_id, question=form.message, options=("yes", "no"), allow_custom=False
            )
            agrees = await self._elicitor(asked) == "yes"
            return {"action": "accept", "content": {}} if agrees else {"action": "decline"}
        answers = await form.put_to(self._elicitor)
        return {"action": "cancel"} if answers is None else {"action": "accept", "content": answers}


def cannot_ask(text: str) -> bool:
    """Whether an error says that a server could not ask its client: it names the request (the SDKs of MCP do)."""
    return any(method in text for method in RELAYED)


def _calls_of_clients(link: Link) -> Iterator[Outgoing]:
    contexts = ((one, one.context) for one in link.pending.values())
    return (one for one, context in contexts if context is not None and (context.peer or context.elicitor))


def elicitation_from(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the question with the name of who asks in front; raises `ToolFailure` for a link that is not https."""
    message = params.get("message")
    text = message if isinstance(message, str) else ""
    if params.get("mode") == "url":
        address = _ADDRESS.fullmatch(str(params.get("url", "")))
        if address is None:
            raise ToolFailure(
                "denied", "a server may only send people to https addresses without a user, host in ASCII"
            )
        return {**params, "message": f"[{server} → {address[1].lower()}] {text}"}
    return {**params, "message": f"[{server}] {text}"}
