"""Why a call would run or not: the answer is the one that the call itself would get."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Limits
from toolcrib.core.tool import Annotations, Availability, Tool
from toolcrib.crib import Toolcrib
from toolcrib.crib.explainer import Why
from toolcrib.errors import UsageError
from toolcrib.testing import RecordingApprover, ScriptedSource

READ = Annotations(read_only=True, destructive=False)


async def body(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("ran")


def named(name: str, annotations: Annotations = READ, **fields: Any) -> Tool:
    return Tool(name=name, source="fs", local_name=name, description=name, annotations=annotations, **fields)


@asynccontextmanager
async def crib_of(**settings: Any) -> AsyncGenerator[Toolcrib]:
    listed = [
        named("read"),
        named("write", Annotations(destructive=False)),
        named("plan", availability=Availability(contexts=("project",))),
    ]
    async with Toolcrib(bare().with_values(**settings), memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("fs", {tool.local_name: body for tool in listed}, listed=listed))
        yield crib


async def test_a_tool_that_may_run_says_by_which_rule() -> None:
    async with crib_of() as crib:
        told = crib.explainer.why("fs/read", crib.session(profile="flat"))

    assert told == Why(
        asked="fs/read",
        verdict="runs",
        reason="mode cautious: a read tool is allowed",
        tool="fs__read",
        source="fs",
        results="local: of this process",
    )


@pytest.mark.parametrize(
    ("name", "settings", "session", "stop"),
    [
        ("fs__nothing", {}, {}, "name"),
        ("gone__read", {}, {}, "name"),
        ("fs__read", {}, {"allowed_tools": ["fs__write"]}, "scope"),
        ("fs__write", {}, {"tools": ["fs__read"]}, "scope"),
        ("fs__plan", {}, {"contexts": ["global"]}, "context"),
        ("fs__read", {"rules": {"deny": ("fs__read",)}}, {}, "rule"),
        ("fs__write", {}, {}, "approval"),
        ("fs__read", {"limits": Limits(calls=0)}, {}, "budget"),
        ("fs__read", {"limits": Limits(calls_per_tool={"fs__read": 0})}, {}, "budget"),
    ],
)
async def test_what_stops_a_tool_is_named_and_the_call_itself_ends_with_the_same_code(
    name: str, settings: dict[str, Any], session: dict[str, Any], stop: str
) -> None:
    async with crib_of(**settings) as crib:
        opened = crib.session(profile="flat", **session)
        told = crib.explainer.why(name, opened)
        result = await opened.call(name, {})

    assert (told.verdict, told.stopped_by) == ("refused", stop)
    assert result.error is not None
    assert told.code == result.error.code


TAKES = {
    "type": "object",
    "properties": {
        "target": {"type": "string", "default": "production"},
        "project": {"type": "string"},
        "force": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
    },
}


@pytest.mark.parametrize(
    ("rule", "arguments", "context"),
    [
        ("fs__deploy(target=prod*)", {}, {}),
        ("fs__deploy(target=prod*)", {"target": "production", "force": None}, {}),
        ("fs__deploy(target=prod*)", {"Target": "production"}, {}),
        ("fs__deploy(force=null)", {"target": "staging"}, {}),
        ("fs__deploy(project=secret)", {"target": "staging"}, {"project": "secret"}),
    ],
    ids=["left out", "written out", "misspelt", "null", "of the session"],
)
async def test_a_rule_that_names_an_argument_sees_its_value_wherever_that_comes_from(
    rule: str, arguments: dict[str, Any], context: dict[str, Any]
) -> None:
    tool = named("deploy", Annotations(), input_schema=TAKES)
    async with Toolcrib(bare().with_values(rules={"deny": (rule,)}, mode="autonomous"), memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("fs", {"deploy": body}, listed=[tool]))
        session = crib.session(profile="adaptive", context=context)
        inner = {"name": "fs__deploy", "arguments": arguments}
        told = [crib.explainer.why("fs__deploy", session, arguments), crib.explainer.why("call_tool", session, inner)]
        decision = crib.explainer.decide("fs__deploy", session, arguments)
        results = [await session.call("fs__deploy", arguments), await session.call("call_tool", inner)]

    denied = f"deny {rule} (config)"
    assert [(one.tool, one.stopped_by, one.reason) for one in told] == [
        ("fs__deploy", "rule", f"denied by {denied}"),
    ] * 2
    assert (decision.effect, decision.rule) == ("deny", denied)
    assert [result.error.details if result.error else None for result in results] == [{"rule": denied}] * 2


async def test_the_policy_speaks_of_a_call_that_something_else_stops() -> None:
    async with crib_of() as crib:
        session = crib.session(profile="flat", allowed_tools=["fs__write"])

        assert crib.explainer.why("fs__read", session).stopped_by == "scope"
        assert crib.explainer.decide("fs__read", session).effect == "allow"
        with pytest.raises(UsageError, match="no tool 'fs__nothing'"):
            crib.explainer.decide("fs__nothing", session)


async def test_a_tool_out_of_scope_is_told_of_by_its_own_name_only_here() -> None:
    async with crib_of() as crib:
        told = crib.explainer.why("fs__plan", crib.session(profile="flat"))

    assert (told.tool, told.source) == ("fs__plan", "fs")
    assert told.reason == "it is for sessions that are project; this one is global"


async def test_a_tool_that_is_switched_off_says_for_whom() -> None:
    async with crib_of() as crib:
        session = crib.session(profile="flat")
        session.disable("fs__read")
        crib.tools.disable("fs__write")
        told = [crib.explainer.why(name, session) for name in ("fs__read", "fs__write")]

    assert [why.stopped_by for why in told] == ["disabled", "disabled"]
    assert [why.reason for why in told] == [
        "fs__read is switched off for this session",
        "fs__write is switched off for every session",
    ]


async def test_a_tool_that_nobody_has_reviewed_is_stopped_by_its_pin() -> None:
    async with crib_of() as crib:
        await crib.tools.mount_source(ScriptedSource("new", {"echo": body}), accept=False)
        session = crib.session(profile="flat")
        told = [crib.explainer.why(name, session) for name in ("new__echo", "new/echo")]
        result = await session.call("new__echo", {})

    assert [(why.stopped_by, why.source, why.code) for why in told] == [("pin", "new", "quarantined")] * 2
    assert result.error is not None
    assert told[0].reason == result.error.message


async def test_a_source_that_cannot_be_reached_stops_its_tools() -> None:
    source = ScriptedSource("net", {"look": body}, listed=[replace(named("look"), source="net")])
    async with crib_of() as crib:
        await crib.tools.mount_source(source)
        session = crib.session(profile="flat")
        before = crib.explainer.why("net__look", session)
        await source.close()
        after = crib.explainer.why("net__look", session)

    assert (before.verdict, after.verdict, after.stopped_by, after.code) == ("runs", "refused", "source", "unavailable")


async def test_what_would_be_asked_is_neither_asked_nor_run_nor_counted() -> None:
    approver = RecordingApprover("yes")
    async with crib_of(limits=Limits(calls=1)) as crib:
        session = crib.session(profile="flat", approver=approver)
        told = [crib.explainer.why("fs__write", session) for _ in range(3)]
        result = await session.call("fs__write", {})

    assert {why.verdict for why in told} == {"asks"}
    assert (result.text, len(approver.questions)) == ("ran", 1)


async def test_a_rule_about_arguments_is_asked_with_the_arguments() -> None:
    listed = named("open", input_schema={"type": "object", "properties": {"path": {"type": "string"}}})
    async with Toolcrib(bare().with_values(rules={"deny": ("fs__open(path=/etc/*)",)}), memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("fs", {"open": body}, listed=[listed]))
        session = crib.session(profile="flat")
        told = [crib.explainer.why("fs__open", session, {"path": path}) for path in ("/etc/passwd", "/home")]

    assert [why.stopped_by for why in told] == ["rule", ""]


async def test_a_tool_that_the_profile_wants_loaded_first_is_stopped_by_the_profile() -> None:
    async with crib_of() as crib:
        session = crib.session(profile="introspection")
        told = crib.explainer.why("fs__read", session)
        result = await session.call("fs__read", {})
        verbs = [crib.explainer.why(tool.name, session).verdict for tool in session.tools]

    assert result.error is not None
    assert (told.stopped_by, told.code) == ("profile", result.error.code)
    assert [part in told.hint for part in ("a model loads it", "get_tool_schemas")] == [True, False], told.hint
    assert set(verbs) == {"runs"}
