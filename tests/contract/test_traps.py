"""The traps that the five originals fell into (F5 of the shared cases), each laid for every profile.

Laid elsewhere: parameters without effect, the core, names of verbs (`test_strategies`), discovery that goes beyond the
scope, what is not loaded (`test_disclosure`), two entries of one name and gates that fail open (`test_profile_runs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import anyio
import pytest
from msgspec.structs import replace

from contract.readers import everything_said
from contract.seats import PROFILES, Seat, at
from contract.workshop import Note, opened
from rig import PATIENCE, ROOT
from seeds.rigging import catalog_of, names
from seeds.selection_skills import GROUPS, skills_of
from toolcrib.core.permission import Answer, Question
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Limits
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session
from toolcrib.disclosure.meta_tools import RESERVED
from toolcrib.telemetry.tokens import definition_text, estimate
from toolcrib.testing import RecordingApprover, ScriptedSource

per_profile = pytest.mark.parametrize("profile", PROFILES)

CATALOGS: Final = ("builtin", "gateway", "selection")
FORMATS: Final = ("anthropic", "openai", "openai-responses", "gemini", "mcp")
PORTABLE: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""Names that every API takes."""


def of(seat: Seat) -> Session:
    assert seat.session is not None
    return seat.session


# What is taught


@pytest.mark.parametrize("catalog", CATALOGS)
@per_profile
async def test_every_verb_that_a_prompt_or_an_answer_names_can_be_called(profile: str, catalog: str) -> None:
    async with catalog_of(catalog) as crib:
        session = crib.session(profile=profile)
        said = await everything_said(session, list(crib.catalog.tools)[:5])
        named = {name for name in RESERVED if re.search(rf"\b{name}\b", said)} - set(crib.catalog.tools)
        results = {name: await session.call(name, {"wrong": 1}) for name in sorted(named)}
        codes = {name: result.error.code if result.error else "ok" for name, result in results.items()}
        own = set(session.visible.profile.verbs.values())
        assert {name: code for name, code in codes.items() if name not in own or code == "not_in_scope"} == {}


@per_profile
async def test_what_a_document_says_of_a_profile_names_only_verbs_that_it_has(profile: str) -> None:
    page = ROOT / "docs" / "reference" / "profiles" / f"{profile}.md"
    if profile == "adaptive":  # the default: the guides are its page
        return
    async with opened() as (crib, _):
        every = {name for one in crib.profiles.values() for name in one.verbs.values()}
        own = set(crib.profiles[profile].verbs.values())
        calls = set(re.findall(r"`(\w+)\(", page.read_text(encoding="utf-8")))
        assert (calls & every) - own == set()


@pytest.mark.parametrize("catalog", CATALOGS)
async def test_every_category_that_is_listed_can_be_opened(catalog: str) -> None:
    async with catalog_of(catalog) as crib:
        tiered, other = crib.session(profile="tiered"), crib.session(profile="introspection")
        for category in (await tiered.call("browse_tools")).structured_content["categories"]:
            loaded = (await tiered.call("load_tools", {"category": category["name"]})).structured_content
            assert len(loaded["tools_added"]) == category["tool_count"] > 0
        for category in (await other.call("list_tools")).structured_content["categories"]:
            listed = (await other.call("list_tools", {"category": category["name"]})).structured_content
            assert len(listed["tools"]) == category["tool_count"] > 0


@per_profile
async def test_a_skill_that_is_called_as_a_tool_is_carried_out_or_explained(profile: str, tmp_path: Path) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        skills = skills_of(tmp_path, ["weather", "slack"], GROUPS)
        await crib.tools.mount_source(skills, prefix=False, trusted=True)
        await skills.ready()
        reply = await seat.use("weather")
        assert "weather" in reply.text
        if profile == "selection":
            assert (reply.code, "How to do weather" in reply.text) == ("ok", True)
        else:
            assert (reply.code, "SKILL.md" in reply.text) == ("not_loaded", True)


# What is shown


@per_profile
async def test_what_is_shown_does_not_grow_with_the_catalog(profile: str) -> None:
    async with opened() as (crib, _):
        before = _shown(crib.session(profile=profile))
        more = {f"turn_knob_{number}": turned for number in range(300)}
        await crib.tools.mount_source(ScriptedSource("knobs", more), prefix=False, trusted=True)
        grown = _shown(crib.session(profile=profile)) - before
        assert grown > 1000 if profile == "flat" else grown < 30


def _shown(session: Session) -> int:
    return sum(estimate(definition_text(tool)) for tool in session.tools) + estimate(session.instructions)


async def turned(arguments: Mapping[str, Any], context: object) -> ToolResult:
    return ToolResult.of_text("turned")


async def test_where_everything_fits_no_verb_of_discovery_stands_beside_the_work() -> None:
    async with catalog_of("selection") as crib:
        shown = names(crib.session(profile="adaptive"))
        assert set(shown) - set(crib.catalog.tools) <= {"read_artifact"}


@per_profile
async def test_a_list_is_never_pruned_to_nothing(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        for name in ("stumble", "dawdle", "read_note"):
            for _ in range(4):
                await seat.use(name, {"path": "nowhere"} if name == "read_note" else {})
        of(seat).begin()
        assert await seat.listed() != []
        of(seat).begin(intent={"complexity": "simple", "required_tools": ["stumble"]})
        assert await seat.listed() != []


@per_profile
async def test_a_misspelt_wish_is_a_warning_and_no_silent_nothing(profile: str) -> None:
    async with opened() as (crib, _):
        session = crib.session(
            profile=profile, intent={"required_capability": ["talk"]}, plan={"required_skills": ["x"]}
        )
        warnings = " ".join(session.selection.warnings)
        assert ("required_capabilities" in warnings, "'x'" in warnings) == (True, True)


ODD: Final = Tool(
    name="paint",
    local_name="paint",
    source="painters",
    description="Paint something.",
    input_schema={
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "blue", None]},
            "layers": {"type": "array"},
            "spots": {"type": "array", "items": {"type": "object", "properties": {"at": {"type": "array"}}}},
        },
    },
    annotations=Annotations(read_only=True, destructive=False),
    core=True,
)


async def painted(arguments: Mapping[str, Any], context: object) -> ToolResult:
    return ToolResult.of_text(f"painted {arguments.get('colour')}")


@per_profile
async def test_definitions_are_such_as_the_apis_take_and_the_tool_keeps_its_own_schema(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        tools = [ODD, replace(ODD, name="art:mix colours", local_name="art:mix colours")]
        source = ScriptedSource("painters", {tool.local_name: painted for tool in tools}, listed=tools)
        await crib.tools.mount_source(source, trusted=True)
        listing = of(seat).listing
        for format in FORMATS:
            shown = list(of(seat).definitions(format))
            assert [name for name in _names(shown) if not PORTABLE.fullmatch(name)] == [], format
            assert len(_names(shown)) == len(await seat.listed()), format
            if format == "gemini":
                assert [node for node in _nodes(shown) if None in node.get("enum", ())] == []
                assert [node for node in _nodes(shown) if _is_array(node) and "items" not in node] == []
            assert of(seat).listing == listing, f"the form of {format} changed that of another"
        assert (await seat.use("painters__paint", {"colour": None})).value == "painted None"
        assert (await seat.use("painters__paint", {"colour": "mauve"})).code == "invalid_arguments"


def _names(shown: list[Any]) -> list[str]:
    found: list[str] = []
    for node in shown:
        found += _names(node["function_declarations"]) if "function_declarations" in node else []
        found += [node["function"]["name"]] if "function" in node else [node["name"]] if "name" in node else []
    return found


def _nodes(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [node for one in cast("list[Any]", value) for node in _nodes(one)]
    if not isinstance(value, dict):
        return []
    node = cast("dict[str, Any]", value)
    return [node, *(inner for one in node.values() for inner in _nodes(one))]


def _is_array(node: Mapping[str, Any]) -> bool:
    return str(node.get("type", "")).lower() == "array"


# What comes back


@per_profile
async def test_a_tool_whose_answer_changes_is_asked_anew_each_time(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        first = await seat.use("read_note", {"path": "plan"})
        again = await seat.use("read_note", {"path": "plan"})
        world.notes["plan"] = Note(text="two", owner=None)
        assert (first.value["text"], again.value["text"]) == ("one", "one")
        assert (await seat.use("read_note", {"path": "plan"})).value["text"] == "two"
        assert world.reached == ["read_note"] * 3


@per_profile
async def test_found_lines_are_cut_between_lines_from_the_first_on(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        reply = await seat.use("find_lines")
        text = reply.value
        assert isinstance(text, str)
        found = [line for line in text.splitlines() if line.startswith("plan:")]
        assert found == [f"plan:{number}: the line that was looked for" for number in range(len(found))]
        assert 10 < len(found) < 3000


@per_profile
async def test_what_was_cut_is_not_cut_again_and_a_page_that_was_asked_for_comes_whole(profile: str) -> None:
    async with opened(limits=Limits(result_tokens=2000)) as (crib, _), at(crib, profile) as seat:
        await seat.reach("flood")
        result = await of(seat).call(*await seat.way("flood"))
        whole = await of(seat).recover(result.meta["artifact"])
        page = await seat.use("read_artifact", {"id": result.meta["artifact"], "offset": 5, "limit": 6000})
        assert page.value == f"{whole[5:6005]}\n[bytes 5-6005 of {len(whole)}; next offset 6005]"


@per_profile
async def test_what_is_counted_is_what_the_model_got(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        await seat.use("flood")
        (row,) = await crib.store.calls.list(tool="flood")
        assert row.result_bytes <= of(seat).state.result_tokens * 4 + 2000


# Who may


CANNOT_RUN: Final[Mapping[str, tuple[str, Any]]] = {
    "no JSON": ("erase_everything", "not JSON"),
    "an argument too many": ("erase_everything", {"all": True}),
    "an argument missing": ("erase_note", {}),
    "no such tool": ("zzqx", {}),
    "switched off": ("open_drawer_1", {}),
}


@per_profile
async def test_nobody_is_asked_for_a_call_that_cannot_run(profile: str) -> None:
    approver = RecordingApprover("yes")
    async with opened(rules={"ask": ("*",)}) as (crib, world), at(crib, profile, mode="manual") as seat:
        crib.tools.disable("open_drawer_1")
        of(seat).state.approvals.approver = approver
        for why, (tool, arguments) in CANNOT_RUN.items():
            await seat.reach(tool)
            asked = len(approver.questions)  # for what loads tools: it was told to ask for everything
            reply = await seat.ask(*await seat.way(tool, arguments))
            assert (why, reply.is_error) == (why, True)
            assert (why, [question.tool.name for question in approver.questions[asked:]]) == (why, [])
        assert world.reached == []


@per_profile
async def test_nobody_is_asked_any_more_when_the_caller_has_left(profile: str) -> None:
    asked: list[str] = []
    begun = anyio.Event()

    async def slow(question: Question) -> Answer:
        asked.append(question.tool.name)
        begun.set()
        await anyio.sleep_forever()
        return Answer(verdict="yes")

    async with opened() as (crib, world), at(crib, profile, mode="cautious") as seat:
        await seat.reach("write_note", "erase_note")
        of(seat).state.approvals.approver = slow
        calls = [await seat.way(tool, {"path": "plan"}) for tool in ("write_note", "erase_note", "erase_note")]
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(of(seat).call_many, calls)
                await begun.wait()
                leaving.cancel_scope.cancel()
        assert (len(asked), world.reached) == (1, [])


@per_profile
async def test_a_rule_speaks_for_the_tool_that_it_names_and_for_no_other(profile: str) -> None:
    rules = ("note", "write", "write_not", "erase_note", "write_note(path=b)", "write_note(path=ab)")
    async with opened(rules={"allow": rules}) as (crib, world), at(crib, profile, mode="cautious") as seat:
        assert (await seat.use("write_note", {"path": "a"})).code == "denied"
        assert world.reached == []


@per_profile
async def test_a_model_cannot_widen_what_it_may_by_what_it_says(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile, mode="cautious") as seat:
        wishes = {"mode": "autonomous", "approval": "never", "grant": "yes", "approved": True, "allow": ["*"]}
        await seat.reach("write_note")
        name, arguments = await seat.way("write_note", {"path": "a"})
        await seat.ask(name, {**arguments, **wishes})
        await seat.ask(*await seat.way("write_note", {"path": "a", **wishes}))
        assert (await seat.use("write_note", {"path": "a"})).code == "denied"
        assert (world.reached, of(seat).state.mode, of(seat).state.approvals.remembered) == ([], "cautious", {})
