"""A user's tool keeps the op that it declares or that its name stands for; built-in tools declare theirs."""

from __future__ import annotations

import pytest

from toolcrib.core.tool import Tool
from toolcrib.disclosure.ops import LostOp, OpMap, parts_of


def tool(name: str, source: str = "python", origin: str = "python", op: str = "") -> Tool:
    shown = name if source == "python" else f"{source}__{name}"
    return Tool(name=shown, source=source, local_name=name, origin=origin, op=op)


def ops(*tools: Tool, **said: str) -> dict[str, str]:
    known = OpMap(tools, said)
    return {one.name: known.of(one) for one in tools}


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("create_onto_task", "onto.task.create"),
        ("list_onto_tasks", "onto.task.list"),
        ("search_onto_documents", "onto.document.search"),
        ("get_onto_task_details", "onto.task.get"),
        ("list_entities", "onto.entity.list"),
        ("list_boxes", "onto.box.list"),
        ("get_status", "onto.status.get"),
        ("update_series", "onto.series.update"),
        ("web_search", "x.python.web_search"),
        ("listing", "x.python.listing"),
    ],
)
def test_a_tool_without_an_op_gets_one_from_its_name(name: str, op: str) -> None:
    assert ops(tool(name)) == {name: op}


def test_what_is_said_comes_before_what_a_name_would_give() -> None:
    said = [tool("create_task", op="work.item.add"), tool("get_document_tree"), tool("list_tasks")]

    assert ops(*said, get_document_tree="onto.document.tree.get") == {
        "create_task": "work.item.add",
        "get_document_tree": "onto.document.tree.get",
        "list_tasks": "onto.task.list",
    }


def test_tools_of_servers_go_by_their_server_unless_their_name_is_of_the_seed() -> None:
    found = ops(tool("create_issue", "github", "mcp"), tool("list_onto_tasks", "buildos", "mcp"))

    assert found == {"github__create_issue": "x.github.create_issue", "buildos__list_onto_tasks": "onto.task.list"}


@pytest.mark.parametrize("turn", [1, -1])
def test_an_op_that_two_tools_would_have_is_nobodys_whichever_came_first(turn: int) -> None:
    rivals = [tool("create_onto_task", "a", "mcp"), tool("create_onto_task", "b", "mcp")][::turn]
    known = OpMap(rivals)

    assert sorted(known.of(one) for one in rivals) == ["x.a.create_onto_task", "x.b.create_onto_task"]
    assert (known.named("onto.task.create"), known.spelled("onto.task.create")) == (None, None)
    assert {(one.op, one.tool.source, one.winner) for one in known.lost} == {
        ("onto.task.create", "a", None),
        ("onto.task.create", "b", None),
    }


@pytest.mark.parametrize("turn", [1, -1])
def test_a_users_tool_has_its_op_before_any_built_in_tool(turn: int) -> None:
    mine = [tool("list_onto_tasks"), tool("find", op="util.web.search"), tool("list_onto_goals", "mine", "mcp")]
    ours = [
        tool("web_search", "builtin", op="util.web.search"),
        tool("tasks", "builtin", op="onto.task.list"),
        tool("goals", "builtin", op="onto.goal.list"),
    ]

    assert ops(*[*mine, *ours][::turn], tasks="onto.task.list") == {
        "list_onto_tasks": "onto.task.list",
        "find": "util.web.search",
        "mine__list_onto_goals": "onto.goal.list",
        "builtin__web_search": "x.builtin.web_search",
        "builtin__tasks": "x.builtin.tasks",
        "builtin__goals": "x.builtin.goals",
    }


def test_a_built_in_tool_gets_no_op_from_its_name() -> None:
    known = OpMap([tool("list_tasks", "builtin")])

    assert known.of(tool("list_tasks", "builtin")) == "x.builtin.list_tasks"
    assert (known.named("onto.task.list"), known.spelled("onto.task.list")) == (None, None)


def test_of_two_users_tools_with_one_op_the_first_has_it_and_the_other_is_listed_as_lost() -> None:
    first, second = tool("a", op="same"), tool("b", op="same")
    known = OpMap([first, second])

    assert (known.of(first), known.of(second)) == ("same", "x.python.b")
    assert known.lost == (LostOp(op="same", tool=second, winner=first),)


@pytest.mark.parametrize("turn", [1, -1])
def test_a_name_with_onto_has_the_op_before_a_bare_one(turn: int) -> None:
    assert ops(*[tool("list_onto_tasks"), tool("list_tasks")][::turn]) == {
        "list_onto_tasks": "onto.task.list",
        "list_tasks": "x.python.list_tasks",
    }


@pytest.mark.parametrize("turn", [1, -1])
def test_a_derived_op_never_takes_one_that_was_said(turn: int) -> None:
    known = OpMap([tool("create_onto_task", "evil", "mcp"), tool("add_task", op="onto.task.create")][::turn])

    assert known.named("onto.task.create") == "add_task"
    assert known.named("x.evil.create_onto_task") == "evil__create_onto_task"


def test_every_tool_has_an_op_of_its_own_whatever_they_are_called() -> None:
    tools = [
        tool("a/b", "s", "mcp"),
        Tool(name="s__a_b_2", source="s", local_name="a_b", origin="mcp"),
        tool("x", op="x.s.a_b"),
        tool("y", op="same"),
        tool("z", op="same"),
    ]
    known = OpMap(tools)

    assert len({known.of(one) for one in tools}) == len(tools)
    assert {known.named(known.of(one)) for one in tools} == {one.name for one in tools}


@pytest.mark.parametrize(
    "asked",
    [
        "onto.task.list",
        "ONTO/TASK/LIST",
        "onto_task_list",
        "onto.tasks.list",
        "task.list",
        "list_task",
        "list_tasks",
        "x.misc.list_onto_tasks",
    ],
)
def test_an_op_is_known_by_its_spellings(asked: str) -> None:
    assert OpMap([tool("list_onto_tasks"), tool("web_search")]).spelled(asked) == "list_onto_tasks"


def test_a_spelling_that_could_mean_two_ops_means_none() -> None:
    known = OpMap([tool("a", op="onto.event.list"), tool("b", op="cal.event.list")])

    assert (known.spelled("event.list"), known.spelled("cal_event_list")) == (None, "b")


@pytest.mark.parametrize(
    ("op", "parts"),
    [
        ("onto.task.list", ("onto", "task", "list")),
        ("onto.search", ("onto", "", "search")),
        ("onto.project.graph.get", ("onto", "project.graph", "get")),
        ("alone", ("", "", "alone")),
    ],
)
def test_an_op_has_a_group_an_entity_and_an_action(op: str, parts: tuple[str, str, str]) -> None:
    assert parts_of(op) == parts
