"""Record of one client's session, as its shim keeps it: what another daemon needs to go on with the session.

That is the messages that opened it, the lists that the client knows, and the requests without an answer. Standard
library only, as the shim. A message of the client is read after it was passed on, a message of the daemon not at all:
its first bytes tell what it answers.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable
from threading import Lock
from typing import Any, Final, NamedTuple, cast

from .rendezvous import read_object

_ATTEMPTS: Final = 3
"""Daemons that a request is sent to: one that ends its daemon each time must not do so for ever."""

_FORGIVEN: Final = 600.0
"""Seconds after which the end of a daemon is not counted against a request that it was working on."""
_HEAD: Final = 4096
"""Bytes at the beginning of an answer that hold its id."""
_ANSWER: Final = b'{"jsonrpc":"2.0","id":'
"""Beginning of every answer and question of a daemon (`mcp.jsonrpc`)."""
_LISTEN: Final = "subscriptions/listen"
_LISTS: Final = {
    "prompts/list": ("prompts", b'"prompts":'),
    "resources/list": ("resources", b'"resources":'),
    "resources/templates/list": ("resources", b'"resourceTemplates":'),
    "tools/list": ("tools", b'"tools":'),
}
"""Method → the kind that `notifications/KIND/list_changed` names, and the last member of the answer."""
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_INTERNAL_ERROR: Final = -32603

_Id = str | int
_decoder: Final = json.JSONDecoder()


class SentLine(NamedTuple):
    """Message of the client."""

    call: str
    """Id that its call has, in every daemon: ids of requests are used again by some clients."""
    line: bytes

    def encode(self, *, is_again: bool = False) -> bytes:
        """Return the line as it goes to a daemon (`server.stdio.converse`)."""
        return b"%b%b %b\n" % (b"again " if is_again else b"", self.call.encode(), self.line)


class _OpenRequest(NamedTuple):
    """Request without an answer."""

    sent: SentLine
    message: dict[str, Any]
    attempts: int
    """Daemons that it was sent to."""
    since: float


class SessionRecord:
    """Record of one session. One thread notes what is sent, another one what is received.

    A message is noted after it was sent, since reading it must not delay it; so its answer may be noted first, and
    waits in `_early`. `_lock` orders these two. Every other change is one operation on a dictionary, which threads see
    whole or not at all.
    """

    def __init__(self) -> None:
        self.key = os.urandom(8).hex()
        """Names the conversation to every daemon."""
        self._numbers = itertools.count(1)
        self._lock = Lock()
        self._running: dict[_Id, _OpenRequest] = {}
        """Oldest first."""
        self._early: dict[_Id, bytes] = {}
        """Answers that were received before their request was noted."""
        self._questions: dict[_Id, None] = {}
        """Requests of the daemon that the client has not answered."""
        self._opening: dict[tuple[str, Any], bytes] = {}
        """Messages that opened the session, by method and subject."""
        self._lists: dict[str, tuple[bytes, int]] = {}
        """Method → the request for a list that the client has, and the hash of that list."""

    def take(self, line: bytes) -> SentLine:
        """Return the next message of the client, which is to be sent."""
        return SentLine(f"call_{self.key}_{next(self._numbers):x}", line)

    def note_sent(self, sent: SentLine, attempts: int = 1) -> None:
        """Note a message of the client that was sent to so many daemons, whether or not it reached them."""
        try:
            message = read_object(sent.line)
        except ValueError:  # the daemon answers it with an error
            return
        id, method = message.get("id"), message.get("method")
        if isinstance(id, _Id):
            if not isinstance(method, str):
                self._questions.pop(id, None)
                return
            request = _OpenRequest(sent, message, attempts, time.monotonic())
            with self._lock:
                answer = self._early.pop(id, None)
                self._early.clear()  # the others are of requests that the client has withdrawn
                if answer is None:
                    self._running[id] = request
            if answer is not None:
                self._settle(request, answer)
        elif method == "notifications/initialized":
            self._opening[method, None] = sent.line
        elif method == "notifications/cancelled":  # the daemon does not answer what was withdrawn
            withdrawn = _params(message).get("requestId")
            self._running.pop(withdrawn if isinstance(withdrawn, _Id) else "", None)

    def note_received(self, line: bytes) -> None:
        """Note a message of the daemon."""
        if not line.startswith(_ANSWER):
            return
        head = line[len(_ANSWER) : _HEAD].decode("utf-8", "replace")
        try:
            id, end = _decoder.raw_decode(head)
        except ValueError:
            return
        if head.startswith(',"method"', end):
            self._questions[id] = None
        elif id is not None:
            with self._lock:
                request = self._running.pop(id, None)
                if request is None:
                    self._early[id] = line
            if request is not None:
                self._settle(request, line)

    def _settle(self, request: _OpenRequest, answer: bytes) -> None:
        """Keep what a successful answer adds to the session."""
        method, line = request.message["method"], request.sent.line
        if _is_error(answer):
            return
        if method in ("initialize", "logging/setLevel"):
            self._opening[method, None] = line
        elif method == "resources/subscribe":
            self._opening[method, _params(request.message).get("uri")] = line
        elif method == "resources/unsubscribe":
            self._opening.pop(("resources/subscribe", _params(request.message).get("uri")), None)
        elif method in _LISTS:
            self._lists[method] = (line, _hash(method, answer))

    @property
    def is_unanswered(self) -> bool:
        """Whether a request has no answer that is not a subscription."""
        return any(one.message["method"] != _LISTEN for one in tuple(self._running.values()))

    # The rest is for the time between two daemons, while nothing is noted.

    @property
    def needs_daemon(self) -> bool:
        """Whether the client waits for an answer, or for news of what it subscribed to."""
        return bool(self._running) or any(method == "resources/subscribe" for method, _ in self._opening)

    def withdraw_questions(self) -> list[bytes]:
        """Return the messages that withdraw the questions of the ended daemon: their answers have no reader."""
        questions = tuple(self._questions)
        self._questions.clear()
        return [_notification("notifications/cancelled", requestId=id) for id in questions]

    def opening(self) -> list[tuple[str, bytes]]:
        """Return the messages that open the session at another daemon, each with the method of a request.

        The id of such a request is its method and place, and its answer is for `news`.
        """
        listed = ((method, line) for method, (line, _) in self._lists.items())
        messages = [read_object(line) for _, line in (*self._opening.items(), *listed)]
        lines: list[tuple[str, bytes]] = []
        for place, message in enumerate(messages):
            id = ""
            if "id" in message:
                id = message["id"] = f"{message['method']} {place}"
            lines.append((id, json.dumps(message, separators=(",", ":")).encode()))
        return lines

    def news(self, answers: dict[str, bytes]) -> list[bytes]:
        """Return notifications of what may be another thing at the new daemon, by its `answers` to `opening`.

        A subscription that it refuses is named and forgotten. Raises `ValueError` where it does not serve this client.
        """
        changed, refused, opening = dict[str, None](), dict[tuple[str, Any], str](), tuple(self._opening)
        uris = [uri for method, uri in opening if method == "resources/subscribe"]
        for id, answer in answers.items():
            method, _, place = id.partition(" ")
            if method == "initialize" and _is_error(answer):
                raise ValueError(f"it refuses to open the session: {read_object(answer)['error'].get('message')}")
            if method in _LISTS and _hash(method, answer) != self._lists[method][1]:
                changed[_LISTS[method][0]] = None
            if method == "resources/subscribe" and _is_error(answer):
                refused[opening[int(place)]] = read_object(answer)["error"].get("message")
                changed["resources"] = None
        lines: list[bytes] = []
        for subscription, reason in refused.items():
            del self._opening[subscription]
            text = f"the subscription to {subscription[1]} ended with the local daemon that it was made at: {reason}"
            lines.append(_notification("notifications/message", level="error", logger="toolcrib", data=text))
        if ("initialize", None) in self._opening:
            return [*lines, *_notifications(changed, uris)]
        for request in self._running.values():
            if request.message["method"] == _LISTEN:
                wanted: dict[str, Any] = _params(request.message).get("notifications") or {}
                kinds = [kind for kind in changed if wanted.get(f"{kind}ListChanged")]
                meta = {"_meta": {_SUBSCRIPTION: request.message["id"]}}
                lines += _notifications(kinds, wanted.get("resourceSubscriptions") or (), **meta)
        return lines

    def send_again(self) -> tuple[list[SentLine], list[bytes]]:
        """Return the requests for another daemon, oldest first, and the error answers to those that had enough."""
        now, lines, refused = time.monotonic(), list[SentLine](), list[bytes]()
        for id, request in tuple(self._running.items()):
            attempts = 1 if now - request.since > _FORGIVEN else request.attempts + 1
            if attempts > _ATTEMPTS:
                refused += self.refuse(f"the local daemon ended {_ATTEMPTS} times while it worked on this request", id)
            else:
                self._running[id] = request._replace(attempts=attempts, since=now)
                lines.append(request.sent)
        return lines, refused

    def refuse_calls(self, reason: str) -> list[bytes]:
        """Refuse the calls of tools: the new daemon does not know whether they were begun."""
        calls = [id for id, one in self._running.items() if one.message["method"] == "tools/call"]
        return self.refuse(reason, *calls) if calls else []

    def refuse(self, reason: str, *ids: _Id) -> list[bytes]:
        """Return error answers to these requests, without ids to all, and forget them."""
        lines: list[bytes] = []
        for id in ids or tuple(self._running):
            request = self._running.pop(id)
            shown, data = reason, {}
            if request.message["method"] == "tools/call" and request.attempts:
                shown = f"{reason} (call {request.sent.call}): check its effects before you call it again"
                data = {"data": {"code": "outcome_unknown", "call_id": request.sent.call}}
            error = {"code": _INTERNAL_ERROR, "message": f"Internal error: {shown}", **data}
            lines.append(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())
        return lines


def _is_error(answer: bytes) -> bool:
    return b'"result":' not in answer[:_HEAD]


def _params(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    return cast("dict[str, Any]", params) if isinstance(params, dict) else {}


def _hash(method: str, answer: bytes) -> int:
    return hash(answer[answer.find(_LISTS[method][1]) :].rstrip())


def _notification(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}).encode()


def _notifications(kinds: Iterable[str], uris: Iterable[str], **params: Any) -> list[bytes]:
    lists = [_notification(f"notifications/{kind}/list_changed", **params) for kind in kinds]
    return [*lists, *(_notification("notifications/resources/updated", uri=uri, **params) for uri in uris)]
