"""A description becomes tools with good names, true hints and usable schemas; what is broken hides nothing."""

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from peers.api import described
from toolcrib.core.schema import compile_schema
from toolcrib.core.tool import Tool
from toolcrib.sources.openapi.convert import Api, Picks, convert
from toolcrib.sources.openapi.description import parse
from toolcrib.sources.openapi.parameters import Sent


def converted(paths: Mapping[str, Any], *, sent: Sent | None = None, picks: Picks | None = None, **more: Any) -> Api:
    document = parse(described(paths, **more), "test")
    return convert(document, picks or Picks(), sent or Sent(), "api")


def only(paths: Mapping[str, Any], **more: Any) -> Tool:
    api = converted(paths, **more)
    assert [problem.message for problem in api.problems] == []
    (tool,) = api.tools
    return tool


def get(*parameters: Any, **more: Any) -> dict[str, Any]:
    return {"operationId": "op", "parameters": list(parameters), **more}


def post(schema: Any, media_type: str = "application/json", **more: Any) -> dict[str, Any]:
    body = {"content": {media_type: {"schema": schema}}, "required": True, **more}
    return {"operationId": "op", "requestBody": body}


def query(name: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema or {"type": "string"}, **more}


def test_an_operation_is_a_tool() -> None:
    issue = {
        "operationId": "issues/create",
        "summary": "Create an issue",
        "description": "Anybody can. See [the docs](https://example.org/x) for `more`.\n\nReally.",
        "tags": ["issues", "work"],
        "parameters": [{"name": "repo", "in": "path", "required": True, "schema": {"type": "string"}}],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"title": {"type": "string", "description": "What is wrong"}},
                        "required": ["title"],
                    },
                    "example": {"title": "It is broken"},
                }
            },
        },
    }
    tool = only({"/repos/{repo}/issues": {"post": issue}})

    assert (tool.name, tool.local_name, tool.source, tool.origin) == (
        "issues_create",
        "issues_create",
        "api",
        "openapi",
    )
    assert (tool.title, tool.category, tool.tags) == ("Create an issue", "issues", ("issues", "work"))
    assert tool.description == (
        "Create an issue. Anybody can. See the docs for `more`. Really.\n\nPOST /repos/{repo}/issues"
    )
    assert tool.summary == "Create an issue."
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "repo": {"type": "string"},
            "title": {"type": "string", "description": "What is wrong"},
        },
        "required": ["repo", "title"],
        "additionalProperties": False,
    }
    assert tool.output_schema is None


def test_an_example_is_taken_when_it_is_valid_as_a_whole() -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    good, bad = post(schema), post(schema)
    good["requestBody"]["content"]["application/json"]["examples"] = {"a": {"value": {"size": 1}}}
    bad["requestBody"]["content"]["application/json"]["examples"] = {"a": {"value": {"size": "large"}}}

    assert only({"/a": {"post": good}}).guidance.examples == ({"size": 1},)
    assert only({"/a": {"post": bad}}).guidance.examples == ()


@pytest.mark.parametrize(
    ("method", "identity", "kind", "idempotent"),
    [
        ("get", "listThings", "read", True),
        ("head", "hasThing", "read", True),
        ("put", "replaceThing", "write", True),
        ("post", "createThing", "write", False),
        ("patch", "updateThing", "write", False),
        ("delete", "dropIt", "destructive", True),
        ("post", "bulkDeleteThings", "destructive", False),
        ("post", "things/purge", "destructive", False),
        ("post", "undeleteThing", "write", False),
    ],
)
def test_hints_follow_the_method_and_the_verb(method: str, identity: str, kind: str, idempotent: bool) -> None:
    tool = only({"/things": {method: {"operationId": identity}}})

    assert (tool.kind, tool.annotations.idempotent, tool.annotations.open_world) == (kind, idempotent, True)


def test_operations_without_an_id_are_named_by_method_and_path() -> None:
    paths: dict[str, Any] = {
        "/users/{id}": {"get": {}, "delete": {}},
        "/users/{user-id}/posts": {"get": {}},
        "/": {"get": {}},
        "/users": {"get": {"operationId": "  "}},
    }

    assert [tool.name for tool in converted(paths).tools] == [
        "get_users_by_id",
        "delete_users_by_id",
        "get_users_posts_by_user-id",
        "get_root",
        "get_users",
    ]


def test_a_shared_id_names_nobody_and_is_told_and_the_names_do_not_depend_on_the_order() -> None:
    same = {"operationId": "do it"}
    paths = {"/a": {"get": same}, "/b": {"get": same}, "/c": {"get": {"operationId": "other"}}}
    api = converted(paths)
    turned = converted(dict(reversed(paths.items())))

    assert [tool.name for tool in api.tools] == ["get_a", "get_b", "other"]
    assert {tool.name for tool in turned.tools} == {tool.name for tool in api.tools}
    assert [(problem.code, problem.tool) for problem in api.problems] == [
        ("duplicate", "GET /a"),
        ("duplicate", "GET /b"),
    ]


def test_arguments_of_one_name_are_told_apart_by_where_they_go() -> None:
    parameters = [
        {"name": "id", "in": "cookie", "schema": {"type": "string"}},
        {"name": "id", "in": "header", "schema": {"type": "string"}},
        query("id"),
        {"name": "id", "in": "path", "schema": {"type": "string"}},
    ]
    operation = {**get(*parameters), **post({"type": "object", "properties": {"id": {"type": "integer"}}})}
    api = converted({"/x/{id}": {"post": operation}})
    tool = api.tools[0]

    assert list(tool.input_schema["properties"]) == ["id", "id__query", "id__header", "id__cookie", "id__body"]
    assert tool.input_schema["required"] == ["id"]
    assert api.operations["op"].body is not None
    assert api.operations["op"].body.properties == {"id__body": "id"}


def test_names_that_no_model_api_takes_are_rewritten_for_the_model_only() -> None:
    api = converted({"/x": {"get": get(query("filter[status]"), query("filter(status)"), query("$top"), query("ü"))}})

    assert {one.argument: one.name for one in api.operations["op"].parameters} == {
        "filter_status": "filter[status]",
        "filter_status__query": "filter(status)",
        "top": "$top",
        "value": "ü",
    }


def test_a_path_parameter_that_is_not_declared_is_one_all_the_same() -> None:
    tool = only({"/x/{id}/y": {"get": {"operationId": "op"}}})

    assert (tool.input_schema["required"], tool.input_schema["properties"]) == (["id"], {"id": {"type": "string"}})


def test_parameters_of_the_path_hold_for_all_its_operations_and_can_be_replaced() -> None:
    item = {"parameters": [query("a"), query("b")], "get": get(query("b", {"type": "integer"}))}

    assert only({"/x": item}).input_schema["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}


def test_headers_that_are_the_connections_and_credentials_that_are_ours_are_no_arguments() -> None:
    names = ("Authorization", "Content-Type", "Accept", "Host", "Transfer-Encoding", "X-Api-Key", "X-Trace")
    names = (*names, "X-HTTP-Method-Override", "X-Http-Method", "X-Method-Override", "X_HTTP_Method_Override")
    parameters = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]
    sent = Sent(headers=frozenset({"x-api-key"}), query=frozenset({"key"}))
    tool = only({"/x": {"get": get(*parameters, query("key"), query("q"))}}, sent=sent)

    assert list(tool.input_schema["properties"]) == ["q", "X-Trace"]


WHOLE_BODIES: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "string"}},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
    {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]},
    {"type": "string"},
    {},
]


@pytest.mark.parametrize("schema", WHOLE_BODIES)
def test_a_body_that_is_more_than_named_properties_is_one_argument(schema: Any) -> None:
    tool = only({"/x": {"post": post(schema)}})

    assert (list(tool.input_schema["properties"]), tool.input_schema["required"]) == (["body"], ["body"])


def test_parts_of_a_body_are_put_together_and_what_is_only_answered_is_left_out() -> None:
    components = {
        "schemas": {
            "Base": {
                "type": "object",
                "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}},
                "required": ["id", "name"],
            }
        }
    }
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/Base"},
            {"type": "object", "properties": {"size": {"type": "integer"}}},
        ],
        "anyOf": [{"required": ["name"]}, {"required": ["size"]}],
    }
    tool = only({"/x": {"post": post(schema)}}, components=components)

    assert tool.input_schema["properties"] == {"name": {"type": "string"}, "size": {"type": "integer"}}
    assert tool.input_schema["required"] == ["name"]


def test_an_optional_body_asks_for_its_required_parts_only_when_there_is_one() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}
    tool = only({"/x": {"post": post(schema, required=False)}})
    check = compile_schema(tool.input_schema).check

    assert (check({}), check({"a": 1}), bool(check({"b": 1})), check({"a": 1, "b": 1})) == ((), (), True, ())


def test_defaults_are_told_and_never_filled_in() -> None:
    """Filled into a PATCH they would reset what the caller did not mention."""
    schema = {"type": "object", "properties": {"private": {"type": "boolean", "default": False}}}
    tool = only({"/x": {"patch": post(schema)}})

    assert tool.input_schema["properties"]["private"] == {"type": "boolean", "description": "Default: false."}
    assert compile_schema(tool.input_schema).fill({}) == {}


def test_cycles_are_kept_as_references() -> None:
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
        },
    }
    schema = {"type": "object", "properties": {"root": {"$ref": "#/components/schemas/Node"}}, "required": ["root"]}
    tool = only({"/x": {"post": post(schema)}}, components={"schemas": {"Node": node}})
    check = compile_schema(tool.input_schema).check

    assert tool.input_schema["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert check({"root": {"name": "a", "children": [{"name": "b", "children": []}]}}) == ()
    assert check({"root": {"children": [{"name": 1}]}}) != ()


def test_small_plain_references_are_put_in_place() -> None:
    components = {"schemas": {"State": {"type": "string", "enum": ["open", "closed"]}}}
    tool = only({"/x": {"get": get(query("state", {"$ref": "#/components/schemas/State"}))}}, components=components)

    assert tool.input_schema["properties"]["state"] == {"type": "string", "enum": ["open", "closed"]}
    assert "$defs" not in tool.input_schema


def test_a_huge_schema_is_cut_where_it_is_deepest_and_still_usable() -> None:
    def level(number: int) -> dict[str, Any]:
        filler = {f"field_{place}": {"type": "string", "description": "x" * 200} for place in range(40)}
        return {"type": "object", "properties": {**filler, "next": {"$ref": f"#/components/schemas/L{number + 1}"}}}

    schemas = {f"L{number}": level(number) for number in range(20)} | {"L20": {"type": "object"}}
    body = {"type": "object", "properties": {"first": {"$ref": "#/components/schemas/L0"}}}
    tool = only({"/x": {"post": post(body)}}, components={"schemas": schemas})

    assert compile_schema(tool.input_schema).check({"first": {"field_0": "a", "next": {"field_0": "b"}}}) == ()
    assert 2 < len(tool.input_schema["$defs"]) < 20


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("https://example.org/x.json#/a", "outside of the description"),
        ("other.yaml#/a", "outside of the description"),
        ("#/components/schemas/None", "points to nothing"),
        ("#/components/schemas/Loop", "without end"),
    ],
)
def test_a_reference_that_leads_nowhere_takes_only_its_operation_away(reference: str, reason: str) -> None:
    components = {"schemas": {"Loop": {"$ref": "#/components/schemas/Loop"}}}
    paths = {"/bad": {"post": post({"$ref": reference})}, "/good": {"get": {"operationId": "good"}}}
    api = converted(paths, components=components)

    assert [tool.name for tool in api.tools] == ["good"]
    (problem,) = api.problems
    assert (problem.code, problem.tool) == ("bad_operation", "POST /bad")
    assert reason in problem.message


def test_a_reference_inside_a_referred_schema_that_leads_nowhere_does_so_too() -> None:
    components = {"schemas": {"Outer": {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}}}
    body = post({"type": "array", "items": {"$ref": "#/components/schemas/Outer"}})
    paths = {"/bad": {"post": body}, "/worse": {"put": {**body, "operationId": "other"}}}
    api = converted(paths, components=components)

    assert [(problem.tool, "points to nothing" in problem.message) for problem in api.problems] == [
        ("POST /bad", True),
        ("PUT /worse", True),
    ]


def test_broken_entries_hide_nothing() -> None:
    paths: dict[str, Any] = {
        "/a": {"get": "rubbish"},
        "/b": {"get": {"operationId": "b", "parameters": [{"in": "query"}]}},
        "/c": None,
        "no-slash": {"get": {"operationId": "c"}},
        "/d": {"get": {"operationId": "d", "servers": [{"url": "https://elsewhere.example"}]}},
        "x-extension": {"get": {"operationId": "x"}},
        "/deep": {"post": post(_nested(60))},
        "/good": {"get": {"operationId": "good", "parameters": "rubbish", "tags": [1, "t"], "summary": 5}},
    }
    api = converted(paths)

    assert [tool.name for tool in api.tools] == ["good"]
    assert [problem.tool for problem in api.problems] == ["GET /a", "GET /b", "GET no-slash", "GET /d", "POST /deep"]


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.slow
def test_junk_anywhere_takes_away_what_it_stands_in_and_never_breaks_the_rest() -> None:
    junk: list[Any] = [None, 5, "x", [], {}, True, [1], {"$ref": "#/nowhere"}, {"$ref": 5}, {"type": ["string", {}]}]
    body: dict[str, Any] = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "string", "enum": ["x"]}, "b": {"type": "array", "items": {"type": "integer"}}},
    }
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "example": "e"}}
    operation: dict[str, Any] = {
        **post(body),
        "operationId": "bad",
        "tags": ["t"],
        "parameters": [parameter],
        "responses": {"200": {"description": "", "content": {"application/json": {}}}},
        "security": [{"s": []}],
        "servers": [],
    }
    chance = random.Random(5)
    for _ in range(500):
        broken = copy.deepcopy(operation)
        for _ in range(3):
            holder, key = chance.choice(list(_places(broken)))
            holder[key] = copy.deepcopy(chance.choice(junk))
        api = converted({"/bad/{id}": {"post": broken}, "/good": {"get": {"operationId": "good"}}})

        assert "good" in [tool.name for tool in api.tools]
        assert len(api.tools) + len(api.problems) >= 2
        for tool in api.tools:
            compile_schema(tool.input_schema)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in `node` where something else can be put."""
    members: list[tuple[Any, Any]] = []
    if isinstance(node, dict):
        members = list(cast("dict[str, Any]", node).items())
    elif isinstance(node, list):
        members = list(enumerate(cast("list[Any]", node)))
    for key, value in members:
        yield node, key
        yield from _places(value)


def test_a_regular_expression_that_nobody_can_read_is_left_out() -> None:
    tool = only({"/x": {"get": get(query("q", {"type": "string", "pattern": "[unclosed"}), query("pattern"))}})

    assert tool.input_schema["properties"] == {"q": {"type": "string"}, "pattern": {"type": "string"}}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 9, "exclusiveMaximum": False}, {"type": "integer", "maximum": 9}),
        (
            {"nullable": True, "oneOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "null"}]},
        ),
        (
            {"nullable": True, "anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        ),
        ({"$ref": "#/components/schemas/S", "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "string", "format": "byte"}, {"type": "string", "contentEncoding": "base64"}),
        ({"type": "int", "xml": {}, "x-y": 1}, {}),
    ],
)
def test_schemas_of_version_3_0_are_brought_up_to_date(given: Any, made: Any) -> None:
    components = {"schemas": {"S": {"type": "string"}}}
    tool = only({"/x": {"get": get(query("q", given))}}, version="3.0.3", components=components)

    assert tool.input_schema["properties"]["q"] == made
    compile_schema(tool.input_schema)


def test_schemas_of_version_3_1_keep_what_they_say_beside_a_reference() -> None:
    components = {"schemas": {"S": {"type": ["string", "null"], "minLength": 1}}}
    schema = {"$ref": "#/components/schemas/S", "maxLength": 5}
    tool = only({"/x": {"get": get(query("q", schema))}}, components=components)

    assert tool.input_schema["properties"]["q"] == {"type": ["string", "null"], "minLength": 1, "maxLength": 5}


def test_files_in_a_form_can_be_given_as_text_or_base64() -> None:
    schema = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}, "note": {"type": "string"}},
    }
    tool = only({"/x": {"post": post(schema, "multipart/form-data")}}, version="3.0.0")

    assert list(tool.input_schema["properties"]["file"]["properties"]) == ["text", "base64", "filename", "media_type"]


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        ((), (), ["a_list", "a_get", "b_list"]),
        (("A",), (), ["a_list", "a_get"]),
        (("a/*",), (), ["a_list", "a_get"]),
        (("GET /b*",), (), ["b_list"]),
        ((), ("*/list",), ["a_get"]),
        (("a",), ("a/get",), ["a_list"]),
    ],
)
def test_operations_are_picked_by_tag_id_or_address(
    include: tuple[str, ...], exclude: tuple[str, ...], names: list[str]
) -> None:
    paths = {
        "/a": {"get": {"operationId": "a/list", "tags": ["a"]}},
        "/a/{id}": {"get": {"operationId": "a/get", "tags": ["a"]}},
        "/b": {"get": {"operationId": "b/list", "tags": ["b"]}},
    }
    api = converted(paths, picks=Picks(include=include, exclude=exclude))

    assert ([tool.name for tool in api.tools], api.problems) == (names, ())


def test_a_pick_that_fits_nothing_is_told() -> None:
    api = converted({"/a": {"get": {"operationId": "a"}}}, picks=Picks(include=("a", "isues"), exclude=("nothing",)))

    assert [problem.message for problem in api.problems] == [
        "include: 'isues' fits no operation",
        "exclude: 'nothing' fits no operation",
    ]


def test_hidden_characters_do_not_reach_the_model_and_are_told() -> None:
    parameter = query("q", {"type": "string", "description": "in\u2066ner"})
    shown = {
        "operationId": "op",
        "summary": "Read\u202e it",
        "description": "a\u200bb\x1b[2Jc",
        "parameters": [parameter],
    }
    meaning = {"operationId": "no", "parameters": [query("q", {"enum": ["a\u200bb"]})]}
    api = converted({"/x": {"get": shown}, "/y": {"get": meaning}})
    (tool,) = api.tools

    assert (tool.title, tool.description) == ("Read it", "Read it. abc\n\nGET /x")
    assert tool.input_schema["properties"]["q"]["description"] == "inner"
    assert [(problem.code, problem.tool) for problem in api.problems] == [
        ("hidden_text", "GET /x"),
        ("bad_operation", "GET /y"),
    ]
