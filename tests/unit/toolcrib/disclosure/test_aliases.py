"""What a profile calls tools: several names of one tool, one name of several tools, and words of its own."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.catalog.registry import Registry
from toolcrib.core.tool import Annotations, Guidance, Tool
from toolcrib.disclosure import profiles
from toolcrib.disclosure.aliases import ToolAliases
from toolcrib.errors import ConfigError, ToolFailure

READS = Annotations(read_only=True, destructive=False)
FIND = {"pattern": {"type": "string"}, "any_case": {"type": "boolean", "default": False, "description": "Find A as a."}}
EDITS = {
    "edits": {
        "type": "array",
        "items": {"$ref": "#/$defs/Edit"},
    }
}
EDIT = {
    "type": "object",
    "required": ["path"],
    "properties": {"path": {"type": "string"}, "do": {"enum": ["write", "remove"]}, "text": {"type": "string"}},
}


def tool(name: str, properties: dict[str, Any], *required: str, source: str = "builtin", **more: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    schema |= {"$defs": {"Edit": EDIT}} if properties is EDITS else {}
    fields: dict[str, Any] = {"description": f"{name} it. More.", "annotations": READS, **more}
    return Tool(name=name, local_name=name, source=source, input_schema=schema, **fields)


TOOLS = (
    tool("find", FIND, "pattern", guidance=Guidance(examples=[{"pattern": "x", "any_case": True}])),
    tool("look", {"pattern": {"type": "string"}, "depth": {"type": "integer"}}, "pattern"),
    tool(
        "write",
        {"path": {"type": "string"}, "content": {"type": "string"}},
        "path",
        "content",
        annotations=Annotations(),
    ),
    tool("change", {"path": {"type": "string"}, "old": {"type": "string"}}, "path", "old"),
    tool("edit_all", EDITS, "edits", guidance=Guidance(examples=[{"edits": [{"path": "a", "do": "remove"}]}])),
    tool("branch", {"action": {"enum": ["list", "create"]}, "name": {"type": "string"}}, "action"),
)


def aliases(names: dict[str, Any], *more: Tool, ours: tuple[str, ...] = ()) -> ToolAliases:
    profile = profiles.build({"name": "mine", "strategy": "flat", "names": names}, file="mine.yaml")
    registry = Registry()
    for source in dict.fromkeys(one.source for one in (*TOOLS, *more)):
        registry.declare(source, prefix=False)
        registry.put(source, [one for one in (*TOOLS, *more) if one.source == source])
    return ToolAliases(registry.catalog, replace(profile.naming, ours=frozenset(ours)))


def find(known: ToolAliases, name: str) -> Tool:
    """Return the tool that stands behind a name as it is shown under it."""
    label = known.rename_of(name)
    assert label is not None
    return next(
        face for one in TOOLS if one.name == label.tool for face in known.presentations(one) if face.name == name
    )


def test_a_tool_of_several_names_is_shown_under_each_with_what_that_name_fixes() -> None:
    known = aliases(
        {
            "create_branch": {"tool": "branch", "args": {"branch_name": "name"}, "fixed": {"action": "create"}},
            "branches": {"tool": "branch", "fixed": {"action": "list"}, "description": "List branches."},
        }
    )

    faces = known.presentations(TOOLS[5])

    assert [(face.name, face.description, [*face.input_schema["properties"]]) for face in faces] == [
        ("create_branch", "branch it. More.", ["branch_name"]),
        ("branches", "List branches.", ["name"]),
    ]
    assert known.name(TOOLS[5]) == "create_branch"


def test_the_name_that_a_tool_has_itself_comes_first() -> None:
    known = aliases({"seek": {"tool": "find"}, "find": {"tool": "find", "defaults": {"any_case": True}}})

    assert (known.name(TOOLS[0]), known.names(TOOLS[0])) == ("find", ("seek", "find"))


def test_a_flag_that_says_the_opposite_is_turned_round_both_ways() -> None:
    known = aliases({"seek": {"tool": "find", "args": {"exact": "not any_case"}}})
    shown, label = find(known, "seek"), known.rename_of("seek")
    assert label is not None

    assert shown.input_schema["properties"]["exact"] == {
        "type": "boolean",
        "default": True,
        "description": "False: find A as a.",
    }
    assert label.arguments({"pattern": "x", "exact": False}) == {"pattern": "x", "any_case": True}
    assert shown.guidance.examples == [{"pattern": "x", "exact": False}]


def test_a_number_above_that_of_the_name_counts_as_that_and_the_caller_hears_of_it() -> None:
    known = aliases({"glance": {"tool": "look", "args": {"far": "depth"}, "at_most": {"depth": 3}}})
    shown, label = find(known, "glance"), known.rename_of("glance")
    assert label is not None

    assert [label.arguments({"pattern": "x", "far": far})["depth"] for far in (2, 4)] == [2, 3]
    assert (label.notes({"far": 2}), label.notes({"far": 4})) == ((), ("far is 3 at most",))
    assert shown.input_schema["properties"]["far"]["description"] == "At most 3."


def test_members_of_the_objects_in_a_list_have_names_and_values_of_their_own() -> None:
    args = {"edits.file": "edits.path", "edits.from": "edits.path", "edits.action": "edits.do"}
    known = aliases({"multi": {"tool": "edit_all", "args": args, "values": {"edits.do": {"delete": "remove"}}}})
    shown, label = find(known, "multi"), known.rename_of("multi")
    assert label is not None
    items = shown.input_schema["properties"]["edits"]["items"]

    assert [*items["properties"]] == ["file", "from", "action", "text"]
    assert (items["properties"]["action"]["enum"], items["required"]) == (["write", "delete"], [])
    assert "$defs" not in shown.input_schema
    assert label.arguments({"edits": [{"file": "a", "action": "delete"}, {"from": "b"}, "no object"]}) == {
        "edits": [{"path": "a", "do": "remove"}, {"path": "b"}, "no object"]
    }
    assert shown.guidance.examples == [{"edits": [{"file": "a", "action": "delete"}]}]


def test_two_names_of_one_argument_may_say_the_same_and_nothing_else() -> None:
    label = aliases({"seek": {"tool": "find", "args": {"query": "pattern", "pattern": "pattern"}}}).rename_of("seek")
    assert label is not None

    assert label.arguments({"query": "x", "pattern": "x"}) == {"pattern": "x"}
    with pytest.raises(ToolFailure, match="query and pattern are two names of one argument"):
        label.arguments({"query": "x", "pattern": "y"})


def test_the_value_of_an_argument_chooses_between_tools() -> None:
    other = {"when": {"mode": "look"}, "tool": "look", "args": {"levels": "depth"}}
    known = aliases({"search": {"tool": "find", "when": {"mode": "find"}, "instead": [other]}})
    shown, label = find(known, "search"), known.rename_of("search")
    assert label is not None

    assert shown.input_schema["properties"]["mode"] == {
        "enum": ["find", "look"],
        "default": "find",
        "description": "find: find it. look: look it.",
    }
    assert {"pattern", "any_case", "levels"} < shown.input_schema["properties"].keys()
    assert [label.choose(given).tool for given in ({}, {"mode": "find"}, {"mode": "look"})] == ["find", "find", "look"]
    assert label.choose({"mode": "look"}).arguments({"mode": "look", "pattern": "x", "levels": 2}) == {
        "pattern": "x",
        "depth": 2,
    }
    assert known.tools_meant("search", TOOLS[0]) == ("find", "look")


def test_an_argument_that_is_there_chooses_and_what_only_some_need_is_not_required() -> None:
    other = {"given": "new_content", "tool": "write", "args": {"new_content": "content"}}
    known = aliases({"update": {"tool": "change", "instead": [other]}})
    shown, label = find(known, "update"), known.rename_of("update")
    assert label is not None

    assert ([*shown.input_schema["properties"]], shown.input_schema["required"]) == (
        ["path", "old", "new_content"],
        ["path"],
    )
    assert shown.kind == "destructive"
    assert label.choose({"path": "a", "new_content": ""}).tool == "write"


def test_where_one_of_the_tools_of_a_name_is_missing_the_others_are_left() -> None:
    gone = {"given": "x", "tool": "gone"}
    first = {"tool": "gone", "instead": [{"given": "x", "tool": "find"}]}
    known = aliases({"some": {"tool": "find", "instead": [gone]}, "other": first, "none": {"tool": "gone"}})

    assert [
        None if (label := known.rename_of(name)) is None else [one.tool for one in label.all]
        for name in ("some", "other", "none")
    ] == [
        ["find"],
        ["find"],
        None,
    ]


def test_an_argument_without_effect_is_taken_and_said_to_have_none() -> None:
    known = aliases({"seek": {"tool": "find", "unused": {"project": "there is only one"}}})
    shown, label = find(known, "seek"), known.rename_of("seek")
    assert label is not None

    assert shown.input_schema["properties"]["project"] == {
        "type": "string",
        "description": "No effect: there is only one.",
    }
    assert label.arguments({"pattern": "x", "project": "p"}) == {"pattern": "x"}
    assert label.notes({"pattern": "x", "project": "p"}) == ("project has no effect here: there is only one",)
    assert label.notes({"pattern": "x"}) == ()


def test_a_name_that_somebody_elses_tool_has_is_theirs() -> None:
    theirs = tool("seek", FIND, source="theirs")
    known = aliases({"seek": {"tool": "find"}}, theirs)

    assert (known.rename_of("seek"), known.name(theirs), known.name(TOOLS[0])) == (None, "seek", "find")


def test_a_name_of_a_profile_that_comes_with_us_means_no_tool_of_somebody_else() -> None:
    theirs = tool("theirs", FIND, source="theirs")
    names = {"seek": {"tool": "theirs"}, "search": {"tool": "find"}}

    ours = aliases(names, theirs, ours=("seek", "search"))
    own = aliases(names, theirs)

    assert [(known.name(theirs), known.name(TOOLS[0])) for known in (ours, own)] == [
        ("theirs", "search"),
        ("seek", "search"),
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"tool": "find", "args": {"a": 1}}, "names.x.args.a: takes the tool's own name of the argument, not 1"),
        ({"tool": "find", "values": {"a": "b"}}, "names.x.values.a: takes a mapping, not 'b'"),
        ({"tool": "find", "unused": {"a": 7}}, "names.x.unused.a: takes the reason, not 7"),
        ({"tool": "find", "instead": "look"}, "names.x.instead: takes a list, not 'look'"),
        ({"tool": "find", "instead": [{"tool": "look"}]}, "names.x.instead.0: takes `when` or `given`"),
        ({"tool": "find", "instead": [{"when": {"a": 1}}]}, "names.x.instead.0: takes the name of a tool"),
        ({"tool": "find", "arg": {}}, "names.x.arg: unknown key 'arg'; did you mean args?"),
    ],
)
def test_an_entry_that_means_nothing_is_refused_with_its_place(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        aliases({"x": entry})

    assert said in str(caught.value)
