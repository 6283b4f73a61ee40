"""The same sixty decisions at every entrance (security.md T27): whichever way a call comes, the rules say the same.

What a call met is read off its effects: it ran, somebody was asked, or it was denied unasked. A tool that is denied,
switched off or out of scope runs at none of them, and nobody is asked for it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import pytest

from contract.seats import Way, at
from rig import PATIENCE
from toolcrib import Toolcrib, tool
from toolcrib.config import Directories, Settings
from toolcrib.core.budget import Budget, Budgets
from toolcrib.core.call import Call
from toolcrib.core.permission import Answer, Effect, Question
from toolcrib.core.saved_call import SavedCall
from toolcrib.crib import Session
from toolcrib.policy.settings import Identity
from toolcrib.workflows import Workflows

RULES: Mapping[str, Mapping[Effect, list[str]]] = {
    "none": {},
    "all allowed but": {"allow": ["*"], "deny": ["Bash(rm:*)", "Read(.env)", "pay(amount>100)", "Edit(//etc/**)"]},
    "little allowed": {"allow": ["Bash(touch *)", "Edit(./src/**)", "WebFetch(domain:example.com)", "pay(amount<10)"]},
    "asked for": {"allow": ["*"], "ask": ["Bash(git push:*)", "Read(./src/**)", "WebFetch", "pay(to=bob)"]},
    "by kind": {"deny": ["kind:write"], "ask": ["kind:destructive"]},
}
CALLS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a read": ("shell", {"command": "ls -la"}),
    "a delete": ("shell", {"command": "sudo rm x"}),
    "a push": ("shell", {"command": "cd a && git push"}),
    "two touches": ("shell", {"command": "touch a; touch b"}),
    "a riddle": ("shell", {"command": "$X y"}),
    "a source": ("view", {"path": "src/a.py"}),
    "the secrets": ("view", {"path": "a/../.env"}),
    "an edit": ("change", {"path": "./src/a.py"}),
    "an edit outside": ("change", {"path": "/etc/x"}),
    "a page": ("get", {"url": "https://example.com/a"}),
    "much money": ("pay", {"amount": 500, "to": "eve"}),
    "little money": ("pay", {"amount": 5, "to": "bob"}),
}
EXPECTED: Mapping[str, str] = {
    # in the order of CALLS: a allow, k ask, d deny; the mode is cautious
    "none": "akkkkaakkakk",
    "all allowed but": "adaakadadada",
    "little allowed": "akkakaaakaka",
    "asked for": "aakakkaaakak",
    "by kind": "kkkkkaaddadd",
}
WORDS = {"a": "allow", "k": "ask", "d": "deny"}


@tool(category="shell", kind="destructive")
async def shell(command: str) -> str:
    """Run a command."""
    return "done"


@tool(category="files", kind="read")
async def view(path: str) -> str:
    """Read a file."""
    return "done"


@tool(category="files", kind="write", traits=["file_writer"])
async def change(path: str) -> str:
    """Change a file."""
    return "done"


@tool(category="web", kind="read")
async def get(url: str) -> str:
    """Get a page."""
    return "done"


@tool(kind="write", aliases=["transfer"])
async def pay(amount: int, to: str) -> str:
    """Pay."""
    return "done"


@tool(kind="read", background_after=3600)
async def wait() -> str:
    """Take long: with it there are the tools that look after jobs."""
    return "done"


@dataclass
class RefusingApprover:
    """Refuses everything, and counts what it was asked."""

    asked: list[str] = field(default_factory=list[str])
    sessions: list[Session] = field(default_factory=list[Session])
    """Those that it answered for: a conversation in memory lasts as long as a reference to it."""

    async def __call__(self, question: Question) -> Answer:
        self.asked.append(question.tool.name)
        return Answer(verdict="no")


Entrance = Callable[[Toolcrib, RefusingApprover, str, Mapping[str, Any]], Awaitable[bool]]
"""Makes one call, and says whether it ran."""


def session_of(crib: Toolcrib, approver: RefusingApprover, profile: str = "flat") -> Session:
    approver.sessions.append(crib.session(profile=profile, approver=approver, key="entrance"))
    return approver.sessions[-1]


async def library(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    return not (await session_of(crib, approver).call(name, given)).is_error


async def many(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    _, result = await session_of(crib, approver).call_many([("nothing_like_it", {}), (name, given)])
    return not result.is_error


async def other_spelling(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    return not (await session_of(crib, approver).call(name.upper(), given)).is_error


async def as_text(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    return not (await session_of(crib, approver).call(name, json.dumps(given))).is_error


async def by_verb(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    session = session_of(crib, approver, "adaptive")
    return not (await session.call("call_tool", {"name": name, "arguments": dict(given)})).is_error


async def by_exec(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    session = session_of(crib, approver, "gateway")
    op = session.op_of(crib.catalog.tools[name])
    return not (await session.call("tool_exec", {"op": op, "args": dict(given)})).is_error


async def by_batch(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    session = session_of(crib, approver, "gateway")
    op = session.op_of(crib.catalog.tools[name])
    result = await session.call("tool_batch", {"ops": [{"type": "exec", "op": op, "args": dict(given)}]})
    [one] = result.structured_content["results"]
    return bool(one["ok"])


async def as_job(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    return not (await session_of(crib, approver).call(name, given, background=True)).is_error


async def started_by_model(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    session = session_of(crib, approver)
    told = await session.call("start_background_task", {"tool_name": name, "arguments": dict(given)})
    return not told.is_error


async def inside_a_verb(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    session = session_of(crib, approver, "adaptive")
    inner = {"tool_name": name, "arguments": dict(given)}
    return not (await session.call("call_tool", {"name": "start_background_task", "arguments": inner})).is_error


async def as_a_step(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    await crib.slice(Workflows).add("errand", {"steps": {"only": {"tool": name, "arguments": dict(given)}}})
    return not (await session_of(crib, approver).call("errand", {})).is_error


async def as_a_step_of_a_job(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    await crib.slice(Workflows).add("errand", {"steps": {"only": {"tool": name, "arguments": dict(given)}}})
    told = await session_of(crib, approver).call("errand", {}, background=True)
    if told.is_error:
        return False
    return not (await crib.jobs.result(told.meta["job"], "local", PATIENCE)).is_error


async def in_a_pipeline(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    pipeline = {"name": "errand", "steps": [{"id": "only", "tool": name, "params": dict(given)}]}
    asked = {"action": "define_and_run", "pipeline": pipeline}
    return not (await session_of(crib, approver).call("pipeline", asked)).is_error


async def in_a_program(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    code = f"await {name}(**{dict(given)!r})"
    return not (await session_of(crib, approver).call("run_code", {"code": code})).is_error


async def described(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    return not (await session_of(crib, approver).call(name, given, dry_run=True)).is_error


async def by_alias(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    return not (await session_of(crib, approver).call({"pay": "transfer"}[name], given)).is_error


async def made_again(crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any]) -> bool:
    session = session_of(crib, approver)
    call = Call(id=crib.calls.next_id(), name=name, arguments=dict(given), session=session.state)
    return not (await crib.parts.saved_calls.make(SavedCall.of(call.evolve(tool=crib.catalog.tools[name])))).is_error


async def over_mcp(
    crib: Toolcrib, approver: RefusingApprover, name: str, given: Mapping[str, Any], *, era: Way, profile: str
) -> bool:
    async with at(crib, profile, era, "cautious") as seat:
        reply = await seat.use(name, dict(given))
    if "needs approval" in reply.text:  # this client cannot be asked, and the answer says so
        approver.asked.append(name)
    return not reply.is_error


ENTRANCES: Mapping[str, Entrance] = {
    "library": library,
    "call_many": many,
    "other spelling": other_spelling,
    "arguments as a text": as_text,
    "call_tool": by_verb,
    "tool_exec": by_exec,
    "tool_batch": by_batch,
    "job": as_job,
    "resumed": made_again,
    "workflow": as_a_step,
    "workflow as a job": as_a_step_of_a_job,
    "mcp 2025-11-25": partial(over_mcp, era="legacy", profile="flat"),
    "mcp 2026-07-28": partial(over_mcp, era="2026-07-28", profile="flat"),
    "mcp 2026-07-28, gateway": partial(over_mcp, era="2026-07-28", profile="gateway"),
}

SIDE_DOORS: Mapping[str, Entrance] = {
    "alias": by_alias,
    "dry run": described,
    "pipeline": in_a_pipeline,
    "program": in_a_program,
    "start_background_task": started_by_model,
    "start_background_task by call_tool": inside_a_verb,
}
"""Those of which the table says nothing: they are tools with a kind of their own, know one tool only, or run none."""


@asynccontextmanager
async def opened(
    rules: Mapping[Effect, list[str]], allowed: tuple[str, ...] | None = None, **more: Any
) -> AsyncGenerator[Toolcrib]:
    settings = Settings.of(
        Directories.of({}),
        builtins=("pipeline", "run_code"),
        rules=rules,
        identities={"local": Identity(allowed_tools=allowed)},
    ).with_values(**more)
    async with Toolcrib(settings, memory=True) as crib:
        crib.add(shell, view, change, get, pay, wait)
        yield crib


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
@pytest.mark.parametrize("rules", RULES)
async def test_every_entrance_decides_as_the_table_says(rules: str, entrance: Entrance, full_size: bool) -> None:
    """Each call meets each entrance and each table: a pair makes every second call, its neighbours the others."""
    met: dict[str, str] = {}
    expected = dict(zip(CALLS, (WORDS[letter] for letter in EXPECTED[rules]), strict=True))
    first = (list(RULES).index(rules) + list(ENTRANCES.values()).index(entrance)) % 2
    labels = list(CALLS) if full_size else list(CALLS)[first::2]
    async with opened(RULES[rules]) as crib:
        for label in labels:
            name, given = CALLS[label]
            approver = RefusingApprover()
            with anyio.fail_after(PATIENCE):
                ran = await entrance(crib, approver, name, given)
            met[label] = "allow" if ran else "ask" if approver.asked else "deny"

    assert met == {label: expected[label] for label in labels}


PAYMENT: Mapping[str, Any] = {"amount": 5, "to": "bob"}
OTHERS = ("change", "errand", "get", "pipeline", "run_code", "shell", "start_background_task", "view")


@pytest.mark.parametrize("entrance", {**ENTRANCES, **SIDE_DOORS}.values(), ids={**ENTRANCES, **SIDE_DOORS})
@pytest.mark.parametrize("why", ["denied", "disabled", "not_in_scope"])
async def test_what_may_not_run_runs_at_no_entrance_and_nobody_is_asked_for_it(why: str, entrance: Entrance) -> None:
    rules: Mapping[Effect, list[str]] = {"deny": ["pay"]} if why == "denied" else {}
    approver = RefusingApprover()
    async with opened(rules, OTHERS if why == "not_in_scope" else None) as crib:
        if why == "disabled":
            crib.tools.disable("pay")
        with anyio.fail_after(PATIENCE):
            ran = await entrance(crib, approver, "pay", PAYMENT)
        outcomes = {row.outcome for row in await crib.store.calls.list() if row.tool.lower() != "tool_batch"}

    assert (ran, approver.asked, why in outcomes, "ok" in outcomes) == (False, [], True, False)


IN_ONE_CONVERSATION = {
    name: entrance
    for name, entrance in {**ENTRANCES, **SIDE_DOORS}.items()
    if not name.startswith("mcp") and name not in ("alias", "dry run")
}
"""Those that make their calls in the one conversation of this file."""


@pytest.mark.parametrize("entrance", IN_ONE_CONVERSATION.values(), ids=IN_ONE_CONVERSATION)
async def test_what_a_conversation_has_used_up_or_read_holds_at_every_entrance(entrance: Entrance) -> None:
    """The second call is over the budget; in a conversation that read a stranger's words a person is asked."""
    approver, budgets = RefusingApprover(), Budgets(tools={"pay": Budget(calls=1)})
    async with opened({"allow": ["pay"]}, budgets=budgets) as crib:
        with anyio.fail_after(PATIENCE):
            spent = [await entrance(crib, approver, "pay", PAYMENT) for _ in range(2)]
        outcomes = {row.outcome for row in await crib.store.calls.list()}
    async with opened({}) as crib:
        with anyio.fail_after(PATIENCE):
            before = await entrance(crib, approver, "get", {"url": "https://example.com/a"})
            crib.parts.policy.taint.mark_tainted_by("a page", approver.sessions[-1].state)
            after = await entrance(crib, approver, "get", {"url": "https://example.com/a?secret=1"})

    assert (spent, "budget_exceeded" in outcomes) == ([True, False], True)
    assert (before, after, approver.asked) == (True, False, ["get"])


@pytest.mark.parametrize("entrance", SIDE_DOORS.values(), ids=SIDE_DOORS)
async def test_what_may_run_is_reached_by_a_side_door_too(entrance: Entrance) -> None:
    async with opened({"allow": ["*"]}) as crib:
        with anyio.fail_after(PATIENCE):
            assert await entrance(crib, RefusingApprover(), "pay", PAYMENT)
