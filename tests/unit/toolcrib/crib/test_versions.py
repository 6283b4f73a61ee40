"""Several versions of one tool: who has which, what is shown of them, and whose arguments are migrated."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib import Toolcrib, tool
from toolcrib.config import bare, load
from toolcrib.core.events import CatalogChanged
from toolcrib.core.permission import Answer, Question
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.errors import UsageError


@tool(name="weather", version="1", kind="read")
def weather_1(city: str) -> str:
    """Tell the weather of a city."""
    return f"1: {city}"


@tool(name="weather", version="2.0", kind="read")
def weather_2(place: str, unit: str = "C") -> str:
    """Tell the weather of a place."""
    return f"2: {place} in {unit}"


@tool(
    name="weather",
    version="10",
    kind="read",
    migrations={"2.0": {"rename": {"place": "where"}, "set": {"days": 3}, "drop": ["unit"]}},
)
def weather_10(where: str, days: int) -> str:
    """Tell the weather of the next days."""
    return f"10: {where} for {days} days"


@tool(name="rain", kind="read", deprecated="the service closes", replaced_by="weather")
def rain(where: str) -> str:
    """Tell the weather where it rains."""
    return f"rain in {where}"


def told(result: ToolResult) -> str:
    return result.text if result.error is None else f"{result.error.code}: {result.error.message}"


async def test_a_session_that_pins_nothing_has_the_newest_version_and_sees_the_tool_once() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_10, weather_1, weather_2)
        session = crib.session()
        assert [shown.version for shown in session.tools if shown.name == "weather"] == ["10"]
        assert told(await session.call("weather", {"where": "Oslo", "days": 2})) == "10: Oslo for 2 days"
        assert [older.version for older in crib.catalog.tools["weather"].older] == ["2.0", "1"]


@pytest.mark.parametrize("profile", ["adaptive", "tiered", "gateway", "flat", "introspection", "selection"])
async def test_a_pinned_session_sees_validates_and_runs_its_version_in_every_profile(profile: str) -> None:
    async with Toolcrib() as crib:
        crib.add(weather_1, weather_2)
        pinned = crib.session(profile=profile, versions={"weather": "1"})
        (known,) = [one for one in pinned.visible.tools() if one.name == "weather"]
        assert (known.version, list(known.input_schema["properties"])) == ("1", ["city"])
        for asked, follows in ((pinned, False), (crib.session(profile=profile), True)):
            asked.begin(tools=["weather"])
            right, wrong = ({"place": "Oslo"}, {"city": "Oslo"}) if follows else ({"city": "Oslo"}, {"place": "Oslo"})
            assert ("2: Oslo in C" if follows else "1: Oslo") in told(await asked.call("weather", right))
            assert (await asked.call("weather", wrong)).is_error


async def test_a_verb_and_several_calls_at_once_reach_the_pinned_version() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_1, weather_2)
        session = crib.session(versions={"weather": "1"})
        answers = await session.call_many(
            [
                ("call_tool_readonly", {"name": "weather", "arguments": {"city": "Bergen"}}),
                ("weather", {"city": "Oslo"}),
            ]
        )
        assert [told(answer) for answer in answers] == ["1: Bergen", "1: Oslo"]


async def test_arguments_of_a_version_that_is_gone_are_migrated_and_the_record_says_so() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_10)
        session = crib.session(versions={"weather": "2.0"})
        result = await session.call("weather", {"place": "Oslo", "unit": "F"})
        assert told(result) == "10: Oslo for 3 days"
        assert result.meta["version"] == {"ran": "10", "migrated_from": "2.0"}
        (row,) = await crib.store.calls.list(tool="weather")
        assert (row.requested, row.arguments) == ("weather@2.0", '{"where":"Oslo","days":3}')
        assert told(await session.call("weather", {"where": "Rome", "days": 1})) == "10: Rome for 1 days"


async def test_a_pin_that_nothing_answers_to_withholds_the_tool_from_that_session_alone() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_1, weather_2, rain)
        pinned = crib.session(versions={"weather": "7"})
        assert "weather" not in [shown.name for shown in pinned.tools]
        refused = await pinned.call("weather", {"city": "Oslo"})
        assert told(refused) == ("not_found: version 7 of weather is pinned and not there: there is 2.0, 1")
        assert crib.explainer.why("weather", pinned).verdict == "refused"
        assert crib.explainer.why("weather", crib.session()).version == "2.0"


async def test_a_pin_follows_the_tool_as_versions_come_and_go() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_2)
        session = crib.session(versions={"weather": "2.0"})
        assert told(await session.call("weather", {"place": "Oslo"})) == "2: Oslo in C"
        crib.add(weather_10)
        assert told(await session.call("weather", {"place": "Oslo"})) == "2: Oslo in C"
        again = crib.session(key=session.state.key, versions={"weather": ""})
        assert told(await again.call("weather", {"where": "Oslo", "days": 1})) == "10: Oslo for 1 days"


async def test_the_configuration_pins_for_every_session_that_does_not_pin_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.yaml"
    file.write_text("versions: {weather: '1'}\nbuiltins: false\n")
    async with Toolcrib(load([file]), memory=True) as crib:
        crib.add(weather_1, weather_2)
        assert told(await crib.session().call("weather", {"city": "Oslo"})) == "1: Oslo"
        other = crib.session(versions={"weather": "2.0"})
        assert told(await other.call("weather", {"place": "Oslo"})) == "2: Oslo in C"


async def test_deprecation_is_in_the_description_the_order_of_a_search_why_and_the_result() -> None:
    async with Toolcrib() as crib:
        crib.add(rain, weather_1)
        session = crib.session()
        shown = crib.catalog.tools["rain"]
        assert shown.description == (
            "(Deprecated, use weather) Tell the weather where it rains.\n\nDeprecated: the service closes"
        )
        assert [hit.name for hit in crib.catalog.search("tell the weather", 2)] == ["weather", "rain"]
        assert crib.explainer.why("rain", session).deprecated == "the service closes; use weather"
        result = await session.call("rain", {"where": "Oslo"})
        assert result.meta["version"] == {"deprecated": "the service closes", "replaced_by": "weather"}


async def test_a_deprecated_version_leaves_the_name_to_an_older_one_that_is_not() -> None:
    @tool(name="weather", version="3", kind="read", deprecated="it was a mistake")
    def weather_3(sky: str) -> str:
        return f"3: {sky}"

    async with Toolcrib() as crib:
        crib.add(weather_3, weather_1)
        assert crib.catalog.tools["weather"].version == "1"
        pinned = crib.session(versions={"weather": "3"})
        assert told(await pinned.call("weather", {"sky": "blue"})) == "3: blue"


async def test_a_call_that_waits_for_approval_runs_the_version_that_it_was_made_for() -> None:
    seen: list[Mapping[str, Any]] = []

    @tool(name="send", version="2", kind="destructive", migrations={"1": lambda given: {"to": f"<{given['whom']}>"}})
    def send(to: str) -> str:
        seen.append({"to": to})
        return f"sent to {to}"

    async def yes(question: Question) -> Answer:
        return Answer(verdict="yes", by="test")

    async with Toolcrib() as crib:
        crib.add(send)
        session = crib.session(versions={"send": "1"}, approver=yes)
        assert told(await session.call("send", {"whom": "Ada"})) == "sent to <Ada>"
        definition = crib.views.visible(session.state).catalog.tools["send"].digest.hex()
        saved = SavedCall(
            id=crib.calls.next_id(),
            name="send",
            arguments={"to": "<Ada>"},
            session=SavedCall.from_json(_saved(session.state.key, definition)).session,
            definition=definition,
            migrated="1",
        )
        assert told(await crib.parts.saved_calls.make(saved)) == "sent to <Ada>"
        assert seen == [{"to": "<Ada>"}, {"to": "<Ada>"}]


def _saved(key: str, definition: str) -> dict[str, Any]:
    session = {"key": key, "principal": "local", "versions": {"send": "1"}}
    return {"id": "x", "name": "send", "arguments": {}, "session": session, "definition": definition}


@pytest.mark.process
async def test_a_yaml_catalog_may_hold_several_versions_of_a_tool(tmp_path: Path) -> None:
    entry = "  - name: greet\n    version: '{0}'\n    description: Greet somebody.\n    kind: read\n"
    entry += "    implementation: {{command: [echo, '{0} {{{1}}}']}}\n"
    entry += "    input_schema: {{properties: {{{1}: {{type: string}}}}, required: [{1}]}}\n"
    last = "    migrations: {'0': {rename: {who: name}}}\n"
    file = tmp_path / "capabilities.yaml"
    file.write_text("capabilities:\n" + entry.format("1", "person") + entry.format("2", "name") + last)
    async with Toolcrib(bare(), memory=True) as crib:
        await crib.load(file)
        assert not crib.problems
        spoken = [
            (await crib.session(versions={"greet": version}).call("greet", {name: "Ada"})).text.strip()
            for version, name in (("", "name"), ("1", "person"), ("0", "who"))
        ]
        assert spoken == ["2 Ada", "1 Ada", "2 Ada"]


def _anywhere(where: str) -> str:
    return where


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"replaced_by": "other"}, "with the reason"),
        ({"migrations": {"1": {"rename": {"where": "city"}}}}, "where is still an argument"),
        ({"migrations": {"1": {"rename": {"old": "city"}}}}, "'city'"),
        ({"migrations": {"1": {"renamed": {}}}}, "'renamed'"),
        ({"migrations": {"1": 5}}, "neither a mapping"),
        ({"version": 1}, r"version=1\): takes a text"),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_its_place(options: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Toolcrib().add(tool(name="w", **options)(_anywhere))


async def test_two_functions_of_one_name_and_version_are_refused() -> None:
    crib = Toolcrib()
    crib.add(weather_1)
    with pytest.raises(UsageError, match="'weather' of version 1 already"):
        crib.add(tool(name="weather", version="1")(_anywhere))


async def test_a_pin_that_is_no_text_is_refused() -> None:
    given: Any = {"weather": 1}
    async with Toolcrib() as crib:
        with pytest.raises(UsageError, match=r"versions\.weather: a version is a text, not 1"):
            crib.session(versions=given)


async def test_functions_that_come_and_go_one_by_one_are_told_one_by_one() -> None:
    changes: list[CatalogChanged] = []
    async with Toolcrib() as crib:
        crib.tools.on_change(changes.append)
        crib.add(weather_1)
        crib.add(rain)
        crib.add(weather_2)
        assert [(one.added, one.removed, one.changed) for one in changes] == [
            (("weather",), (), ()),
            (("rain",), (), ()),
            ((), (), ("weather",)),
        ]
        assert changes[-1].version == crib.catalog.version
        assert [listed.name for listed in crib.tools.listed("python")] == ["weather", "rain"]


async def test_a_call_may_pin_its_version_whatever_its_session_does() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_1, weather_2)
        follows, pinned = crib.session(), crib.session(versions={"weather": "1"})
        answers = [
            await follows.call("weather", {"city": "Oslo"}, version="1"),
            await follows.call("call_tool", {"name": "weather", "arguments": {"city": "Oslo"}}, version="1"),
            await pinned.call("weather", {"place": "Oslo"}, version="2.0"),
            await follows.call("weather", {"place": "Oslo"}),
            await pinned.call("weather", {"city": "Oslo"}),
        ]
        assert [told(answer) for answer in answers] == ["1: Oslo", "1: Oslo", "2: Oslo in C", "2: Oslo in C", "1: Oslo"]


async def test_a_call_that_pins_an_older_version_has_its_arguments_migrated() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_10)
        result = await crib.session().call("weather", {"place": "Oslo"}, version="2.0")
        assert (told(result), result.meta["version"]) == ("10: Oslo for 3 days", {"ran": "10", "migrated_from": "2.0"})
        (row,) = await crib.store.calls.list(tool="weather")
        assert row.requested == "weather@2.0"


async def test_a_call_of_a_version_that_is_not_there_or_of_what_has_none_is_refused() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_1, weather_2)
        session = crib.session()
        unknown = await session.call("weather", {"city": "Oslo"}, version="7")
        verb = await session.call("search_tools", {"query": "weather"}, version="1")
        hidden = await crib.session(allowed_tools=[]).call("weather", {"city": "Oslo"}, version="7")
        assert told(unknown) == "not_found: version 7 of weather is pinned and not there: there is 2.0, 1"
        assert told(verb) == "invalid_arguments: search_tools has no versions"
        assert hidden.error is not None
        assert hidden.error.code == "not_in_scope"


async def test_a_call_that_pins_its_version_is_made_again_as_that_version() -> None:
    async with Toolcrib() as crib:
        crib.add(weather_1, weather_2)
        session = crib.session()
        job = await session.call("weather", {"city": "Oslo"}, version="1", background=True)
        with anyio.fail_after(PATIENCE):
            done = await crib.jobs.result(job.meta["job"], "local")
        pinned = crib.views.visible(session.state, "weather", "1").catalog.tools["weather"]
        saved = SavedCall(
            id=crib.calls.next_id(),
            name="weather",
            arguments={"city": "Oslo"},
            session=SavedSession.of(session.state),
            definition=pinned.digest.hex(),
            version="1",
        )
        assert [told(done), told(await crib.parts.saved_calls.make(SavedCall.from_json(saved.to_json())))] == [
            "1: Oslo",
            "1: Oslo",
        ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"versions": 3},
        {"allowed_tools": ["look*"]},
        {"rules": {"deny": ["look("]}},
        {"available": {"gpu": True}},
        {"tools": ["gone"]},
        {"intent": 3},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_options_that_are_refused_change_nothing_of_a_session_that_goes_on(wrong: dict[str, Any]) -> None:
    async with Toolcrib(memory=True) as crib:
        session = crib.session(key="one", user="anna", contexts=["day"])

        with pytest.raises(UsageError):
            crib.session(
                key="one", user="bert", instance="other", contexts=["night"], context={"city": "Rome"}, **wrong
            )

        state = session.state
        assert (state.user, state.instance, state.scope.contexts, dict(state.defaults)) == (
            "anna",
            "",
            frozenset({"day"}),
            {},
        )
