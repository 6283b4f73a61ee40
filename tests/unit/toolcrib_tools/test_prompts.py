"""Prompts and templates: kept under names, filled in as they say, and written as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib.plugin import ToolFailure
from toolcrib_tools import memory
from toolcrib_tools.memory.prompts import filled, variables_of
from unit.toolcrib_tools.telling import refused, told

GUESTS = (memory,)


# Filling in


@pytest.mark.parametrize(
    ("content", "variables", "text"),
    [
        ("Hello {{name}}, {{ name }}!", {"name": "Ada"}, "Hello Ada, Ada!"),
        ("{{a|one}} {{b|}}|", {}, "one |"),
        ("{{a|one}} and {{a}}", {}, "one and one"),
        ("{{a|one}}", {"a": "two"}, "two"),
        ("{{n}} {{f}} {{yes}}", {"n": 3, "f": 1.5, "yes": True}, "3 1.5 true"),
        ("{a} {{ }} {{a-b}} {{{x}}}", {"x": "y"}, "{a} {{ }} {{a-b}} {y}"),
        ("{{a}}", {"a": "{{b}} \\1"}, "{{b}} \\1"),
    ],
)
def test_places_are_filled_in_and_everything_else_stands_as_it_is(
    content: str, variables: dict[str, Any], text: str
) -> None:
    assert filled(content, variables) == text


@given(st.text(alphabet="ab{}| \n", max_size=60))
def test_every_text_can_be_filled_in_by_what_it_says_it_needs(content: str) -> None:
    places = variables_of(content)

    filled(content, {place["name"]: "x" for place in places if place["required"]})
    assert len({place["name"] for place in places}) == len(places)


def test_each_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(ToolFailure) as failure:
        filled("{{name}} {{size}} {{list}}", {"nam": "x", "list": ["a"], "size": 1})

    assert (failure.value.code, failure.value.message, failure.value.hint) == (
        "invalid_arguments",
        (
            "variables: name: is missing; nam: there is no such place; did you mean 'name'?; "
            "list: takes a text, a number or true and false, not list"
        ),
        "its places: name, size, list",
    )


def test_a_text_does_not_grow_without_end() -> None:
    with pytest.raises(ToolFailure, match="at most 1,000,000"):
        filled("{{a}}" * 101, {"a": "x" * 10_000})


# Prompts


async def test_a_prompt_is_saved_listed_read_rendered_replaced_and_deleted(session: Session) -> None:
    content = "Review this {{language|Python}} change for {{concern}}."
    saved = await told(session, "save_prompt", name="Review", content=content, description="Of a change")
    variables = [
        {"name": "language", "required": False, "default": "Python"},
        {"name": "concern", "required": True, "default": None},
    ]

    assert saved == {"name": "Review", "status": "created", "variables": variables}
    assert await told(session, "list_saved_prompts") == {
        "prompts": [{"name": "Review", "description": "Of a change", "variables": ["language", "concern"]}]
    }
    assert await told(session, "read_prompt", name="review") == {
        "name": "Review",
        "description": "Of a change",
        "content": content,
        "variables": variables,
    }
    rendered = await session.call("render_prompt", {"name": "review", "variables": {"concern": "races"}})
    assert rendered.text == "Review this Python change for races."
    assert "concern: is missing" in await refused(session, "render_prompt", name="review")
    again = await told(session, "save_prompt", name="review", content="New.")
    assert again["status"] == "updated"
    assert (await told(session, "read_prompt", name="review"))["description"] == "Of a change"
    assert (await session.call("delete_prompt", {"name": "REVIEW"})).text == "deleted: review"
    assert (await refused(session, "read_prompt", name="review")) == "there is no prompt 'review'\nthere are none yet"


async def test_a_prompt_belongs_to_a_project_and_the_nearest_name_is_told(crib: Toolcrib, session: Session) -> None:
    await told(session, "save_prompt", name="release-notes", content="x", project_id="shop")

    assert (await told(session, "list_saved_prompts"))["prompts"] == []
    failure = await refused(session, "render_prompt", name="release-note", project_id="shop")
    assert failure == "there is no prompt 'release-note'\ndid you mean 'release-notes'?"
    assert "name" in await refused(session, "save_prompt", name="../x", content="x")
    bob = crib.session(profile="flat", mode="autonomous", principal="bob")
    assert (await told(bob, "list_saved_prompts", project_id="shop"))["prompts"] == []


async def test_prompts_are_found_by_their_tags_which_stay_until_others_are_given(session: Session) -> None:
    await told(session, "save_prompt", name="a", content="x", tags=["code", "code", "short"])
    await told(session, "save_prompt", name="b", content="y")
    await told(session, "save_prompt", name="a", content="z")

    tagged = await told(session, "list_saved_prompts", tag="code")
    assert [(one["name"], one["tags"]) for one in tagged["prompts"]] == [("a", ["code", "short"])]
    await told(session, "save_prompt", name="a", content="z", tags=["other"])
    assert (await told(session, "list_saved_prompts", tag="code"))["prompts"] == []
    assert (await told(session, "read_prompt", name="a"))["tags"] == ["other"]


# Templates


async def test_a_file_is_written_from_a_template(session: Session, folder: Path) -> None:
    content = 'async def {{name}}():\n    """{{purpose|To be written.}}"""\n'
    made = await told(session, "create_template", name="handler.py", content=content, description="A handler")
    written = await told(
        session,
        "write_file_from_template",
        template="handler.py",
        output_path="src/orders.py",
        variables={"name": "list_orders"},
    )

    assert made == await told(session, "get_template", name="handler.py")
    assert [(place["name"], place["default"]) for place in made["variables"]] == [
        ("name", None),
        ("purpose", "To be written."),
    ]
    assert (await told(session, "list_templates"))["templates"] == [
        {"name": "handler.py", "description": "A handler", "variables": ["name", "purpose"]}
    ]
    text = 'async def list_orders():\n    """To be written."""\n'
    assert (folder / "src/orders.py").read_text() == text
    assert written == {"path": "src/orders.py", "size": len(text), "replaced": False, "pending": False}


async def test_neither_a_file_nor_a_template_is_replaced_unless_that_is_asked_for(
    session: Session, folder: Path
) -> None:
    (folder / "a.txt").write_text("mine")
    await told(session, "create_template", name="t", content="new")

    there = await refused(session, "create_template", name="T", content="other")
    file = await refused(session, "write_file_from_template", template="t", output_path="a.txt")
    assert there == "there is a template 'T' already\ngive it another name"
    assert file == "'a.txt' is there already\nset overwrite to replace it"
    assert (folder / "a.txt").read_text() == "mine"
    await told(session, "create_template", name="T", content="newer", replace=True)
    replaced = await told(session, "write_file_from_template", template="t", output_path="a.txt", overwrite=True)
    assert (replaced["replaced"], (folder / "a.txt").read_text()) == (True, "newer")


async def test_a_file_from_a_template_waits_for_review_and_stays_inside(crib: Toolcrib, folder: Path) -> None:
    reviewed = crib.session(profile="flat", mode="review", workspace=folder)
    writing = crib.session(profile="flat", mode="autonomous", workspace=folder)
    await told(writing, "create_template", name="t", content="{{x}}")

    waits = await told(reviewed, "write_file_from_template", template="t", output_path="a.txt", variables={"x": 1})
    outside = await refused(
        writing, "write_file_from_template", template="t", output_path="../a.txt", variables={"x": 1}
    )
    missing = await refused(writing, "write_file_from_template", template="t", output_path="b.txt")
    assert (waits["pending"], (folder / "a.txt").exists()) == (True, False)
    assert "denied" in outside
    assert "x: is missing" in missing
    assert list(folder.iterdir()) == []
    assert (await writing.call("delete_template", {"name": "t"})).text == "deleted: t"
    assert "there is no template 't'" in await refused(writing, "get_template", name="t")
