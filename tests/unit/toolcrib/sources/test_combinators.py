"""Sources with fewer tools or other names; the contract of sources is in `tests/contract/test_sources.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Listing, Source, Tool, Toolcrib, UsageError, filtered, prefixed, renamed, tool
from toolcrib.core.context import Context
from toolcrib.core.events import Problem
from toolcrib.core.result import ToolResult
from toolcrib.core.server_features import WithFeatures, WithSkills
from toolcrib.core.tool import Annotations
from toolcrib.crib.enforced_lock import WithFiles
from toolcrib.errors import ToolFailure
from toolcrib.sources.mcp.source import McpSource
from toolcrib.sources.python.source import PythonSource
from toolcrib.testing import RecordingApprover, ScriptedSource

READ = Annotations(read_only=True, destructive=False)


async def body(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("ran")


class WithProblem(ScriptedSource):
    """Lists a problem beside its tools, and describes calls."""

    async def open(self, publish: Any) -> None:
        broken = Problem(source=self.name, code="bad_tool", message="is broken", tool="broken")
        await super().open(lambda listing: publish(Listing(tools=listing.tools, problems=(broken,), title="CRM")))

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        return f"GET /{tool.local_name}"

    def file_of(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        return f"/{tool.local_name}"


def crm() -> WithProblem:
    listed = [Tool(name="get", source="crm", local_name="get", description="Get.", annotations=READ, op="crm.get")]
    return WithProblem("crm", {"get": body, "put": body, "drop": body}, listed=listed)


async def listing(source: Source) -> Listing:
    found: list[Listing] = []
    await source.open(found.append)
    return found[-1]


def names(listed: Listing) -> list[str]:
    return [tool.name for tool in listed.tools]


def problems(listed: Listing) -> list[tuple[str, str]]:
    return [(problem.tool, problem.code) for problem in listed.problems]


def is_no_drop(one: Tool) -> bool:
    return one.local_name != "drop"


@pytest.mark.parametrize("keep", [["*t", "nothing"], is_no_drop])
async def test_a_filter_keeps_tools_by_pattern_or_by_function(keep: Any) -> None:
    source = filtered(crm(), keep)
    listed = await listing(source)

    assert (names(listed), listed.title) == (["get", "put"], "CRM")
    assert problems(listed) == [("broken", "bad_tool")]
    assert (source.state.tools, source.state.state) == (2, "ready")


async def test_a_filter_that_fails_on_a_tool_leaves_that_tool_out_and_no_other() -> None:
    def keep(one: Tool) -> bool:
        return {"get": True, "put": True}[one.local_name]

    listed = await listing(filtered(crm(), keep))

    assert (names(listed), problems(listed)) == (["get", "put"], [("broken", "bad_tool"), ("drop", "bad_tool")])


async def test_names_change_in_tools_and_problems_and_all_else_stays() -> None:
    listed = await listing(prefixed(crm(), "crm_"))

    assert names(listed) == [tool.local_name for tool in listed.tools] == ["crm_get", "crm_put", "crm_drop"]
    assert problems(listed) == [("crm_broken", "bad_tool")]
    assert (listed.tools[0].op, listed.tools[0].description, listed.tools[0].source) == ("crm.get", "Get.", "crm")


async def test_names_may_be_swapped_and_one_that_no_tool_has_is_a_problem() -> None:
    source = crm()
    derived = renamed(source, {"get": "put", "put": "get", "gte": "fetch"})
    listed = await listing(derived)
    await derived.call(listed.tools[0], {"a": 1}, Context(call_id="c", session_key="s", principal="p"))

    assert names(listed) == ["put", "get", "drop"]
    assert problems(listed) == [("broken", "bad_tool"), ("gte", "bad_tool")]
    assert "'get'" in listed.problems[-1].message
    assert source.calls == [("get", {"a": 1})]


async def test_of_two_tools_with_one_name_the_first_is_used_and_the_other_is_a_problem() -> None:
    source = crm()
    listed = await listing(derived := renamed(source, {"drop": "get"}))
    await derived.call(listed.tools[0], {}, Context(call_id="c", session_key="s", principal="p"))

    assert (names(listed), problems(listed)) == (["get", "put"], [("broken", "bad_tool"), ("get", "duplicate")])
    assert source.calls == [("get", {})]


def test_what_a_source_has_beyond_the_contract_it_has_still_and_what_it_lacks_it_lacks() -> None:
    class Rich(ScriptedSource):
        groups = "groups"
        features = "features"

        def files(self) -> list[str]:
            return ["/x"]

        def skill_entries(self) -> tuple[Mapping[str, Any], ...]:
            return ()

    rich: Any = prefixed(filtered(Rich("rich"), ["*"]), "x_")
    plain: Any = prefixed(PythonSource("plain"), "x_")

    assert (rich.files(), rich.groups, rich.features) == (["/x"], "groups", "features")
    assert [isinstance(rich, kind) for kind in (WithFiles, WithFeatures, WithSkills)] == [True] * 3
    assert [isinstance(plain, kind) for kind in (WithFiles, WithFeatures, WithSkills)] == [False] * 3
    assert [hasattr(plain, name) for name in ("files", "features", "describe", "skill_entries", "groups")] == [
        False
    ] * 5


async def test_a_derived_source_is_mounted_and_its_tools_are_called_under_their_names_here() -> None:
    source = crm()
    derived: Any = prefixed(filtered(source, ["get", "put"]), "v1_")
    async with Toolcrib(mode="autonomous", rules={"deny": ["crm__v1_put"]}) as crib, crib.session() as session:
        await crib.tools.mount_source(derived)
        source.set("get_all", body)
        results = {name: await session.call(f"crm__{name}", {}) for name in ("v1_get", "v1_put", "v1_drop", "get")}
        dry = await session.call("crm__v1_get", {}, dry_run=True)

        assert list(crib.catalog) == ["crm__v1_get", "crm__v1_put"]
        assert derived.file_of(crib.catalog["crm__v1_get"], {}) == "/get"

    outcome = {name: result.error.code if result.error else result.text for name, result in results.items()}
    assert (outcome["v1_get"], outcome["v1_put"], outcome["v1_drop"]) == ("ran", "denied", "not_found")
    assert dry.structured_content["request"] == "GET /get"
    assert ("get", {}) in source.calls


async def test_the_check_of_a_tool_runs_before_the_question_under_another_name_too() -> None:
    async def check(arguments: Mapping[str, Any], context: Context) -> None:
        raise ToolFailure("not_found", "no such place")

    @tool(kind="write", check=check)
    def send() -> str:
        """Send."""
        return "sent"

    @tool(kind="write")
    def keep() -> str:
        """Keep."""
        return "kept"

    source = PythonSource("post")
    source.add(send, keep)
    approver = RecordingApprover("yes")
    swapped = renamed(source, {"send": "keep", "keep": "send"})
    async with Toolcrib(mode="cautious") as crib, crib.session(approver=approver) as session:
        await crib.tools.mount_source(swapped)
        outcomes = [await session.call(f"post__{name}") for name in ("keep", "send")]

    assert [result.error.code if result.error else result.text for result in outcomes] == ["not_found", "kept"]
    assert [question.tool.name for question in approver.questions] == ["post__send"]


async def test_tools_that_come_and_go_pass_through() -> None:
    source = crm()
    async with Toolcrib() as crib:
        await crib.tools.mount_source(prefixed(filtered(source, ["get*"]), "v1_"))
        source.set("get_all", body)
        source.set("put_all", body)

        assert list(crib.catalog) == ["crm__v1_get", "crm__v1_get_all"]


async def test_servers_are_mounted_through_a_combinator() -> None:
    mounted: list[Source] = []

    def through(source: Source) -> Source:
        mounted.append(source)
        return prefixed(source, "x_")

    async with Toolcrib() as crib:
        await crib.mount({"mcpServers": {"far": {"url": "http://127.0.0.1:9/mcp"}}}, through=through)

        assert [type(source) for source in mounted] == [McpSource]
        assert [state.source for state in crib.tools.sources if state.kind == "mcp"] == ["far"]


async def test_tools_with_needs_are_listed_through_a_combinator_once_a_session_meets_them() -> None:
    @tool(kind="read", needs=["user"])
    async def choose(question: str) -> str:
        """Ask the user."""
        return "x"

    source = PythonSource("ui")
    source.add(choose)

    async def nobody(question: Any) -> Any:
        raise AssertionError

    async with Toolcrib() as crib:
        await crib.tools.mount_source(prefixed(source, "ui_"))
        before = "ui__ui_choose" in crib.catalog
        crib.session(approver=nobody)

        assert (before, "ui__ui_choose" in crib.catalog) == (False, True)


@pytest.mark.parametrize(
    ("derive", "change"),
    [
        (filtered, "get*"),
        (filtered, []),
        (filtered, [1]),
        (prefixed, ""),
        (renamed, {"a": ""}),
        (renamed, {"a": "c", "b": "c"}),
        (renamed, ["a"]),
    ],
)
def test_what_changes_nothing_or_too_much_is_refused_at_once(derive: Any, change: Any) -> None:
    with pytest.raises(UsageError):
        derive(crm(), change)
