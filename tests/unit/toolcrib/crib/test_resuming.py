"""A saved call that is made again: from the top, under its own id, in the session it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.testing import ScriptedSource

WRITE = Tool(
    name="write",
    source="fs",
    local_name="write",
    annotations=Annotations(destructive=False),
    input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


async def show(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text(f"{context.call_id} wrote {arguments['path']} for {context.principal} in {context.cwd}")


def source() -> ScriptedSource:
    return ScriptedSource("fs", {"write": show}, listed=[WRITE])


def crib(**settings: Any) -> Toolcrib:
    return Toolcrib(bare().with_values(mode="autonomous", **settings), memory=True)


def saved(definition: Tool, **session: Any) -> SavedCall:
    told: dict[str, Any] = {"key": "k", "principal": "ada", "mode": "autonomous", "cwd": "/srv/task"} | session
    return SavedCall(
        id="call_of_another_life",
        name="fs__write",
        arguments={"path": "a"},
        session=SavedSession(**told),
        definition=definition.digest.hex(),
    )


async def test_a_call_is_made_again_under_its_own_id_in_a_session_like_the_one_it_had() -> None:
    async with crib() as made:
        await made.tools.mount_source(source())

        result = await made.parts.saved_calls.make(saved(made.catalog.tools["fs__write"]))

        assert result.text == f"call_of_another_life wrote a for ada in {Path('/srv/task')}"
        assert [(row.id, row.outcome) for row in await made.store.calls.list()] == [("call_of_another_life", "ok")]


async def test_a_living_session_is_used_as_it_is_now() -> None:
    async with crib() as made:
        await made.tools.mount_source(source())
        living = made.session(principal="ada", key="k")
        living.disable("fs__write")

        result = await made.parts.saved_calls.make(saved(made.catalog.tools["fs__write"]))

        assert result.error is not None
        assert (result.error.code, made.sessions.find("ada", "k")) == ("disabled", living.state)


async def test_a_tool_that_was_defined_anew_meanwhile_does_not_run() -> None:
    async with crib() as made:
        fs = source()
        await made.tools.mount_source(fs)

        result = await made.parts.saved_calls.make(
            saved(replace(made.catalog.tools["fs__write"], description="another"))
        )

        assert (result.error and result.error.code, fs.calls) == ("definition_changed", [])
        assert [(row.id, row.outcome) for row in await made.store.calls.list()] == [
            ("call_of_another_life", "definition_changed")
        ]


async def test_a_deny_that_was_written_meanwhile_holds() -> None:
    async with crib(rules={"deny": ("fs__write",)}) as made:
        fs = source()
        await made.tools.mount_source(fs)

        result = await made.parts.saved_calls.make(saved(made.catalog.tools["fs__write"]))

        assert (result.error and result.error.code, fs.calls) == ("denied", [])


async def test_what_was_out_of_scope_or_switched_off_in_its_session_stays_so() -> None:
    async with crib() as made:
        fs = source()
        await made.tools.mount_source(fs)
        definition = made.catalog.tools["fs__write"]

        codes = [
            (await made.parts.saved_calls.make(saved(definition, key=key, **session))).error
            for key, session in (
                ("1", {"allowed": ("other",)}),
                ("2", {"disabled": ("fs__write",)}),
                ("3", {"exact": ()}),
            )
        ]

        assert ([code and code.code for code in codes], fs.calls) == (["not_in_scope", "disabled", "not_in_scope"], [])


async def test_a_profile_that_declares_tools_only_once_they_are_loaded_runs_what_had_been_loaded() -> None:
    async with crib() as made:
        await made.tools.mount_source(source())

        result = await made.parts.saved_calls.make(saved(made.catalog.tools["fs__write"], profile="introspection"))

        assert not result.is_error, result


async def test_a_session_whose_mode_is_gone_runs_nothing_and_says_so() -> None:
    async with crib() as made:
        fs = source()
        await made.tools.mount_source(fs)

        result = await made.parts.saved_calls.make(saved(made.catalog.tools["fs__write"], mode="heist"))

        assert (result.error and result.error.code, fs.calls) == ("unavailable", [])
        assert [row.outcome for row in await made.store.calls.list()] == ["unavailable"]


async def test_a_tool_that_is_gone_is_not_found() -> None:
    async with crib() as made:
        result = await made.parts.saved_calls.make(saved(WRITE))

        assert result.error is not None
        assert result.error.code == "not_found"
