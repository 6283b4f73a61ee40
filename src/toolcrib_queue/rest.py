"""REST resource `/v1/queue`: tasks, answers, events and chats for other programs, and webhooks.

    tools:
      queue:
        webhooks:
          github: {scheme: github, secret: "${GITHUB_WEBHOOK_SECRET}"}

The sender of a webhook has no token of the server. It shares a secret with it, by which each request is signed:

    github      X-Hub-Signature-256: HMAC-SHA256 of the body; Gitea and Forgejo send it too
    gitlab      X-Gitlab-Token: the secret itself
    standard    webhook-signature of the Standard Webhooks (https://www.standardwebhooks.com), at most 5 minutes old

A request is one delivery however often it comes. It is named by what its signature covers: the body, with `standard`
the id. A header that is not signed could be changed to have a recorded request run again.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from msgspec import Struct

from toolcrib.plugin import Host, RestResource, RestRoute, SignedCall, SignedRequest, ToolFailure, as_mapping

_AGE: Final = 300.0
"""Seconds that a timestamp of `standard` may be away from now, as its specification recommends."""
_PREFIX: Final = "whsec_"
_KEYS: Final = frozenset({"principal", "scheme", "secret"})
_SHORTEST: Final = 16
"""Characters of a secret: one signed request is enough to guess a shorter one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    """One entry of `tools.queue.webhooks`."""

    scheme: str
    secret: str = dataclasses.field(repr=False)
    principal: str = ""
    """The principal that its deliveries are received as; empty for the first caller of the server."""


class _Checked(Struct, frozen=True, kw_only=True):
    """A request whose signature is right."""

    delivery: str
    event: str


def signed_call(host: Host, request: SignedRequest) -> SignedCall:
    """Return the call of `receive_webhook` that a request is. Raises `ToolFailure`: `denied` for a wrong signature.

    An unknown sender gets the answer of a wrong signature, which reveals no names of senders. The time reveals none
    either: each check hashes the body once.
    """
    name = request.place["sender"]
    sender = _senders(host.setting("queue")).get(name)
    check = _unknown if sender is None else _SCHEMES[sender.scheme]
    checked = check(sender or _Sender(scheme="", secret=""), request)
    if sender is None or checked is None:
        raise ToolFailure(
            "denied",
            "the signature of this request is missing, old or wrong",
            hint="tools.queue.webhooks of the configuration names the senders, each with its scheme and secret",
        )
    try:
        body: Any = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        message = f"the body is not JSON: {error}"
        raise ToolFailure("invalid_arguments", message, hint="have it sent as application/json") from None
    if not isinstance(body, dict):
        raise ToolFailure("invalid_arguments", "the body is not a JSON object")
    event = checked.event or str(cast("dict[str, Any]", body).get("type") or "")
    signed: dict[str, Any] = {"by": name, "event": event[:200], "body": body}
    arguments: dict[str, Any] = {
        "hook_id": request.place["hook_id"],
        "delivery": f"{name} {checked.delivery}",
        "signed": signed,
    }
    return SignedCall(principal=sender.principal, arguments=arguments)


def _senders(setting: Any) -> dict[str, _Sender]:
    """Return the senders of the configuration. Raises `ToolFailure` with the key of an entry that is wrong."""
    given = as_mapping(setting).get("webhooks")
    if given is not None and not isinstance(given, Mapping):
        raise _wrong("", "names of senders are expected, each with `scheme` and `secret`")
    found: dict[str, _Sender] = {}
    for name, entry in cast("Mapping[str, Any]", given or {}).items():
        if not isinstance(entry, Mapping):
            raise _wrong(f".{name}", "`scheme` and `secret` are expected")
        values = cast("Mapping[str, Any]", entry)
        if unknown := sorted(values.keys() - _KEYS):
            raise _wrong(f".{name}.{unknown[0]}", f"is not known; known are {', '.join(sorted(_KEYS))}")
        if values.get("scheme") not in _SCHEMES:
            raise _wrong(f".{name}.scheme", f"is one of {', '.join(_SCHEMES)}")
        if not isinstance(values.get("secret"), str) or len(values["secret"]) < _SHORTEST:
            raise _wrong(f".{name}.secret", f"is a text of at least {_SHORTEST} characters")
        found[name] = _Sender(**values)
    return found


def _wrong(key: str, message: str) -> ToolFailure:
    return ToolFailure("unavailable", f"configuration: tools.queue.webhooks{key}: {message}")


def _unknown(sender: _Sender, request: SignedRequest) -> None:
    hashlib.sha256(request.body)


def _github(sender: _Sender, request: SignedRequest) -> _Checked | None:
    digest = hmac.digest(sender.secret.encode(), request.body, "sha256").hex()
    if not _is_same(f"sha256={digest}", request.headers.get("x-hub-signature-256", "")):
        return None
    return _Checked(delivery=digest, event=request.headers.get("x-github-event", ""))


def _gitlab(sender: _Sender, request: SignedRequest) -> _Checked | None:
    digest = hashlib.sha256(request.body).hexdigest()
    if not _is_same(sender.secret, request.headers.get("x-gitlab-token", "")):
        return None
    return _Checked(delivery=digest, event=request.headers.get("x-gitlab-event", ""))


def _standard(sender: _Sender, request: SignedRequest) -> _Checked | None:
    id, sent = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
    try:
        key = base64.b64decode(sender.secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        return None
    digest = hmac.digest(key, b".".join((id.encode(), sent.encode(), request.body)), "sha256")
    try:
        age = abs(time.time() - float(sent))
    except ValueError:
        return None
    if not id or not math.isfinite(age) or age > _AGE:
        return None
    expected = f"v1,{base64.b64encode(digest).decode()}"
    given = request.headers.get("webhook-signature", "").split()[:10]
    if not any(_is_same(expected, one) for one in given):
        return None
    return _Checked(delivery=hashlib.sha256(id.encode()).hexdigest(), event="")


def _is_same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode())


_SCHEMES: Final[Mapping[str, Callable[[_Sender, SignedRequest], _Checked | None]]] = {
    "github": _github,
    "gitlab": _gitlab,
    "standard": _standard,
}


QUEUE: Final = RestResource(
    routes=(
        RestRoute(method="GET", path="/projects", tool="x.project.list"),
        RestRoute(method="GET", path="/tasks", tool="x.task.list"),
        RestRoute(method="POST", path="/tasks", tool="x.task.create", status=201),
        RestRoute(method="GET", path="/tasks/{task_id}", tool="x.task.get"),
        RestRoute(method="POST", path="/tasks/{task_id}/answer", tool="x.queue.answer"),
        RestRoute(method="GET", path="/events", tool="x.queue.events"),
        RestRoute(method="POST", path="/messages", tool="x.project.message", status=202),
        RestRoute(method="POST", path="/hooks/{hook_id}/events", tool="x.hook.receive", status=202),
        RestRoute(
            method="POST",
            path="/webhooks/{sender}/{hook_id}",
            tool="x.hook.receive",
            status=202,
            signed=signed_call,
        ),
    )
)
