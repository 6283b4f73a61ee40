"""Templates in files of the workspace, as an index names them; what each is filled in with; an index that is wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.config.loader import bare
from toolcrib.crib.session import Session
from toolcrib_tools import memory
from unit.toolcrib_tools.telling import refused, told

INDEX = ".toolcrib/templates/index.json"

SHAPES: list[tuple[Any, list[str], list[str]]] = [
    ([], ["an index is a mapping with `templates`"], []),
    ({}, ["templates: is missing"], []),
    ({"templates": []}, ["templates: is not a mapping of names to templates"], []),
    ({"templates": {"a": 1}}, ["templates.a: is not a mapping with source_path"], []),
    (
        {"templates": {}, "template_count": 3, "generated_at": "2026-03-01", "extra": 1},
        [],
        ["extra: nothing is known of this key", "template_count: says 3, there are 0"],
    ),
    (
        {"templates": {"../a": {"source_path": 7, "name": "a"}}},
        [
            "templates.../a: a name has letters, digits, `_`, `.`, `-` and blanks",
            "templates.../a.source_path: is not a path",
        ],
        ["templates.../a.name: says 'a', the template is called '../a'"],
    ),
    (
        {"templates": {str(number): {} for number in range(501)}},
        ["templates: an index has at most 500, this one has 501"],
        [],
    ),
]
"""What an index is, and the errors and warnings about it."""


GUESTS = (memory,)


def put(folder: Path, **templates: Any) -> None:
    """Write an index; a template that is a text gets a file of its own."""
    entries: dict[str, Any] = {}
    for name, entry in templates.items():
        if isinstance(entry, str):
            (folder / "tpl").mkdir(exist_ok=True)
            (folder / "tpl" / name).write_text(entry)
            entry = {"source_path": f"tpl/{name}"}
        entries[name] = entry
    (folder / INDEX).parent.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).write_text(json.dumps({"templates": entries}))


async def test_a_template_of_the_index_is_listed_read_and_written(session: Session, folder: Path) -> None:
    put(folder, handler="def {{name}}(): {{body|pass}}\n")
    await told(session, "create_template", name="saved", content="{{x}}")

    assert await told(session, "list_templates") == {
        "templates": [
            {"name": "handler", "description": "", "variables": ["name", "body"], "path": "tpl/handler"},
            {"name": "saved", "description": "", "variables": ["x"]},
        ]
    }
    read = await told(session, "get_template", name="HANDLER")
    assert (read["name"], read["path"], read["content"]) == (
        "handler",
        "tpl/handler",
        "def {{name}}(): {{body|pass}}\n",
    )
    variables = await told(session, "list_template_variables", template="handler")
    assert variables == {
        "variables": [
            {"name": "name", "required": True, "default": None},
            {"name": "body", "required": False, "default": "pass"},
        ],
        "required": ["name"],
    }
    given = {"template": "handler", "output_path": "src/a.py", "variables": {"name": "f"}}
    await told(session, "write_file_from_template", **given)
    assert (folder / "src/a.py").read_text() == "def f(): pass\n"


async def test_a_saved_template_comes_before_one_of_the_index(session: Session, folder: Path) -> None:
    put(folder, handler="of the index")
    await told(session, "create_template", name="Handler", content="saved")

    assert (await told(session, "get_template", name="handler"))["content"] == "saved"
    assert [one["name"] for one in (await told(session, "list_templates"))["templates"]] == ["Handler"]


async def test_a_file_is_written_from_a_text_or_from_a_file_that_is_a_template(session: Session, folder: Path) -> None:
    (folder / "a.tpl").write_text("# {{title}}\r\n", newline="")
    given = {"variables": {"title": "T"}}
    await told(session, "write_file_from_template", output_path="a.md", template_path="a.tpl", **given)
    await told(session, "write_file_from_template", output_path="b.md", content="{{title}}!", **given)

    assert (folder / "a.md").read_bytes() == b"# T\r\n"
    assert (folder / "b.md").read_text() == "T!"
    assert (await told(session, "list_template_variables", template_path="a.tpl"))["required"] == ["title"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "give one of template, template_path, content"),
        ({"template": "a", "content": "b"}, "template and content: give one of them"),
        ({"template_path": "nothing.tpl"}, "there is no 'nothing.tpl'"),
        ({"template_path": "../a.tpl"}, "denied"),
        ({"template": "handle"}, "there is no template 'handle'\ndid you mean 'handler'?"),
        ({"template": "../x"}, "template"),
    ],
)
async def test_what_no_template_is_named_by_is_refused(
    session: Session, folder: Path, given: dict[str, Any], reason: str
) -> None:
    put(folder, handler="x")
    assert reason in await refused(session, "write_file_from_template", output_path="a.md", **given)
    assert not (folder / "a.md").exists()


async def test_the_configuration_says_where_the_index_is(folder: Path) -> None:
    (folder / "index.yaml").write_text("templates:\n  note:\n    source_path: note.tpl\n    description: A note\n")
    (folder / "note.tpl").write_text("{{text}}")
    put(folder, other="not looked at")
    async with Toolcrib(bare().with_values(tools={"templates": {"index": "index.yaml"}}), memory=True) as crib:
        crib.add(memory)
        session = crib.session(profile="flat", mode="autonomous", workspace=folder)
        listed = await told(session, "list_templates")
        (folder / "index.yaml").unlink()
        gone = await told(session, "list_templates")

    assert [(one["name"], one["description"]) for one in listed["templates"]] == [("note", "A note")]
    assert gone == {"templates": [], "problems": ["index.yaml: there is no 'index.yaml'"]}


async def test_an_entry_that_is_wrong_is_told_with_its_place_and_hides_no_other(session: Session, folder: Path) -> None:
    (folder / "logic.tpl").write_text("{% if a %}{{a}}{% endif %}")
    (folder / "filter.tpl").write_text("{{ a | upper }}")
    (folder / "section.tpl").write_text("{{#items}}{{.}}{{/items}}")
    (folder / "plain.tpl").write_text("{{a}} {{b}}")
    (folder / "binary.tpl").write_bytes(b"\xff\xfe\x00\xd8")
    put(
        folder,
        good="{{a}}",
        words="just words",
        gone={"source_path": "gone.tpl"},
        empty={},
        logic={"source_path": "logic.tpl", "syntax": "jinja2"},
        filter={"source_path": "filter.tpl", "syntax": "jinja2"},
        section={"source_path": "section.tpl", "syntax": "mustache"},
        plain={"source_path": "plain.tpl", "syntax": "jinja2", "variables": ["a", "c"]},
        right={"source_path": "plain.tpl", "syntax": "mustache", "variables": ["b", "a"]},
        binary={"source_path": "binary.tpl"},
        strange={"source_path": "plain.tpl", "syntax": "erb", "origin": "x", "variables": "a", "descripton": "d"},
    )

    checked = await told(session, "validate_template_index", path=INDEX)
    filled_in = "which is not filled in: only {{name}} and its like are"
    assert checked == {
        "path": INDEX,
        "valid": False,
        "templates": ["good", "words", "right"],
        "errors": [
            "templates.gone.source_path: there is no gone.tpl",
            "templates.empty.source_path: is missing",
            f"templates.logic: logic.tpl has {{% if a %}}, {filled_in}",
            f"templates.filter: filter.tpl has {{{{ a | upper }}}}, {filled_in}",
            f"templates.section: section.tpl has {{{{#items}}}}, {filled_in}",
            "templates.plain.variables: plain.tpl has no 'c'",
            "templates.plain.variables: lacks 'b' of plain.tpl",
            "templates.binary.source_path: binary.tpl is not UTF-8",
            "templates.strange.syntax: is one of places, mustache, jinja2, not 'erb'",
            "templates.strange.origin: is one of standalone, embedded, not 'x'",
            "templates.strange.variables: is not a list of names",
        ],
        "warnings": ["templates.strange.descripton: nothing is known of this key; did you mean 'description'?"],
    }
    listed = await told(session, "list_templates")
    assert [one["name"] for one in listed["templates"]] == ["good", "right", "words"]
    assert listed["problems"] == [f"{INDEX}: {error}" for error in checked["errors"]]


@pytest.mark.parametrize(
    ("index", "errors", "warnings"),
    SHAPES,
)
async def test_the_shape_of_an_index_is_checked(
    session: Session, folder: Path, index: Any, errors: list[str], warnings: list[str]
) -> None:
    (folder / "index.json").write_text(json.dumps(index))

    checked = await told(session, "validate_template_index", path="index.json")
    assert (checked["errors"], checked["warnings"], checked["valid"]) == (errors, warnings, not errors)


async def test_an_index_that_cannot_be_read_is_told_and_hides_no_saved_template(session: Session, folder: Path) -> None:
    await told(session, "create_template", name="saved", content="x")
    (folder / INDEX).parent.mkdir(parents=True)
    (folder / INDEX).write_text('{"templates": ')

    listed = await told(session, "list_templates")
    assert [one["name"] for one in listed["templates"]] == ["saved"]
    assert listed["problems"] == [f"{INDEX}:1: this is not JSON: Expecting value"]
    assert "this is not JSON" in await refused(session, "validate_template_index", path=INDEX)


@pytest.mark.parametrize("content", ["{%" * 50_000, "{{#" * 33_000, "{{" + "|" * 99_998, "{{ " * 33_000])
async def test_a_template_made_to_hurt_is_checked_at_once(session: Session, folder: Path, content: str) -> None:
    (folder / "a.tpl").write_text(content)
    put(folder, a={"source_path": "a.tpl", "syntax": "jinja2"})
    started = time.process_time()

    assert (await told(session, "validate_template_index", path=INDEX))["templates"] == ["a"]
    assert time.process_time() - started < 5
