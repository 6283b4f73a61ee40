"""Asking by webhook: a signed question goes out, and the answer comes back at once, or later through the store."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from peers.api import api
from rig import eventually
from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.permission import Answer
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.policy.settings import ApprovalSettings, Webhook
from toolcrib.testing import RecordingApprover, ScriptedSource

WRITE = Tool(name="write", source="fs", local_name="write", annotations=Annotations(), input_schema={"type": "object"})
SECRET = "a-secret-of-the-operator"


async def show(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text(f"wrote {arguments['path']}")


def crib_asking(origin: str, *, allow_private: bool = True, **settings: Any) -> Toolcrib:
    hook = Webhook(url=f"{origin}/ask", secret="key", allow_private=allow_private)
    return Toolcrib(
        bare().with_values(approvals=ApprovalSettings(webhook=hook), secrets=(SECRET,), **settings), memory=True
    )


async def outcome(crib: Toolcrib, **session: Any) -> ToolResult:
    await crib.tools.mount_source(ScriptedSource("fs", {"write": show}, listed=[WRITE]))
    return await crib.session(**session).call("fs__write", {"path": "a", "note": f"with {SECRET}"})


def answering(body: Any, status: int = 200) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(status_code=status) if body is None else JSONResponse(body, status_code=status)

    return answer


async def test_the_question_is_signed_and_holds_what_a_person_may_see() -> None:
    async with api({"POST /ask": answering({"verdict": "yes", "by": "Ada"})}) as hook:
        async with crib_asking(hook.origin) as crib:
            result = await outcome(crib)
            (approval,) = await crib.approvals.list()
            await eventually(lambda: len(hook.received) == 2)
        received, news = hook.received

    body = json.loads(received["body"])
    mac = hmac.new(b"key", f"{received['headers']['x-toolcrib-timestamp']}.{received['body']}".encode(), sha256)
    assert received["headers"]["x-toolcrib-signature"] == f"v1={mac.hexdigest()}"
    assert SECRET not in received["body"]
    assert body == {
        "type": "approval.requested",
        "id": approval.id,
        "call_id": approval.call_id,
        "principal": "local",
        "tool": "fs__write",
        "kind": "destructive",
        "source": "fs",
        "folder": "",
        "arguments": approval.arguments,
        "hash": approval.hash,
        "rule": approval.rule,
        "diff": "",
        "expires": approval.expires,
    }
    assert (result.text, approval.state, approval.by) == ("wrote a", "used", "Ada")
    assert json.loads(news["body"]) == {
        "type": "approval.settled",
        "id": approval.id,
        "call_id": approval.call_id,
        "state": "approved",
        "verdict": "yes",
        "by": "Ada",
    }


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"verdict": "no", "comment": "not today"}, "the webhook refused fs__write: not today"),
        ({"verdict": "edit", "arguments": {"path": "b"}}, "wrote b"),
        ({"verdict": "perhaps"}, "asking for it failed"),
        ({"verdict": ["yes"]}, "asking for it failed"),
        ({"verdict": "yes", "hash": "of another question"}, "asking for it failed"),
        (["yes"], "asking for it failed"),
    ],
)
async def test_an_answer_in_the_body_counts_and_one_that_means_nothing_is_a_no(said: Any, expected: str) -> None:
    async with api({"POST /ask": answering(said)}) as hook, crib_asking(hook.origin) as crib:
        result = await outcome(crib)

        assert expected in (result.error.message if result.error else result.text)


@pytest.mark.parametrize("status", [301, 404, 500])
async def test_a_webhook_that_fails_is_a_no_where_nobody_else_is_asked(status: int) -> None:
    async with api({"POST /ask": answering({"verdict": "yes"}, status)}) as hook:
        async with crib_asking(hook.origin) as crib:
            alone = await outcome(crib)
        async with crib_asking(hook.origin) as crib:
            together = await outcome(crib, approver=RecordingApprover("yes"))

    assert alone.error is not None
    assert (alone.error.code, alone.error.details["reason"]) == ("denied", "broken")
    assert together.text == "wrote a"


async def test_no_body_says_that_the_answer_comes_later_through_the_store() -> None:
    async with api() as hook, crib_asking(hook.origin) as crib:

        async def accept(request: Request) -> Response:
            """Answer in the store, as the receiver does later from elsewhere."""
            body = json.loads(await request.body())
            await crib.approvals.decide(body["id"], Answer(verdict="yes", by="later"), hash=body["hash"])
            return Response(status_code=202)

        hook.handlers["POST /ask"] = accept
        result = await outcome(crib)

        assert result.text == "wrote a"
        assert [(row.state, row.by) for row in await crib.approvals.list()] == [("used", "later")]


async def test_an_address_that_is_not_public_is_asked_only_where_the_operator_said_so() -> None:
    yes = answering({"verdict": "yes"})
    async with api({"POST /ask": yes}) as hook, crib_asking(hook.origin, allow_private=False) as crib:
        result = await outcome(crib)

        assert (result.is_error, hook.received) == (True, [])
