"""A workflow that cannot work is refused when it is read, with the key where it is wrong."""

from pathlib import Path
from typing import Any

import pytest

from toolcrib import ConfigError, Toolcrib, tool
from toolcrib.results.redaction.redactor import Redactor
from toolcrib.workflows.spec import RESUME, read_workflow
from toolcrib.workflows.templates import MissingValue, Template

_STEP = {"tool": "t"}
_WRONG: list[tuple[Any, str]] = [
    ("text", "workflows.w: a mapping was expected"),
    ({}, "workflows.w.steps: a mapping was expected"),
    ({"steps": {}}, "workflows.w.steps: at least one step was expected"),
    ({"step": {"a": _STEP}}, "workflows.w.step: unknown key 'step'; did you mean steps?"),
    ({"steps": {"a": {}}}, "workflows.w.steps.a.tool: the name of a tool was expected"),
    ({"steps": {"a": {"tool": "t", "after": ["b"]}}}, "workflows.w.steps.a: unknown step 'b'"),
    (
        {"input": {"name": "string"}, "steps": {"a": {"tool": "t", "arguments": {"x": {"$text": "{$.input.nam}"}}}}},
        "workflows.w.steps.a.arguments: $.input.nam: the input has no 'nam'; did you mean 'name'?",
    ),
    (
        {"steps": {"find": _STEP, "a": {"tool": "t", "arguments": {"x": {"$from": "$.steps.fnd"}}}}},
        "unknown step 'fnd'; did you mean 'find'?",
    ),
    (
        {"steps": {"a": {"tool": "t", "after": "b"}, "b": {"tool": "t", "after": "a"}}},
        "workflows.w.steps: the steps wait for one another",
    ),
    ({"steps": {"a": _STEP}, "output": {"$from": "$.steps["}}, "workflows.w.output: the value: '$.steps[' "),
    ({"steps": {"a": _STEP}, "output": {"x": {"$from": "$.a"}}}, "workflows.w.output: x: '$.a' begins neither at"),
    ({"steps": {"a": _STEP}, "output": {"$from": "$.steps[*].x"}}, "begins neither at $.input nor at $.steps.NAME"),
    ({"steps": {"a": _STEP}, "output": {"$from": "$.steps.a", "els": 1}}, "only `default` can stand, not els"),
    (
        {"steps": {"a": _STEP}, "output": {"$from": "$.steps.a[*]", "default": 1}},
        "a path to many values has no default",
    ),
    ({"steps": {"a": _STEP}, "output": {"$text": "a } b"}}, "a brace stands alone in $text; write }} for the brace"),
    ({"steps": {"a": _STEP}, "input": {"x": "strin"}}, "workflows.w.input: no valid JSON Schema"),
    ({"steps": {"a": _STEP}, "input": {"resume_id": "string"}}, "resume_id is ours"),
    ({"steps": {"a": {"tool": "t", "approval": "yes"}}}, "workflows.w.steps.a.approval: true or false was expected"),
    ({"steps": {"a": {"tool": "t", "timeout": 0}}}, "workflows.w.steps.a.timeout: a number of seconds above 0"),
]


@pytest.mark.parametrize(("given", "said"), _WRONG, ids=[said for _, said in _WRONG])
def test_what_is_wrong_is_said_with_its_key(given: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_workflow("w", given)

    assert said in str(refused.value)


def test_a_short_input_asks_for_every_value_that_has_no_default() -> None:
    workflow = read_workflow(
        "w", {"input": {"a": "string", "b": {"type": "integer", "default": 1}}, "steps": {"s": _STEP}}
    )

    assert workflow.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_the_id_by_which_a_run_goes_on_is_not_taken_for_a_secret() -> None:
    told = {"text": f"same arguments and {RESUME} 'call_17c9da1cdb_1' to go on", RESUME: "call_17c9da1cdb_1"}

    assert Redactor().value(told) == told


def test_holes_are_filled_wherever_they_stand() -> None:
    template = Template(
        {
            "all": {"$from": "$.steps.a.items[?@.n > 1].n"},
            "deep": [{"x": {"$from": "$.input.x"}}, "$.input.x"],
            "none": {"$from": "$.input.none", "default": None},
            "text": {"$text": "{$.input.x}: {$.steps.a.items[0]} {{}}"},
        }
    )

    filled = template.fill({"input": {"x": "y"}, "steps": {"a": {"items": [{"n": 1}, {"n": 2}, {"n": 3}]}}})

    assert (filled, template.steps) == (
        {"all": [2, 3], "deep": [{"x": "y"}, "$.input.x"], "none": None, "text": 'y: {"n":1} {}'},
        {"a"},
    )


def test_a_path_that_leads_nowhere_is_named() -> None:
    with pytest.raises(MissingValue, match=r"nothing is at \$\.input\.b"):
        Template({"$from": "$.input.b"}).fill({"input": {}, "steps": {}})


async def test_a_broken_workflow_of_a_file_is_a_problem_with_its_line_and_hides_no_other(tmp_path: Path) -> None:
    @tool(kind="read")
    async def hello(name: str) -> str:
        """Say hello."""
        return f"hello {name}"

    file = tmp_path / "toolcrib.yaml"
    file.write_text(
        """\
workflows:
  broken:
    steps: {a: {tool: hello, after: b}}
  greet:
    input: {name: string}
    steps:
      a: {tool: hello, arguments: {name: {$from: $.input.name}}}
store: toolcrib.db
""",
        encoding="utf-8",
    )
    async with Toolcrib.open(file) as crib:
        crib.add(hello)
        result = await crib.session().call("greet", {"name": "ada"})
        said = [problem.message for problem in crib.problems if problem.tool == "broken"]

    assert (result.text, said) == ("hello ada", [f"{file}:2: workflows.broken.steps.a: unknown step 'b'"])
