"""What a client's user is offered, and what an answer means: never more than was offered."""

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib.core.permission import Answer, Decision, NoApprover, Question
from toolcrib.core.tool import Tool
from toolcrib.server.backend import ClientApprover, current_peer

_QUESTION = Question(
    call_id="c1",
    tool=Tool(name="post", source="s", local_name="post"),
    arguments={"to": "ada"},
    decision=Decision(effect="ask", rule="mode cautious"),
    principal="local",
)


class Client:
    """Shows a form, and answers it as it was told to."""

    takes_requests = True

    def __init__(self, decision: str, *capabilities: str) -> None:
        self.capabilities: Mapping[str, Any] = {name: {} for name in capabilities}
        self.offered: list[str] = []
        self._decision = decision

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        choices = params["requestedSchema"]["properties"]["decision"]["oneOf"]
        self.offered = [choice["const"] for choice in choices]
        return {"action": "accept", "content": {"decision": self._decision}}

    async def notify(self, method: str, params: Mapping[str, Any]) -> None: ...


async def _asked(approver: ClientApprover, client: Client) -> Answer:
    token = current_peer.set(client)
    try:
        return await approver(_QUESTION)
    finally:
        current_peer.reset(token)


async def test_where_clients_share_a_conversation_an_answer_is_for_its_call_alone() -> None:
    alone, sharing = Client("all", "elicitation"), Client("all", "elicitation")

    answers = [
        (await _asked(ClientApprover(), alone)).verdict,
        (await _asked(ClientApprover(is_shared=True), sharing)).verdict,
    ]

    assert (answers, sharing.offered) == (["all", "no"], ["yes", "no", "comment", "edit"])
    assert {"always", "turn", "idle", "all", "never"} <= set(alone.offered)


async def test_a_client_that_cannot_ask_its_user_is_nobody_to_ask() -> None:
    with pytest.raises(NoApprover):
        await _asked(ClientApprover(), Client("yes"))
