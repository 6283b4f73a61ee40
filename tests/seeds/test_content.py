"""Shipped skills of seed 004: a model without network reads one, runs what it shows, and a real file is there."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from rig.sandbox import needs_sandbox
from seeds.rigging import names, sent
from seeds.test_growing_over_mcp import client
from toolcrib.config import bare
from toolcrib.config.loader import load_gateway
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.config.sources import shipped_skills
from toolcrib.core.context import Output
from toolcrib.core.elicitation import Clarification
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session, Toolcrib
from toolcrib.sources.skill_folder import read_skill
from toolcrib.testing.models import Reply, ScriptedModel, Seen, calls
from toolcrib_agent import Agent
from toolcrib_agent.events import CallProgress

Test = TypeVar("Test", bound=Callable[..., Any])
OFFERED = {"excel-analyzer", "csv-processor", "chart-generator", "document-writer", "ppt-generator", "summarize"}
COUNT = "import time\nfor word in 'one', 'two':\n    print(word, flush=True)\n    time.sleep(.3)\n6 * 7"
SALES = "month,amount\nJan,10\nFeb,30\nMar,20\n"


@pytest.fixture(scope="module")
async def crib(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolcrib]:
    folder = tmp_path_factory.mktemp("content")
    settings = {"builtins": True, "mode": "autonomous", "skills": shipped_skills()}
    async with Toolcrib(bare().with_values(**settings, workspace=WorkspaceSpec(roots=(folder,))), memory=True) as made:
        await made.tools.wait_ready(30, ["skills"])
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "data.csv").write_text(SALES)
    return made


def of(crib: Toolcrib, folder: Path, **options: Any) -> Session:
    return crib.session(profile="selection", workspace=folder, key=str(folder), **options)


def code_of(skill: str, **given: Any) -> str:
    """Return the code that a skill's text shows, with other values for the names at its head."""
    found = re.search(r"```python\n(.*?)```", skill, re.DOTALL)
    assert found, skill
    head, blank, body = found[1].partition("\n\n")
    assert set(given) <= set(re.findall(r"^([A-Z]+) =", head, re.MULTILINE)), head
    return head + "".join(f"\n{name} = {value!r}" for name, value in given.items()) + blank + body


def follow(name: str, **given: Any) -> tuple[Reply, Callable[[Seen], Reply]]:
    """Return the steps of a model that reads a skill, and runs its code."""
    return calls(name), lambda seen: calls("code_execution", code=code_of(seen.results[-1], **given))


def in_sandbox(test: Test) -> Test:
    """Mark a test that runs code in a notebook."""
    return needs_sandbox(pytest.mark.process(pytest.mark.long(test)))


def of_result(result: ToolResult) -> Any:
    """Return the structured content."""
    return result.structured_content


async def whole(session: Session, result: ToolResult) -> str:
    """Return the text of a result, as it was before it was shortened."""
    shortened = result.meta.get("compression")
    return result.text if shortened is None else await session.recover(shortened["ref_id"])


async def made_by(crib: Toolcrib, folder: Path, groups: list[str], *steps: Any) -> ScriptedModel:
    """Let a model work by these steps with the skills of these groups, and return it."""
    model = ScriptedModel(*steps, "Done.")
    intent = {"relevant_skill_groups": groups, "required_tools": ["code_execution", "read_file", "write_file"]}
    async with of(crib, folder) as session:
        outcome = await Agent(model, session).run("Make the file.", intent=intent)
    assert outcome.is_complete, outcome
    return model


async def test_the_skills_are_valid_and_there_under_their_groups(crib: Toolcrib, folder: Path) -> None:
    (root,) = [root.path for root in shipped_skills().roots]
    found = {path.parent.name: read_skill(path.parent).warnings for path in root.glob("*/SKILL.md")}
    assert found == dict.fromkeys(OFFERED, ())
    data = of(crib, folder, intent={"relevant_skill_groups": ["data_analysis"]})
    assert {"excel-analyzer", "csv-processor", "chart-generator"} <= set(names(data))
    assert not {"document-writer", "ppt-generator", "excel-analyzer"} & set(names(of(crib, folder, intent={})))


async def test_the_catalog_has_the_tools_skills_and_code_of_the_document(crib: Toolcrib) -> None:
    kinds = [tool.capability.type for tool in crib.catalog.tools.values()]
    assert (kinds.count("SKILL"), kinds.count("CODE"), len(kinds) >= 70) == (len(OFFERED), 1, True)


@needs_sandbox
async def test_groups_that_a_task_needs_are_expanded_to_their_skills_and_the_tools_with_their_capabilities(
    crib: Toolcrib, folder: Path
) -> None:
    session = of(crib, folder, intent={"complexity": "medium", "relevant_skill_groups": ["data_analysis"]})

    assert session.selection.reason
    assert {tool.name for tool in session.selection.dynamic_tools} == {
        "excel-analyzer",
        "csv-processor",
        "chart-generator",
        "display_diagram",
        "notebook_execute",
        "read_file",
    }


async def test_of_tools_that_match_those_of_higher_priority_come_first(crib: Toolcrib, folder: Path) -> None:
    session = of(crib, folder, required_capabilities=["visualization", "data_processing"])
    priorities = [tool.capability.priority for tool in session.selection.dynamic_tools]

    assert (priorities, len(set(priorities))) == (sorted(priorities, reverse=True), 2)


async def test_a_complex_task_gets_more_than_15_tools_in_about_3000_tokens_and_a_simple_one_saves_1500(
    crib: Toolcrib, folder: Path
) -> None:
    groups = ["data_analysis", "document_creation", "ppt_generation"]
    wanted = {"complexity": "complex", "relevant_skill_groups": groups}

    async def answers(question: Any) -> Any:
        raise AssertionError(question)

    complex = of(crib, folder, intent=wanted, elicitor=answers)
    plain = {"complexity": "simple"}
    simple = crib.session(profile="selection", workspace=folder, key="simple", intent=plain, elicitor=answers)

    assert len(complex.tools) >= 15
    assert 2_200 <= sent(complex) <= 3_300
    assert sent(complex) - sent(simple) >= 1_500


def test_a_gateway_of_this_profile_has_them_and_others_have_none(tmp_path: Path) -> None:
    known = {
        profile: load_gateway((), {"profile": profile}, cwd=tmp_path).sources.skills
        for profile in ("selection", "flat")
    }
    assert known == {"selection": shipped_skills(), "flat": None}


@in_sandbox
async def test_a_workbook_with_formulas_and_a_chart(crib: Toolcrib, folder: Path) -> None:
    model = await made_by(crib, folder, ["data_analysis"], *follow("excel-analyzer", TITLE="Sales"))
    import openpyxl  # as in all of these: the libraries are for these tests only

    book = openpyxl.load_workbook(folder / "analysis.xlsx")
    assert list(book["Data"].iter_rows(values_only=True))[1:] == [("Jan", 10), ("Feb", 30), ("Mar", 20)]
    assert [cell.value for cell in book["Statistics"]["B"]][:2] == ["=SUM(Data!B2:B4)", "=AVERAGE(Data!B2:B4)"]
    (chart,) = cast("Any", book["Statistics"])._charts
    assert (type(chart).__name__, chart.series[0].val.numRef.f) == ("BarChart", "Data!$B$2:$B$4")
    values = openpyxl.load_workbook(folder / "analysis.xlsx", data_only=True)["Statistics"]["B"]
    assert [cell.value for cell in values] == [60, 20, 10, 30]
    assert "sum 60, mean 20" in model.seen[-1].results[-1]


@in_sandbox
async def test_a_summary_of_a_table(crib: Toolcrib, folder: Path) -> None:
    (folder / "hats.csv").write_bytes(b"kind;price\nfelt;2\nstraw;3.5\nfelt;4\nlace;n/a\n")
    steps = follow("csv-processor", SOURCE="hats.csv", GROUP="kind", VALUE="price")
    model = await made_by(crib, folder, ["data_analysis"], *steps)
    with (folder / "summary.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["kind", "count", "sum of price", "mean of price"],
            ["felt", "2", "6", "3.00"],
            ["straw", "1", "3.5", "3.50"],
        ]
    assert "1 rows without a number" in model.seen[-1].results[-1]


@in_sandbox
async def test_a_chart(crib: Toolcrib, folder: Path) -> None:
    await made_by(crib, folder, ["data_analysis"], *follow("chart-generator", TITLE="A < B", BARS={"x": 4, "y": -2}))
    from xml.etree import ElementTree  # as the other readers of these files

    svg = ElementTree.parse(folder / "chart.svg").getroot()
    bars = svg.findall("{http://www.w3.org/2000/svg}rect")
    assert svg.findtext("{http://www.w3.org/2000/svg}title") == "A < B"
    assert [(bar.get("width"), bar.get("fill")) for bar in bars] == [("400.0", "#2563eb"), ("200.0", "#dc2626")]


@in_sandbox
async def test_a_document(crib: Toolcrib, folder: Path) -> None:
    await made_by(crib, folder, ["document_creation"], *follow("document-writer", TITLE="Hats"))
    from docx import Document

    document = Document(str(folder / "report.docx"))
    assert [(part.style.name, part.text) for part in document.paragraphs if part.style] == [
        ("Title", "Hats"),
        ("Heading 1", "Summary"),
        ("Normal", "What was found."),
        ("List Bullet", "One"),
        ("List Bullet", "Two"),
    ]
    (table,) = document.tables
    assert [[cell.text for cell in row.cells] for row in table.rows] == [["Item", "Number"], ["Hats", "3"]]


@in_sandbox
async def test_slides_with_notes_and_a_chart(crib: Toolcrib, folder: Path) -> None:
    await made_by(crib, folder, ["ppt_generation"], *follow("ppt-generator"))
    from pptx import Presentation

    cover, points, chart = cast("Any", Presentation(str(folder / "slides.pptx"))).slides
    assert [slide.shapes.title.text for slide in (cover, points, chart) if slide.shapes.title] == [
        "Quarterly review",
        "Sales grew in the north",
        "The north carries the growth",
    ]
    assert [part.text for part in points.placeholders[1].text_frame.paragraphs] == [
        "North +12 %",
        "South unchanged",
    ]
    assert points.notes_slide.notes_text_frame and points.notes_slide.notes_text_frame.text == "Thank the north."
    (drawn,) = [shape.chart for shape in chart.shapes if shape.has_chart]
    assert (list(drawn.plots[0].categories), list(drawn.plots[0].series[0].values)) == (["North", "South"], [12, 7])


@in_sandbox
async def test_the_output_of_code_is_seen_as_progress_by_an_agent_and_over_mcp(crib: Toolcrib, folder: Path) -> None:
    heard: list[Any] = []
    model = ScriptedModel(calls("code_execution", code=COUNT), "Done.")
    async with of(crib, folder) as session:
        intent = {"required_tools": ["code_execution"]}
        await Agent(model, session).run("Count.", intent=intent, on_event=heard.append)
        result = await session.call("code_execution", {"code": "1 + 1"})
    updates = [event.update for event in heard if isinstance(event, CallProgress)]
    assert [update.chunk.strip() for update in updates if isinstance(update, Output)] == ["one", "two", "42"]
    assert (result.meta["invocation"], "2" in result.text) == ("STREAMING", True)

    async with client(crib, "selection", is_modern=False) as one:
        await one.call("select_tools", {"names": ["code_execution"]})
        params = {"name": "code_execution", "arguments": {"code": COUNT}, "_meta": {"progressToken": 7}}
        answer = await one.ask("tools/call", params)
        assert (one.told.count("notifications/progress"), "42" in answer["content"][0]["text"]) == (3, True)


@in_sandbox
async def test_code_in_a_pipeline_gets_what_a_tool_returned(crib: Toolcrib, folder: Path) -> None:
    steps = [
        {"id": "count", "tool": "count_text", "params": {"text": "one two three"}},
        {"id": "double", "code": "params['words'] * 2", "params": {"words": {"$from": "$.steps.count.words"}}},
        {"id": "how", "skill": "summarize"},
    ]
    async with of(crib, folder, intent={"required_tools": ["pipeline"]}) as session:
        pipeline = {"name": "double", "steps": steps}
        result = await session.call("pipeline", {"action": "define_and_run", "pipeline": pipeline})
        output = json.loads(await whole(session, result))
    assert (output["double"], output["how"]["name"]) == ("6", "summarize")


async def test_a_summary_names_the_lines_of_its_sources(crib: Toolcrib, folder: Path) -> None:
    (folder / "minutes.md").write_text("# Minutes\n\nWe order hats on Mondays.\n")

    def write(seen: Seen) -> Reply:
        skill, source = seen.results[-2:]
        assert "Mondays" in source
        found = re.search(r"```markdown\n(.*?)```", skill, re.DOTALL)
        assert found
        text = found[1].replace("WHAT IT IS OF", "the minutes")
        text = text.replace("A SENTENCE OF YOUR OWN (`file.md`, lines 3-9)", "Hats: Mondays (`minutes.md`, line 3)")
        return calls("write_file", path="summary.md", content=text)

    steps = (calls("summarize"), calls("read_file", path="minutes.md"), write)
    await made_by(crib, folder, ["document_creation"], *steps)
    text = (folder / "summary.md").read_text()
    assert (text.splitlines()[0], "- Hats: Mondays (`minutes.md`, line 3)" in text) == ("# Summary: the minutes", True)


async def test_arguments_in_the_shapes_of_the_original_are_taken(crib: Toolcrib, folder: Path) -> None:
    asked: list[str] = []

    async def answers(question: Clarification) -> str:
        asked.append(question.question)
        return "b, a" if "several" in question.question else "a"

    options = ["a", "b"]
    questions = [
        {"id": "x", "label": "Which?", "type": "single_choice", "options": options},
        {"id": "y", "label": "Which of them?", "type": "multiple_choice", "options": options},
        {"id": "z", "label": "And?", "type": "single_choice", "options": ["c"], "required": False, "default": "c"},
    ]
    session = of(crib, folder, elicitor=answers)
    form = await session.call("hitl", {"title": "Before I begin", "type": "form", "questions": questions})
    assert of_result(form)["answers"] == {"x": "a", "y": ["b", "a"], "z": "c"}

    todos = [{"id": "t1", "title": "Look", "content": "at all"}, {"title": "Write", "status": "in_progress"}]
    made = await session.call("plan", {"action": "create", "name": "Work", "todos": todos})
    steps = [(one["id"], one["description"], one["status"]) for one in of_result(made)["steps"]]
    assert steps == [("t1", "Look: at all", "pending"), ("s1", "Write", "in_progress")]
    done = await session.call("plan", {"action": "update", "todo_id": "t1", "status": "completed"})
    assert of_result(done)["done"] == 1
