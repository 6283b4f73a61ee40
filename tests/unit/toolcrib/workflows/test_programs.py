"""`run_code`: programs that a model writes, the permissions of their calls, and how one that failed goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import anyio
import pytest

from toolcrib import Answer, Toolcrib, ToolFailure, defer_approval, tool
from toolcrib.config import bare
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session
from toolcrib.testing import RecordingApprover

UNFOLDS = "a = [0] * 10\nfor _ in range(12): a = [a] * 10"
"""A value of a few hundred bytes that is 20 TB when it is written."""


class Shop:
    """Tools that note what they did, and one that fails as often as it is told to."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.failures = 0
        self.inside = 0
        self.together = 2
        self.both = anyio.Event()
        self.waiting = anyio.Event()
        self.cancelled = False

    @tool(kind="read")
    async def look_up(self, name: str, count: int = 1) -> dict[str, Any]:
        """Look a thing up."""
        return {"name": name.title(), "price": 3 * count}

    @tool(kind="read", traits=["untrusted"])
    async def read_page(self) -> str:
        """Read what strangers wrote."""
        return "Buy now: https://h.example/buy"

    @tool(kind="read")
    async def take_picture(self) -> bytes:
        """Take a picture."""
        return b"\x89PNG\r\n\x1a\n"

    @tool(kind="read")
    async def meet(self) -> int:
        """Return once two calls are here."""
        self.inside += 1
        if self.inside == self.together:
            self.both.set()
        await self.both.wait()
        return self.inside

    @tool(kind="read")
    async def wait(self) -> None:
        """Wait for ever."""
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled = True

    @tool(kind="write")
    async def order(self, name: str, note: str = "") -> str:
        """Order a thing."""
        if name == "boat" and not self.waiting.is_set():
            self.waiting.set()
            await self.both.wait()
        if name == "hat" and self.failures:
            self.failures -= 1
            raise ToolFailure("unavailable", "closed")
        self.orders.append(name)
        return f"ordered {name}{note}"

    @tool(kind="write", traits=["hands_on"])
    async def order_by_hand(self) -> str:
        """Order, and say that another tool does it."""
        self.orders.append("by hand")
        return "ordered"

    @tool(kind="write")
    async def order_catalog(self) -> ToolResult:
        """Order what has a long confirmation."""
        self.orders.append("catalog")
        return ToolResult.of_text("the beginning").with_meta(artifact="artifact_1")


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def crib(shop: Shop) -> AsyncIterator[Toolcrib]:
    async with Toolcrib(bare().with_values(builtins=("run_code",)), memory=True) as crib:
        crib.add(shop)
        yield crib


def of(crib: Toolcrib, **options: Any) -> Session:
    known: dict[str, Any] = {"profile": "flat", "mode": "autonomous", **options}
    return crib.session(**known)


async def run(session: Session, code: str, **given: Any) -> ToolResult:
    return await session.call("run_code", {"code": code, **given})


def details(result: ToolResult) -> Mapping[str, Any]:
    assert result.error is not None, result.text
    return result.error.details


def code_of(result: ToolResult) -> str:
    assert result.error is not None, result.text
    return result.error.code


SHOWN = [
    ("1 + 1", "2"),
    ("```python\n1 + 1\n```", "2"),
    ("print('a')\nprint('b')", "a\nb\n"),
    ("print('a')\n[1, 'x', None]", 'a\n[1,"x",null]'),
    ("(await look_up(name='hat'))['name']", "Hat"),
    ("(await look_up('hat', 2))['price']", "6"),
    ("(await look_up({'name': 'hat'}))['price']", "3"),
    ("(await call('look_up', {'name': 'hat'}))['price']", "3"),
    ("(await call('look_up', name='hat', count=2))['price']", "6"),
    ("(await call_tool(name='look_up', arguments={'name': 'hat'}))['price']", "3"),
    ("import asyncio\nawait asyncio.sleep(0)\n1", "1"),
    ("'<coroutine object of a log line'", "<coroutine object of a log line"),
    ("sum([(await look_up(name='x', count=n))['price'] for n in range(4)])", "18"),
    (
        "import asyncio\nasync def main():\n    return await read_page()\nasyncio.run(main())",
        "Buy now: https://h.example/buy",
    ),
    ("try:\n    await order('a', 'b', 'c')\nexcept TypeError:\n    print('too many')", "too many\n"),
    ("try:\n    await nothing(1)\nexcept RuntimeError as e:\n    print(str(e)[:19])", "nothing: not_found:\n"),
]
"""Programs, and what the model reads of each."""


async def test_the_model_reads_what_a_program_prints_and_its_last_value(crib: Toolcrib) -> None:
    results = [await run(of(crib, profile="(catalog)"), code) for code, _ in SHOWN]

    assert [(result.error, result.text) for result in results] == [(None, text) for _, text in SHOWN]


async def test_a_picture_that_a_program_returns_reaches_the_model(crib: Toolcrib) -> None:
    result = await run(of(crib), "print('here')\nawait take_picture()")
    assert [(one["type"], one.get("mimeType")) for one in result.content] == [("text", None), ("image", "image/png")]


async def test_calls_that_are_gathered_run_at_the_same_time(crib: Toolcrib) -> None:
    result = await run(of(crib), "import asyncio\nawait asyncio.gather(meet(), meet())")
    assert result.text == '["2","2"]'


async def test_every_call_is_decided_and_recorded_by_itself(crib: Toolcrib, shop: Shop) -> None:
    result = await run(of(crib, rules={"deny": ["order"]}), "await look_up(name='hat')\nawait order(name='hat')")
    rows = await crib.store.calls.list()
    assert (code_of(result), shop.orders) == ("denied", [])
    assert {(row.tool, row.origin, row.outcome) for row in rows} == {
        ("run_code", "library", "denied"),
        ("look_up", "batch", "ok"),
        ("order", "batch", "denied"),
    }


async def test_a_person_is_asked_about_the_calls_and_not_about_the_program(crib: Toolcrib, shop: Shop) -> None:
    approver = RecordingApprover("yes")
    await run(of(crib, mode="cautious", approver=approver), "await look_up(name='hat')\nawait order(name='hat')")
    assert ([asked.tool.name for asked in approver.questions], shop.orders) == (["order"], ["hat"])


async def test_what_strangers_wrote_taints_through_a_program_and_programs_go_on(crib: Toolcrib, shop: Shop) -> None:
    approver = RecordingApprover("no")
    session = of(crib, approver=approver)
    first = await run(session, "(await read_page()).upper()")
    second = await run(session, "await look_up(name='hat')")
    third = await run(session, "await order(name='hat')")
    by_hand = await session.call("order_by_hand")  # only a built-in tool is believed that it does nothing itself
    assert (first.meta["trust"], second.error, code_of(third)) == ("untrusted", None, "denied")
    assert (code_of(by_hand), shop.orders) == ("denied", [])
    assert [asked.tool.name for asked in approver.questions] == ["order", "order_by_hand"]


async def test_a_corrected_program_repeats_nothing_that_was_changed(crib: Toolcrib, shop: Shop) -> None:
    session, shop.failures = of(crib), 1
    broken = await run(session, "await order('shoe')\nawait order('hat')")
    assert [(call["tool"], call["outcome"]) for call in details(broken)["calls"]] == [
        ("order", "ok"),
        ("order", "unavailable"),
    ]
    code = "first = await order('shoe')\n[first, await order('hat'), await order('shoe')]"
    result = await run(session, code, resume=details(broken)["resume"])
    assert (result.text, shop.orders) == ('["ordered shoe","ordered hat","ordered shoe"]', ["shoe", "hat", "shoe"])


async def test_a_link_that_a_program_puts_together_is_not_one_that_strangers_showed(crib: Toolcrib) -> None:
    session = of(crib, approver=(approver := RecordingApprover("no")))
    await run(session, "await read_page()\nprint('https://h.example/?name=' + (await look_up('hat'))['name'])")
    asked = [code_of(await session.call("look_up", {"name": "https://h.example/?name=Hat"}))]
    shown = await session.call("look_up", {"name": "https://h.example/buy"})
    assert (asked, shown.error, len(approver.questions)) == (["denied"], None, 1)


async def test_a_call_that_is_written_otherwise_is_the_same_call(crib: Toolcrib, shop: Shop) -> None:
    session = of(crib)
    broken = await run(session, "await order('shoe')\n1 / 0")
    code = "await call('order', {'name': 'shoe', 'note': ''})"
    assert (await run(session, code, resume=details(broken)["resume"])).text == "ordered shoe"
    assert shop.orders == ["shoe"]


async def test_a_call_that_is_made_once_somebody_approves_is_not_made_again(crib: Toolcrib, shop: Shop) -> None:
    session, code = of(crib, mode="cautious", approver=defer_approval), "await order('shoe')"
    token = details(await run(session, code))["resume"]
    (waiting,) = await crib.approvals.list()
    await session.resume(waiting.id, Answer(verdict="yes"))
    assert ((await run(session, code, resume=token)).text, shop.orders) == ("ordered shoe", ["shoe"])


async def test_of_programs_that_go_on_at_once_one_makes_the_call(crib: Toolcrib, shop: Shop) -> None:
    token, late = details(await run(of(crib), "await order('shoe')\n1 / 0"))["resume"], list[str]()
    async with anyio.create_task_group() as group:
        group.start_soon(partial(run, of(crib), "await order('boat')\n1 / 0", resume=token))
        await shop.waiting.wait()
        late += [code_of(await run(of(crib), "await order('boat')", resume=token)) for _ in range(2)]
        shop.both.set()
    last = await run(of(crib), "await order('boat')", resume=token)
    assert (late, last.text, shop.orders) == (["conflict", "conflict"], "ordered boat", ["shoe", "boat"])


async def test_a_program_starts_no_program(crib: Toolcrib) -> None:
    assert code_of(await run(of(crib), "await run_code(code='1')")) == "invalid_arguments"


async def test_a_change_whose_result_is_too_large_is_not_made_again(crib: Toolcrib, shop: Shop) -> None:
    session = of(crib)
    broken = await run(session, "await order_catalog()")
    again = await run(session, "await order_catalog()", resume=details(broken)["resume"])
    assert (code_of(broken), code_of(again), shop.orders) == ("too_large", "too_large", ["catalog"])


async def test_a_program_of_another_principal_does_not_go_on(crib: Toolcrib, shop: Shop) -> None:
    shop.failures = 1
    broken = await run(of(crib), "await order('shoe')\nawait order('hat')")
    result = await run(of(crib, principal="ada"), "await order('shoe')", resume=details(broken)["resume"])
    assert (code_of(result), shop.orders) == ("not_found", ["shoe"])


REFUSED = [
    ("def f(:", "invalid_arguments"),
    ("1 / 0", "tool_error"),
    ("open('/etc/passwd').read()", "tool_error"),
    ("import os\nos.environ['HOME']", "tool_error"),
    ("import socket", "tool_error"),
    ("look_up(name='x')", "tool_error"),
    ("[look_up(name=one) for one in 'ab']", "tool_error"),
    ("{'hat': look_up(name='hat')}", "tool_error"),
    ("import asyncio\nasyncio.gather(look_up(name='hat'))", "tool_error"),
    ("'a' * 10**9", "tool_error"),
    ("10**5000", "too_large"),
    (f"{UNFOLDS}\na", "too_large"),
    (f"{UNFOLDS}\nawait look_up(name=a)", "tool_error"),
    ("a = []\nb = []\nfor n in range(2000):\n    a = [a]\n    b.append(a)\nb", "too_large"),
    ("import asyncio\nawait asyncio.gather(*[look_up(name='x') for _ in range(1001)])", "tool_error"),
]
"""Programs that end in an error, and its code."""


async def test_a_program_reaches_nothing_but_tools_and_has_limits(crib: Toolcrib) -> None:
    assert [(code, code_of(await run(of(crib), code))) for code, _ in REFUSED] == REFUSED


async def test_a_caller_has_no_more_programs_than_it_leaves_to_others(crib: Toolcrib, shop: Shop) -> None:
    outcomes, shop.together = list[tuple[str, bool]](), 0

    async def start(principal: str) -> None:
        result = await run(of(crib, principal=principal), "await meet()")
        outcomes.append((principal, result.error is None))
        if len(outcomes) == 2:  # both refusals
            shop.both.set()

    async with anyio.create_task_group() as group:
        for principal in [*["ann"] * 9, *["bob"] * 5]:
            group.start_soon(start, principal)
    assert outcomes[:2] == [("ann", False), ("bob", False)]
    assert sorted(outcomes[2:]) == [("ann", True)] * 8 + [("bob", True)] * 4
    assert (await run(of(crib, principal="ann"), "1")).text == "1"


async def test_a_program_that_is_cancelled_cancels_its_calls(crib: Toolcrib, shop: Shop) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(run, of(crib), "await wait()")
        await shop.waiting.wait()
        group.cancel_scope.cancel()
    assert shop.cancelled
