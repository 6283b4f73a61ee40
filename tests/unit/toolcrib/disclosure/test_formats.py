"""Tool definitions follow the rules of portable schemas. The SDKs' own types judge them in `integrations`."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeds.rigging import seeded
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.schema import compile_schema, example
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.formats import FORMATS
from toolcrib.disclosure.formats.reduced_schemas import cut
from toolcrib.errors import ConfigError, UsageError
from toolcrib.testing import ScriptedSource

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
READS = Annotations(read_only=True, destructive=False)

NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    "required": ["label"],
}
DEMANDING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "state": {"type": ["string", "null"], "enum": ["on", None], "description": "The state."},
        "anything": {},
        "yes": True,
        "list": {"type": "array"},
        "tree": {"$ref": "#/$defs/Node"},
        "$top": {"type": "integer", "minimum": 1, "default": 5},
        "either": {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "integer"}]},
        "both": {"allOf": [{"properties": {"x": {"type": "number"}}}, {"required": ["x"]}]},
        "fixed": {"const": 5},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "far": {"$ref": "https://example.com/schema.json"},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["state"],
    "anyOf": [{"required": ["list"]}, {"required": ["tree"]}],
    "$defs": {"Node": NODE},
}


async def echoing(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("ran", structured_content=dict(arguments))


def a_tool(name: str = "work", schema: Mapping[str, Any] | None = None, **more: Any) -> Tool:
    shown: Mapping[str, Any] = {"type": "object", "properties": {}} if schema is None else schema
    return Tool(name=name, source="s", local_name=name, input_schema=shown, annotations=READS, **more)


class Opened:
    """A crib with some tools."""

    def __init__(self, *tools: Tool, names: Mapping[str, Any] | None = None) -> None:
        self._tools = tools
        self._profile = {"name": "named", "extends": "flat", "names": names or {}}

    async def __aenter__(self) -> Session:
        bodies = {tool.local_name: echoing for tool in self._tools}
        self._crib = await Toolcrib().__aenter__()
        self._crib.profiles.add(self._profile)
        await self._crib.tools.mount_source(ScriptedSource("s", bodies, listed=self._tools), prefix=False, trusted=True)
        return self._crib.session(profile="named")

    async def __aexit__(self, *_: object) -> None:
        await self._crib.__aexit__()


@pytest.fixture(scope="module")
async def seed() -> AsyncGenerator[Toolcrib]:
    async with seeded("gateway") as crib:
        yield crib


def functions(shown: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Name, description and schema of every definition, whatever the API."""
    for definition in shown:
        inside = definition.get("function_declarations") or definition.get("tools") or [definition]
        for one in cast("list[dict[str, Any]]", inside):
            function = one.get("function", one)
            keys = ("input_schema", "parameters", "parameters_json_schema", "inputSchema")
            schema = next((function[key] for key in keys if key in function), None)
            if "name" in function:
                yield {"name": function["name"], "description": function.get("description", ""), "schema": schema}


def broken_rules(node: Any, path: str = "") -> list[str]:
    """Where a schema is not portable."""
    if not isinstance(node, dict):
        return [f"{path}: not an object"]
    schema = cast("dict[str, Any]", node)
    found = [f"{path}: {key}" for key in ("$ref", "oneOf", "allOf", "not", "$defs", "const", "if") if key in schema]
    if not path and (schema.get("type") != "object" or "anyOf" in schema):
        found.append("the root")
    if ("anyOf" in schema) == isinstance(schema.get("type"), str):
        found.append(f"{path}: no type, or two")
    if schema.get("type") == "array" and "items" not in schema:
        found.append(f"{path}: no items")
    if None in schema.get("enum", ()):
        found.append(f"{path}: null among the values")
    for name, part in schema.get("properties", {}).items():
        found += broken_rules(part, f"{path}.{name}")
    for number, part in enumerate(schema.get("anyOf", ())):
        found += broken_rules(part, f"{path}|{number}")
    if "items" in schema:
        found += broken_rules(schema["items"], f"{path}[]")
    return found


# --- schemas


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses", "gemini"])
async def test_a_demanding_schema_becomes_a_portable_one(format: str) -> None:
    async with Opened(a_tool(schema=DEMANDING)) as session:
        (function, _) = functions(session.definitions(format))

    assert broken_rules(function["schema"]) == []
    assert function["schema"]["properties"]["state"] == {
        "anyOf": [{"type": "string", "enum": ["on"]}, {"type": "null"}],
        "description": "The state.",
    }
    assert "one of: list | tree" in function["description"]


async def test_what_is_cut_is_told_and_still_checked() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 3, "description": "How many."}}}
    async with Opened(a_tool(schema=schema)) as session:
        (function, _) = functions(session.definitions("gemini"))
        refused = await session.call("work", {"n": 4})

    assert function["schema"]["properties"]["n"] == {"type": "integer", "description": "How many. (multipleOf 3)"}
    assert refused.error is not None
    assert refused.error.details["field_errors"][0]["keyword"] == "multipleOf"


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses", "gemini"])
async def test_a_bound_of_zero_is_a_bound(format: str) -> None:
    bound = {"type": "integer", "minimum": 0, "exclusiveMaximum": False}
    async with Opened(a_tool(schema={"type": "object", "properties": {"n": bound}})) as session:
        (function, _) = functions(session.definitions(format))

    assert function["schema"]["properties"]["n"] == {"type": "integer", "minimum": 0}


async def test_a_schema_that_goes_back_into_itself_is_followed_once() -> None:
    async with Opened(a_tool(schema=DEMANDING)) as session:
        (function, _) = functions(session.definitions("anthropic"))

    tree = function["schema"]["properties"]["tree"]
    assert tree["required"] == ["label"]
    assert tree["properties"]["children"]["items"] == {"type": "object", "description": "(shape as Node above)"}


@pytest.mark.parametrize(("format", "name"), [("anthropic", "_top"), ("gemini", "_top"), ("openai", "$top")])
async def test_an_argument_that_an_api_cannot_name_is_renamed_reported_and_understood(format: str, name: str) -> None:
    schema = {"type": "object", "properties": {"$top": {"type": "integer"}}, "additionalProperties": False}
    async with Opened(a_tool(schema=schema)) as session:
        shown = session.definitions(format)
        ran = await session.call("work", {name: 3})

    assert list(next(functions(shown))["schema"]["properties"]) == [name]
    assert ran.structured_content == {"$top": 3}
    assert [problem.code for problem in shown.problems] == ([] if name == "$top" else ["renamed"])


@pytest.mark.parametrize("format", ["anthropic", "openai", "gemini"])
async def test_what_the_tool_accepts_the_cut_schema_accepts(seed: Toolcrib, format: str) -> None:
    tools = {tool.name: tool for tool in seed.catalog.tools.values()}
    for function in functions(seed.session(profile="flat").definitions(format)):
        if function["name"] in tools and function["schema"]:
            valid = example(tools[function["name"]].input_schema)
            assert compile_schema(function["schema"]).check(valid) == (), function["name"]


LEAVES: list[Any] = [
    {},
    True,
    {"type": "string"},
    {"type": ["integer", "null"]},
    {"enum": [1, "a", None]},
    {"const": {}},
    {"items": {}},
]
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["a", "$b", "c d"]), inner).map(lambda p: {"type": "object", "properties": p}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"allOf": parts}),
        inner.map(lambda part: {"type": "array", "items": part}),
        st.just({"$ref": "#/properties/x"}),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["x", "y", "$z"]), SCHEMAS, min_size=1))
def test_any_schema_becomes_portable(properties: dict[str, Any]) -> None:
    for kind in FORMATS.values():
        for subset in (kind.subset, kind.strict):
            if subset is not None:
                schema = cut({"type": "object", "properties": properties}, subset).schema
                assert broken_rules(schema) == []


# --- strict forms


CLOSED = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
OPTIONAL = {"type": "object", "properties": {"n": {"type": "integer"}}}
FREE = {"type": "object", "properties": {"map": {"type": "object"}}, "required": ["map"]}


@pytest.mark.parametrize(
    ("format", "schema", "is_strict"),
    [
        ("anthropic", CLOSED, True),
        ("anthropic", OPTIONAL, True),
        ("anthropic", FREE, False),
        ("openai", CLOSED, True),
        ("openai", OPTIONAL, False),
        ("openai", FREE, False),
        ("openai-responses", CLOSED, True),
        ("openai-responses", OPTIONAL, False),
    ],
)
@pytest.mark.slow
async def test_a_strict_form_is_used_where_it_means_the_same(format: str, schema: Any, is_strict: bool) -> None:
    async with Opened(a_tool(schema=schema)) as session:
        shown = session.definitions(format, strict=True)

    first = shown[0].get("function", shown[0])
    schema = next(functions(shown))["schema"]
    assert bool(first.get("strict")) == is_strict
    assert (schema.get("additionalProperties") is False) == is_strict
    assert ("work" in {problem.tool for problem in shown.problems}) != is_strict


async def test_openai_functions_are_not_strict_unless_asked_for(seed: Toolcrib) -> None:
    session = seed.session(profile="gateway")

    assert {part["function"]["strict"] for part in session.definitions("openai")} == {False}
    assert {part["strict"] for part in session.definitions("openai-responses")} == {False}


async def test_a_strict_schema_of_anthropic_has_no_bounds() -> None:
    async with Opened(a_tool(schema=CLOSED)) as session:
        schema = next(functions(session.definitions("anthropic", strict=True)))["schema"]

    assert schema["properties"]["n"] == {"type": "integer", "description": "(minimum 1)"}


# --- names and limits


NAMED = {"seed.work:now": {"tool": "work"}, "a_name_that_is_much_longer_than_any_api_takes_it": {"tool": "rest"}}


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses", "gemini"])
async def test_every_name_fits_every_api_and_a_call_by_it_is_resolved(format: str) -> None:
    tools = [a_tool("work"), a_tool("rest"), a_tool("issues/create"), a_tool("9lives"), a_tool("x" * 70)]
    async with Opened(*tools, names=NAMED) as session:
        shown = [function["name"] for function in functions(session.definitions(format))]
        results = [await session.call(name) for name in shown]

    assert [name for name in shown if NAME.fullmatch(name) is None] == []
    assert len(set(shown)) == len(tools) + 1
    assert [result.error for result in results] == [None] * len(shown)


async def test_a_verb_that_an_api_cannot_name_is_refused_when_the_profile_is_read() -> None:
    async with Toolcrib() as crib:
        with pytest.raises(ConfigError, match=r"verbs\.read: takes a name that every API accepts"):
            crib.profiles.add({"name": "odd", "extends": "flat", "verbs": {"read": "read.more"}})


async def test_more_tools_than_a_request_takes_are_reported_with_a_way_out() -> None:
    async with Opened(*(a_tool(f"t{number}") for number in range(130))) as session:
        fits = session.definitions("anthropic").problems
        (problem,) = session.definitions("openai").problems

    assert fits == ()
    assert (problem.code, problem.message) == ("too_many", "131 tools, and openai takes 128 in one request")
    assert "shows fewer" in problem.hint


async def test_a_description_that_openai_refuses_is_cut_and_reported() -> None:
    async with Opened(a_tool(description="word " * 400)) as session:
        shown, whole = session.definitions("openai"), session.definitions("anthropic")

    assert len(shown[0]["function"]["description"]) <= 1024
    assert [problem.code for problem in shown.problems] == ["cut"]
    assert (len(whole[0]["description"]), whole.problems) == (2000, ())


async def test_problems_of_one_tool_hide_no_other() -> None:
    async with Opened(a_tool("a", description="x" * 2000), a_tool("b")) as session:
        assert [part["function"]["name"] for part in session.definitions("openai")] == ["a", "b", "read_artifact"]


# --- deferral


async def test_anthropic_searches_what_is_deferred_and_sees_the_rest(seed: Toolcrib) -> None:
    session = seed.session(profile="adaptive")
    search, *others = session.definitions("anthropic", defer=True)

    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert [part["name"] for part in others if "defer_loading" not in part] == ["read_artifact"]
    assert [part["name"] for part in others if part.get("defer_loading")] == [
        tool.name for tool in session.visible.tools()
    ]


async def test_openai_sees_a_namespace_a_source_and_no_schema_in_it(seed: Toolcrib) -> None:
    session = seed.session(profile="adaptive")
    search, reading, *spaces = session.definitions("openai-responses", defer=True)

    assert (search, reading["name"]) == ({"type": "tool_search"}, "read_artifact")
    assert {space["type"] for space in spaces} == {"namespace"}
    sources = {tool.name: tool.source for tool in seed.catalog.tools.values()}
    assert [{sources[tool["name"]] for tool in space["tools"]} for space in spaces] == [{s["name"]} for s in spaces]
    assert all(space["description"].startswith(f"{len(space['tools'])} tools: ") for space in spaces)
    assert {tool["defer_loading"] for space in spaces for tool in space["tools"]} == {True}


async def test_a_deferred_tool_is_run_by_its_name(seed: Toolcrib) -> None:
    session = seed.session(profile="adaptive", mode="autonomous")
    definitions = {one["name"]: one for one in session.definitions("anthropic", defer=True)}

    assert definitions["list_onto_projects"]["defer_loading"]
    assert (await session.call("list_onto_projects", {})).error is None


async def test_the_list_keeps_its_bytes_as_long_as_nothing_changes(seed: Toolcrib) -> None:
    for format in FORMATS:
        session = seed.session(profile="adaptive")
        before = session.definitions(format)
        await session.call("search_tools", {"query": "task"})
        assert session.definitions(format)[: len(before)] == before or format == "gemini"


async def test_deferral_shows_nothing_that_is_out_of_scope_or_switched_off(seed: Toolcrib) -> None:
    session = seed.session(profile="adaptive", allowed_tools=["web_search", "web_visit"])
    session.disable("web_visit")

    assert "web_search" in str(session.definitions("anthropic", defer=True))
    assert "web_visit" not in str(session.definitions("anthropic", defer=True))


@pytest.mark.parametrize(
    ("format", "options", "said"),
    [
        ("openapi", {}, "'openapi' (known: anthropic, openai, "),
        ("gemini", {"strict": True}, "gemini has no strict form"),
        ("openai", {"defer": True}, "cannot hold tools back; the formats that can: anthropic, openai-responses"),
    ],
)
async def test_a_form_that_does_not_exist_is_refused(seed: Toolcrib, format: str, options: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        seed.session(profile="adaptive").definitions(format, **options)


async def test_a_profile_that_refuses_unloaded_tools_cannot_leave_loading_to_the_api(seed: Toolcrib) -> None:
    with pytest.raises(UsageError, match="the profile introspection "):
        seed.session(profile="introspection").definitions("anthropic", defer=True)
