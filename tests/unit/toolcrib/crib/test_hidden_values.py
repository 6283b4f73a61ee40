"""Uncertain finds are shown as placeholders, and put into arguments only by an approval that names them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.config import Directories, Settings
from toolcrib.core.context import Context, Output, Progress
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.testing import RecordingApprover, ScriptedSource

PASSWORD = "Harbour-Falcon77"
FIELDS = {
    "password": {"type": "string"},
    "command": {"type": "string"},
    "target": {"type": "string", "format": "uri"},
    "targets": {"type": "array", "items": {"type": "string", "format": "uri"}},
    "webhookURL": {"type": "string"},
    "shell_command": {"type": "string"},
    "more": {"type": "object"},
}


def defined(source: str, name: str, origin: str = "mcp", traits: tuple[str, ...] = ()) -> Tool:
    return Tool(
        traits=traits,
        category="shell" if name == "terminal" else "",
        name=f"{source}__{name}",
        source=source,
        local_name=name,
        origin=origin,
        input_schema={"type": "object", "properties": FIELDS},
        annotations=Annotations(read_only=True, destructive=False),
    )


async def login(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    logging.getLogger("toolcrib.test").warning("login with %s", arguments)
    await context.output(f"trying {arguments['password']} ")
    return ToolResult.of_text(f"welcome, {arguments['password']}")


async def read(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text(f"Hi Ann, the password is {PASSWORD} until Friday.")


async def certain(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text(f'{{"next_access_token": "{"a8Kd02mQx7Lp55Zt" * 2}", "password": "{PASSWORD}x"}}')


@asynccontextmanager
async def opened(
    *, builtins: list[str] | None = None, traits: tuple[str, ...] = (), **rules: list[str]
) -> AsyncGenerator[tuple[Toolcrib, dict[str, ScriptedSource]]]:
    settings = Settings.of(Directories.of({}), builtins=builtins or False, rules=rules)
    async with Toolcrib(settings, memory=True) as crib:
        bodies = {"login": login, "read": read, "certain": certain, "template": login, "terminal": login}
        sources = {
            name: ScriptedSource(
                name,
                bodies,
                listed=[defined(name, one, "yaml" if one == "template" else "mcp", traits) for one in bodies],
            )
            for name in ("mail", "shop")
        }
        for source in sources.values():
            await crib.tools.mount_source(source)
        yield crib, sources


def nested(key: str, levels: int) -> dict[str, Any]:
    return {key: "{}"} if not levels else {"inner": nested(key, levels - 1)}


def placeholder(result: ToolResult) -> str:
    return re.findall("⟦secret:[a-z]{10}⟧", result.text)[0]


async def test_an_approved_call_gets_the_value_and_nothing_else_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    approver = RecordingApprover()
    async with opened() as (crib, sources):
        session = crib.session(approver=approver, mode="autonomous")
        shown = await session.call("mail__read")
        name = placeholder(shown)
        result = await session.call("mail__login", {"password": name})
        questions = [(question.arguments, name in question.decision.rule) for question in approver.questions]
        again = await session.call("mail__read")

    assert sources["mail"].calls == [("read", {}), ("login", {"password": PASSWORD}), ("read", {})]
    assert questions == [({"password": name}, True)]
    assert (f"welcome, {name}" in result.text, placeholder(again)) == (True, name)
    assert PASSWORD not in f"{shown}{result}{again}{caplog.text}"


@pytest.mark.parametrize("answer", ["no", None])
async def test_without_an_approval_of_its_own_the_call_does_not_run(answer: Any) -> None:
    async with opened(allow=["*"]) as (crib, sources):
        session = crib.session(approver=RecordingApprover(answer) if answer else None, mode="autonomous")
        name = placeholder(await session.call("mail__read"))
        result = await session.call("mail__login", {"password": name})
    assert (result.error and result.error.code, sources["mail"].calls) == ("denied", [("read", {})])


async def test_a_deny_holds_for_a_call_with_a_placeholder() -> None:
    approver = RecordingApprover("yes")
    async with opened(deny=["mail__login"]) as (crib, sources):
        session = crib.session(approver=approver)
        found = placeholder(await session.call("mail__read", {}))
        denied = await session.call("mail__login", {"password": found})

    assert (denied.error and denied.error.code, approver.questions) == ("denied", [])
    assert sources["mail"].calls == [("read", {})]


async def test_an_always_holds_for_no_later_placeholder() -> None:
    approver = RecordingApprover("always", "no")
    async with opened() as (crib, sources):
        session = crib.session(approver=approver)
        name = placeholder(await session.call("mail__read"))
        await session.call("mail__login", {"password": name})
        result = await session.call("mail__login", {"password": name})
    assert (result.error and result.error.code, len(approver.questions)) == ("denied", 2)
    assert sources["mail"].calls == [("read", {}), ("login", {"password": PASSWORD})]


async def test_a_call_with_a_placeholder_is_asked_about_after_calls_that_were_not() -> None:
    approver = RecordingApprover("no")
    async with opened(traits=("reviewed",)) as (crib, _):
        session = crib.session(approver=approver, mode="autonomous")
        plain = [await session.call("mail__login", {"password": "x"}) for _ in range(2)]
        result = await session.call("mail__login", {"password": placeholder(await session.call("mail__read"))})
    assert ([one.is_error for one in plain], session.state.taint.source) == ([False, False], "")
    assert (result.error and result.error.code, len(approver.questions)) == ("denied", 1)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("shop__login", {"password": "{}"}),
        ("mail__login", {"password": "x", "command": "{}"}),
        ("mail__login", {"password": "x", "target": "{}"}),
        ("mail__login", {"password": "x", "targets": ["{}"]}),
        ("mail__login", {"password": "{}", "webhookURL": "{}"}),
        ("mail__login", {"password": "{}", "shell_command": "{}"}),
        ("mail__login", {"password": "{}", "more": nested("url", 40)}),
        ("mail__login", {"password": "{}", "more": {"message": "{}"}}),
        ("mail__template", {"password": "{}"}),
        ("mail__terminal", {"password": "{}"}),
    ],
    ids=[
        "another source",
        "a command",
        "a URL",
        "a URL of several",
        "a URL by its name",
        "a command by its name",
        "far inside",
        "a message",
        "a template",
        "a shell",
    ],
)
async def test_no_approval_brings_a_value_to_other_places(tool: str, arguments: Mapping[str, Any]) -> None:
    approver = RecordingApprover()
    async with opened(allow=["*"]) as (crib, sources):
        session = crib.session(approver=approver)
        name = placeholder(await session.call("mail__read"))
        result = await session.call(tool, json.loads(json.dumps(arguments).replace("{}", name)))
    assert (result.error and result.error.code, approver.questions, sources["shop"].calls) == ("denied", [], [])


@pytest.mark.parametrize(("deny", "ran"), [([], True), (["use_secret(to=shop)"], False)])
async def test_a_rule_names_another_destination(deny: list[str], ran: bool) -> None:
    async with opened(allow=["use_secret(from=mail, to=shop)"], deny=deny) as (crib, sources):
        session = crib.session(approver=RecordingApprover())
        name = placeholder(await session.call("mail__read"))
        await session.call("shop__login", {"password": name})
    assert (sources["shop"].calls == [("login", {"password": PASSWORD})]) is ran


@pytest.mark.parametrize(
    ("rule", "tool", "ran"),
    [
        ("use_secret(from=builtin.files)", "send", True),
        ("use_secret(from=builtin.web)", "send", False),
        ("use_secret(from=builtin.web)", "keep", True),
    ],
)
async def test_built_in_tools_of_another_category_are_another_destination(rule: str, tool: str, ran: bool) -> None:
    builtin = ScriptedSource(
        "builtin",
        {"read": read, "keep": login, "send": login},
        listed=[
            replace(defined("builtin", name, "python"), category=category)
            for name, category in (("read", "files"), ("keep", "files"), ("send", "web"))
        ],
    )
    async with opened(allow=[rule]) as (crib, _):
        await crib.tools.mount_source(builtin)
        session = crib.session(approver=RecordingApprover())
        name = placeholder(await session.call("builtin__read"))
        await session.call(f"builtin__{tool}", {"password": name})

    assert (builtin.calls == [("read", {}), (tool, {"password": PASSWORD})]) is ran


async def test_a_pipeline_hands_a_placeholder_on_to_the_questions_of_its_steps() -> None:
    approver = RecordingApprover()
    async with opened(builtins=["coordination"]) as (crib, sources):
        session = crib.session(approver=approver)
        name = placeholder(await session.call("mail__read"))
        steps = [
            {"id": source, "tool": f"{source}__login", "params": {"password": name}} for source in ("mail", "shop")
        ]
        definition = {"name": "log in", "steps": steps}
        result = await session.call("pipeline", {"action": "define_and_run", "pipeline": definition})

    assert [one.tool.name for one in approver.questions] == ["mail__login"]
    assert sources["mail"].calls == [("read", {}), ("login", {"password": PASSWORD})]
    assert (result.error and result.error.code, sources["shop"].calls) == ("denied", [])


async def test_another_principal_conversation_and_process_have_no_value_for_it() -> None:
    async with opened() as (crib, _), opened() as (replica, _):
        name = placeholder(await crib.session(principal="ann", key="one").call("mail__read"))
        others = [
            crib.session(principal="bob", key="one", approver=RecordingApprover()),
            crib.session(principal="ann", key="two", approver=RecordingApprover()),
            replica.session(principal="ann", key="one", approver=RecordingApprover()),
        ]
        results = [await session.call("mail__login", {"password": name}) for session in others]
    assert [
        result.error and (result.error.code, "read the value again" in result.error.message) for result in results
    ] == [("denied", True)] * 3


async def test_a_guess_at_a_value_that_another_principal_used_is_shown_as_any_text() -> None:
    async def told(principal: str, key: str) -> tuple[str, str, str]:
        heard, approver = list[str](), RecordingApprover()

        def listen(event: Progress | Output) -> None:
            if isinstance(event, Output):
                heard.append(event.chunk)

        session = crib.session(principal=principal, key=key, approver=approver)
        result = await session.call("mail__login", {"password": PASSWORD}, listener=listen)
        return result.text, "".join(heard), approver.questions[0].shown

    async with opened(ask=["mail__login"]) as (crib, _):
        before = await told("bob", "guess")
        ann = crib.session(principal="ann", key="one", approver=RecordingApprover(), mode="autonomous")
        await ann.call("mail__login", {"password": placeholder(await ann.call("mail__read"))})
        after, hers = await told("bob", "guess again"), await told("ann", "two")

    assert before == after
    assert (f"welcome, {PASSWORD}" in after[0], after[1]) == (True, f"trying {PASSWORD} ")
    assert [PASSWORD in text for text in hers] == [False] * 3


async def test_a_placeholder_in_a_longer_text_stays_a_text() -> None:
    async with opened() as (crib, sources):
        session = crib.session()
        name = placeholder(await session.call("mail__read"))
        await session.call("mail__login", {"password": f"see {name}"})
    assert sources["mail"].calls[-1] == ("login", {"password": f"see {name}"})


async def test_a_secret_that_is_certain_has_no_placeholder() -> None:
    async with opened() as (crib, _):
        result = await crib.session().call("mail__certain")
    assert ("⟦" in result.text, result.text.count("[redacted:")) == (False, 2)
