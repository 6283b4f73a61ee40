"""Approval by webhook: the question is posted to the operator's URL and answered at once or later.

    POST <url>    X-Toolcrib-Timestamp: <seconds>    X-Toolcrib-Signature: v1=<HMAC-SHA256 of "timestamp.body", hex>

A 2xx answer with `{"verdict": "yes", …}` decides. One without a body, or without a verdict, says that the decision
comes later, through the store (`toolcrib approvals`, the server). Anything else is a way that failed. When the question
is settled, by whomever, a second POST says so.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, cast

from ..core.json import dumps, read_json
from ..core.permission import Answer, Approval, Question
from ..errors import ToolFailure
from ..net.client import NetLimits, WebClient, WebRequest
from ..net.guard import Guard, NetFailure
from ..policy.settings import Webhook

_logger = logging.getLogger(__name__)
_SECONDS: Final = 30.0
"""For the whole exchange (seed 003)."""
_LIMITS: Final = NetLimits(body_bytes=1 << 20, seconds=_SECONDS, idle_seconds=_SECONDS, redirects=0)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of the header: the receiver computes it with the secret, and refuses an old timestamp."""
    mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"v1={mac.hexdigest()}"


class WebhookChannel:
    """Posts questions to one address. Lives as long as the crib; `aclose` ends its connections."""

    def __init__(self, hook: Webhook) -> None:
        """Addresses that are not public are reached only where the operator allowed it."""
        self._hook = hook
        self._client = WebClient(Guard.of([hook.url] if hook.allow_private else []), _LIMITS)

    async def __call__(self, question: Question) -> Answer | None:
        """Return the answer; None when it will come later. Raises `ToolFailure("unavailable")` and `NetFailure`."""
        return _read(await self._post(_posted(question)), question.hash)

    async def tell(self, settled: Approval) -> None:
        """Post the outcome of a question, so that the receiver stops showing it. Failures are only logged."""
        event = {"type": "approval.settled", "id": settled.id, "call_id": settled.call_id, "state": settled.state}
        try:
            await self._post({**event, "verdict": settled.verdict, "by": settled.by})
        except (ToolFailure, NetFailure) as failure:
            _logger.warning("the webhook did not receive the outcome of approval %s: %s", settled.id, failure)

    async def _post(self, message: Mapping[str, Any]) -> bytes:
        body = dumps(message)
        timestamp = str(int(time.time()))
        headers = {"content-type": "application/json", "accept": "application/json", "x-toolcrib-timestamp": timestamp}
        if self._hook.secret:
            headers["x-toolcrib-signature"] = signature(self._hook.secret, timestamp, body)
        answer = await self._client.send(WebRequest(method="POST", url=self._hook.url, headers=headers, content=body))
        if not 200 <= answer.status < 300:
            raise ToolFailure("unavailable", f"the webhook for approvals answered {answer.status}")
        return answer.body

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()


def _posted(question: Question) -> dict[str, Any]:
    """Return the body of the request: what a person may see, never the real value of a secret."""
    return {
        "type": "approval.requested",
        "id": question.approval,
        "call_id": question.call_id,
        "principal": question.principal,
        "tool": question.tool.name,
        "kind": question.tool.kind,
        "source": question.tool.source,
        "folder": question.folder,
        "arguments": question.shown,
        "hash": question.hash,
        "rule": question.decision.rule,
        "diff": question.diff,
        "expires": question.expires,
    }


def _read(body: bytes, shown: str) -> Answer | None:
    """Return the answer that a body holds; one that names a `hash` is for that question alone.

    Raises `ToolFailure("unavailable")` for one that cannot be read.
    """
    if not body.strip():
        return None
    try:
        given = read_json(body, strict=True)
    except ValueError as error:
        raise ToolFailure("unavailable", f"the webhook for approvals answered no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ToolFailure("unavailable", "the webhook for approvals answered no JSON object")
    answer = cast("dict[str, Any]", given)
    if "verdict" not in answer:
        return None
    if answer.get("hash", shown) != shown:
        raise ToolFailure("unavailable", "the webhook for approvals answered another question than it was asked")
    texts = {name: answer.get(name, "") for name in ("verdict", "comment", "by")}
    arguments = answer.get("arguments")
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(arguments, dict | None):
        raise ToolFailure("unavailable", "the webhook for approvals answered with fields of the wrong type")
    return Answer(
        verdict=texts["verdict"],
        by=texts["by"] or "the webhook",
        comment=texts["comment"],
        arguments=cast("dict[str, Any] | None", arguments),
    )
