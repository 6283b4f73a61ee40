"""A session as a toolset of Pydantic AI, with the real framework and a model whose answers stand in the test."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    RunContext,
    TextPart,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
    ToolReturnPart,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolcrib import Answer, Session, Toolcrib, ToolFailure, ToolResult, UsageError, defer_approval, tool
from toolcrib.config import Settings, bare
from toolcrib.integrations.pydantic_ai import ToolcribToolset, answered, questions
from toolcrib.testing import RecordingApprover

Calls = Sequence[tuple[str, Any]]


class Script:
    """A model that makes the calls of each turn and then says "done"; keeps what it was shown and told."""

    def __init__(self, *turns: Calls) -> None:
        self._turns = list(turns)
        self.shown: list[tuple[str, ...]] = []
        self.infos: list[AgentInfo] = []
        self.told: list[ToolReturnPart] = []

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self._answer)

    @property
    def texts(self) -> list[str]:
        return [str(part.content) for part in self.told]

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.infos.append(info)
        self.shown.append(tuple(tool.name for tool in info.function_tools))
        self.told = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        turn = self._turns.pop(0) if self._turns else ()
        number = len(self.shown)
        calls = [ToolCallPart(name, args, tool_call_id=f"c{number}.{at}") for at, (name, args) in enumerate(turn)]
        return ModelResponse(parts=calls or [TextPart("done")])


class Shop:
    """Three tools, what they were called with, and how often they failed."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.begun = anyio.Event()
        self.ended: list[str] = []

    @tool(kind="read")
    async def look(self, at: str) -> str:
        """Look at a thing."""
        self.ran.append(f"look {at}")
        if at == "nothing":
            raise ToolFailure("tool_error", "there is nothing", hint="look at the shelf")
        if at == "forever":
            self.begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.ended.append(at)
        return f"seen {at}"

    @tool(kind="write", category="till")
    async def sell(self, what: str, price: int = 1) -> dict[str, Any]:
        """Sell a thing."""
        self.ran.append(f"sell {what} {price}")
        return {"sold": what, "price": price}

    @tool(kind="read", serial=True, category="pictures")
    async def picture(self) -> ToolResult:
        """Take a picture."""
        image = {"type": "image", "data": base64.b64encode(b"png").decode(), "mimeType": "image/png"}
        return ToolResult(content=({"type": "text", "text": "the shelf"}, image))


@asynccontextmanager
async def opened(shop: Shop, settings: Settings | None = None, *, memory: bool = True) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(settings or bare(), memory=memory) as crib:
        crib.add(shop)
        yield crib


def many(count: int) -> list[Callable[..., Any]]:
    def make(number: int) -> Callable[..., Any]:
        def run(x: int) -> int:
            return x + number

        return tool(name=f"shift_{number}", kind="read", description=f"Shift by {number} places.")(run)

    return [make(number) for number in range(count)]


async def test_a_tool_is_shown_and_called_and_the_application_sees_more_than_the_model() -> None:
    script, shop = Script([("sell", {"what": "tea"}), ("picture", {})]), Shop()
    async with opened(shop) as crib:
        session = crib.session(mode="autonomous")
        run = await Agent(script.model, toolsets=[ToolcribToolset(session)]).run("go")

    shown = script.infos[0].function_tools
    assert [(one.name, one.description, one.sequential, one.metadata) for one in shown[:2]] == [
        ("look", "Look at a thing.", False, {"toolcrib": _about("read")}),
        ("picture", "Take a picture.", True, {"toolcrib": _about("read", "pictures")}),
    ]
    sold, picture = script.told
    assert (run.output, shop.ran, sold.content) == ("done", ["sell tea 1"], '{"sold":"tea","price":1}')
    assert sold.metadata["structured_content"] == {"sold": "tea", "price": 1}
    assert sold.metadata["meta"]["rule"] == "mode autonomous: a write tool is allowed"
    assert picture.content == ["the shelf", BinaryContent(data=b"png", media_type="image/png")]
    kept = run.all_messages_json()
    assert ModelMessagesTypeAdapter.dump_json(ModelMessagesTypeAdapter.validate_json(kept)) == kept


def _about(kind: str, category: str = "") -> dict[str, Any]:
    return {"source": "python", "category": category, "kind": kind, "tags": []}


async def test_what_fails_takes_nothing_from_the_retries_of_the_agent() -> None:
    wrong: list[Calls] = [[("look", {"at": "nothing"})] for _ in range(4)]
    script = Script(*wrong, [("look", {"att": 1})], [("look", json.dumps('{"at": "shelf"}'))], [("look", "no json")])
    async with opened(Shop()) as crib:
        run = await Agent(script.model, toolsets=[ToolcribToolset(crib.session())], retries=0).run("go")

    assert run.output == "done"
    assert script.texts[:4] == ["tool_error: there is nothing\nlook at the shelf"] * 4
    assert [text.partition(":")[0] for text in script.texts[4:]] == [
        "invalid_arguments",
        "seen shelf",
        "invalid_arguments",
    ]
    assert [part.outcome for part in script.told] == [*["failed"] * 5, "success", "failed"]


async def test_each_step_shows_what_the_session_shows_then() -> None:
    script = Script([("search_tools", {"query": "shift by 7 places", "limit": 1})], [("shift_7", {"x": 1})])
    async with opened(Shop()) as crib:
        crib.add(many(80))
        session = crib.session()
        agent = Agent(script.model, instructions="Be brief.", toolsets=[ToolcribToolset(session)])
        await agent.run("go")
        verbs = ("search_tools", "describe_tools", "call_tool", "call_tool_readonly", "read_artifact")

        assert script.shown == [verbs, (*verbs, "shift_7"), (*verbs, "shift_7")]
        assert script.infos[0].instructions == f"Be brief.\n\n{session.instructions}"
        assert script.texts[-1] == "8"


async def test_instructions_and_tools_are_those_of_the_moment() -> None:
    async with opened(Shop()) as crib:

        @tool(kind="read")
        def grow() -> str:
            """Add eighty tools."""
            crib.add(many(80))
            return "grown"

        crib.add(grow)
        script = Script([("grow", {})])
        await Agent(script.model, toolsets=[ToolcribToolset(crib.session())]).run("go")

    assert [info.instructions is None for info in script.infos] == [True, False]
    assert ["search_tools" in shown for shown in script.shown] == [False, True]


async def test_a_model_that_goes_round_in_circles_is_told() -> None:
    script, shop = Script(*[[("look", {"at": "shelf"})] for _ in range(4)]), Shop()
    async with opened(shop) as crib:
        await Agent(script.model, toolsets=[ToolcribToolset(crib.session(profile="flat"))]).run("go")

    assert shop.ran == ["look shelf"] * 3
    assert script.texts[3].startswith("look did not run: the same call ")


async def test_it_can_be_wrapped_as_any_toolset() -> None:
    script, shop = Script([("shop_look", {"at": "shelf"})]), Shop()
    async with opened(shop) as crib:
        toolset = ToolcribToolset(crib.session())
        wrapped = toolset.filtered(lambda ctx, one: (one.metadata or {})["toolcrib"]["kind"] == "read").prefixed("shop")
        await Agent(script.model, toolsets=[wrapped]).run("go")

    assert script.shown[0] == ("shop_look", "shop_picture", "shop_read_artifact")
    assert (script.texts, shop.ran) == (["seen shelf"], ["look shelf"])


async def test_a_run_with_a_prompt_begins_an_interaction_and_one_with_answers_goes_on() -> None:
    script = Script([("load_tools", {"category": "till"})], [("sell", {"what": "tea"})])
    async with opened(Shop()) as crib:
        session = crib.session(profile="tiered", mode="cautious", approver=defer_approval)
        agent = Agent(script.model, toolsets=[ToolcribToolset(session)], output_type=[str, DeferredToolRequests])
        stopped = await agent.run("go")
        assert isinstance(stopped.output, DeferredToolRequests)
        results = answered(stopped.output, {"c2.0": Answer(verdict="yes")})
        await agent.run(message_history=stopped.all_messages(), deferred_tool_results=results)

        await agent.run("something else")

    assert ["sell" in shown for shown in script.shown] == [False, True, True, False]
    assert script.texts == []


async def test_an_approver_of_the_session_is_asked_while_the_run_waits() -> None:
    script, shop = Script([("sell", {"what": "tea"}), ("sell", {"what": "cake"})]), Shop()
    approver = RecordingApprover("yes", "no")
    async with opened(shop) as crib:
        session = crib.session(mode="cautious", approver=approver)
        await Agent(script.model, toolsets=[ToolcribToolset(session)]).run("go")

    assert [question.tool.name for question in approver.questions] == ["sell", "sell"]
    assert sorted(part.outcome for part in script.told) == ["failed", "success"]
    assert len(shop.ran) == 1


@asynccontextmanager
async def paused(
    shop: Shop, script: Script, *, by_verb: bool = False
) -> AsyncGenerator[tuple[Toolcrib, Agent[object, Any], DeferredToolRequests, list[ModelMessage]]]:
    """An agent whose run has stopped to ask about its first call."""
    async with opened(shop) as crib:
        if by_verb:
            crib.add(many(80))
        session = crib.session(mode="cautious", approver=defer_approval)
        toolset = ToolcribToolset(session)
        agent = Agent(script.model, toolsets=[toolset], output_type=[str, DeferredToolRequests])
        run = await agent.run("go")
        assert isinstance(run.output, DeferredToolRequests)
        yield crib, agent, run.output, run.all_messages()


async def test_a_run_that_must_ask_stops_and_goes_on_with_the_answers() -> None:
    script, shop = Script([("sell", {"what": "tea"}), ("look", {"at": "shelf"}), ("sell", {"what": "cake"})]), Shop()
    async with paused(shop, script) as (crib, agent, requests, history):
        asked = questions(requests)
        assert {id: (one.tool, json.loads(one.arguments)) for id, one in asked.items()} == {
            "c1.0": ("sell", {"what": "tea", "price": 1}),
            "c1.2": ("sell", {"what": "cake", "price": 1}),
        }
        assert shop.ran == ["look shelf"]
        answers = {
            "c1.0": Answer(verdict="yes", by="Ada"),
            "c1.2": Answer(verdict="comment", by="Ada", comment="no cake"),
        }

        results = answered(requests, answers)
        kept = json.loads(json.dumps({"approvals": results.approvals, "metadata": results.metadata}))
        run = await agent.run(message_history=history, deferred_tool_results=DeferredToolResults(**kept))

        assert (run.output, shop.ran) == ("done", ["look shelf", "sell tea 1"])
        assert {part.tool_call_id: part.content for part in script.told} == {
            "c1.0": '{"sold":"tea","price":1}',
            "c1.1": "seen shelf",
            "c1.2": "denied: Ada refused sell: no cake\n"
            "Follow the approver's comment; do not try another way to the same effect.",
        }
        assert sorted((one.state, one.by) for one in await crib.approvals.list()) == [
            ("denied", "Ada"),
            ("used", "Ada"),
        ]


async def test_pydantic_ais_own_answers_count_as_well() -> None:
    wanted = [("sell", {"what": what}) for what in ("tea", "cake", "milk")]
    script, shop = Script(wanted), Shop()
    async with paused(shop, script) as (crib, agent, requests, history):
        changed = ToolApproved(override_args={"what": "cocoa", "price": 3})
        results = requests.build_results(approvals={"c1.0": True, "c1.1": ToolDenied("no cake"), "c1.2": changed})

        await agent.run(message_history=history, deferred_tool_results=results)

        assert sorted(shop.ran) == ["sell cocoa 3", "sell tea 1"]
        assert sorted(one.state for one in await crib.approvals.list()) == ["denied", "used", "used"]


async def test_arguments_that_are_changed_in_a_call_through_a_verb_are_those_of_the_tool() -> None:
    script, shop = Script([("call_tool", {"name": "sell", "arguments": {"what": "tea"}})]), Shop()
    async with paused(shop, script, by_verb=True) as (_, agent, requests, history):
        changed = ToolApproved(override_args={"name": "sell", "arguments": {"what": "cocoa"}})

        results = requests.build_results(approvals={"c1.0": changed})
        await agent.run(message_history=history, deferred_tool_results=results)

    assert shop.ran == ["sell cocoa 1"]


async def test_a_handler_answers_in_the_middle_of_a_run() -> None:
    script, shop = Script([("sell", {"what": "tea"})]), Shop()

    def handle(ctx: RunContext[object], requests: DeferredToolRequests) -> DeferredToolResults:
        return answered(requests, dict.fromkeys(questions(requests), Answer(verdict="yes", by="Ada")))

    async with opened(shop) as crib:
        session = crib.session(mode="cautious", approver=defer_approval)
        agent = Agent(
            script.model, toolsets=[ToolcribToolset(session)], capabilities=[HandleDeferredToolCalls(handler=handle)]
        )
        run = await agent.run("go")

    assert (run.output, shop.ran, script.texts) == ("done", ["sell tea 1"], ['{"sold":"tea","price":1}'])


async def test_another_process_goes_on_with_what_the_first_one_kept(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("config", "data", "state", "cache", "runtime")}
    settings = bare().with_values(directories=bare().directories._replace(**places))
    kept = b""
    async with opened(Shop(), settings, memory=False) as crib:
        script = Script([("sell", {"what": "tea"})])
        session = crib.session(key="k", mode="cautious", approver=defer_approval)
        agent = Agent(script.model, toolsets=[ToolcribToolset(session)], output_type=[str, DeferredToolRequests])
        run = await agent.run("go")
        assert isinstance(run.output, DeferredToolRequests)
        kept, metadata = run.all_messages_json(), json.dumps(run.output.metadata)

    script, shop = Script(), Shop()
    async with opened(shop, settings, memory=False) as crib:
        session = crib.session(key="k", mode="cautious", approver=defer_approval)
        agent = Agent(script.model, toolsets=[ToolcribToolset(session)], output_type=[str, DeferredToolRequests])
        requests = DeferredToolRequests(metadata=json.loads(metadata))
        results = answered(requests, {"c1.0": Answer(verdict="yes")})
        history = ModelMessagesTypeAdapter.validate_json(kept)
        run = await agent.run(message_history=history, deferred_tool_results=results)

    assert (run.output, shop.ran) == ("done", ["sell tea 1"])


async def test_calls_of_one_id_in_two_conversations_are_not_mixed_up() -> None:
    shop, runs = Shop(), list[tuple[Script, Any]]()
    async with opened(shop) as crib:
        toolset = ToolcribToolset(lambda ctx: crib.session(key="k", mode="cautious", approver=defer_approval))
        agent = Agent(toolsets=[toolset], output_type=[str, DeferredToolRequests])
        for what in ("tea", "cake"):
            script = Script([("sell", {"what": what})])
            runs.append((script, await agent.run("go", model=script.model)))

        script, first = runs[0]
        results = first.output.build_results(approve_all=True)
        await agent.run(message_history=first.all_messages(), deferred_tool_results=results, model=script.model)

    assert shop.ran == ["sell tea 1"]


async def test_new_words_beside_the_answers_do_not_begin_an_interaction() -> None:
    script, shop = Script([("load_tools", {"category": "till"})], [("sell", {"what": "tea"})]), Shop()
    async with opened(shop) as crib:
        session = crib.session(profile="tiered", mode="cautious", approver=defer_approval)
        agent = Agent(script.model, toolsets=[ToolcribToolset(session)], output_type=[str, DeferredToolRequests])
        stopped = await agent.run("go")
        assert isinstance(stopped.output, DeferredToolRequests)
        results = answered(stopped.output, {"c2.0": Answer(verdict="yes")})

        await agent.run("and hurry", message_history=stopped.all_messages(), deferred_tool_results=results)

    assert (shop.ran, "sell" in script.shown[-1]) == (["sell tea 1"], True)


async def test_an_answer_to_what_was_not_asked_is_the_mistake_of_whoever_gives_it() -> None:
    async with paused(Shop(), Script([("sell", {"what": "tea"})])) as (_, _, requests, _):
        with pytest.raises(UsageError, match=r"no question of Toolcrib's is about the call 'c9', only c1\.0"):
            answered(requests, {"c9": Answer(verdict="yes")})


async def test_a_run_that_is_cancelled_ends_its_call_and_records_that() -> None:
    shop = Shop()
    async with opened(shop) as crib:
        agent = Agent(Script([("look", {"at": "forever"})]).model, toolsets=[ToolcribToolset(crib.session())])
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, "go")
            await shop.begun.wait()
            group.cancel_scope.cancel()

        assert (shop.ended, [row.outcome for row in await crib.store.calls.list()]) == (["forever"], ["cancelled"])


async def test_one_agent_serves_many_users_each_with_a_session_of_his_own() -> None:
    script, shop = Script([("sell", {"what": "tea"})]), Shop()
    async with opened(shop) as crib:

        def open_for(ctx: RunContext[str]) -> Session:
            return crib.session(principal=ctx.deps, mode="autonomous" if ctx.deps == "ada" else "cautious")

        toolset = ToolcribToolset(open_for)
        with pytest.raises(UsageError, match="opens a session for each run"):
            _ = toolset.session
        agent = Agent(toolsets=[toolset], deps_type=str)
        models = {name: Script([("sell", {"what": name})]) for name in ("ada", "bob")}
        async with anyio.create_task_group() as group:
            for name, one in models.items():
                group.start_soon(lambda name=name, one=one: agent.run("go", deps=name, model=one.model))

        assert shop.ran == ["sell ada 1"]
        rows = await crib.store.calls.list()
        assert sorted((row.principal, row.outcome) for row in rows) == [("ada", "ok"), ("bob", "denied")]
    assert script.texts == []


async def test_two_agents_over_one_crib_do_not_see_what_the_other_has_loaded() -> None:
    loads, looks = Script([("search_tools", {"query": "shift by 7 places", "limit": 1})]), Script()
    async with opened(Shop()) as crib:
        crib.add(many(80))
        for script in (loads, looks):
            await Agent(script.model, toolsets=[ToolcribToolset(crib.session())]).run("go")

    assert ("shift_7" in loads.shown[-1], "shift_7" in looks.shown[-1]) == (True, False)


async def test_deferred_tools_are_found_with_our_ranking_through_pydantic_ais_search() -> None:
    script = Script([("search_tools", {"queries": ["shift by 7 places"]})], [("shift_7", {"x": 1})])
    async with opened(Shop()) as crib:
        crib.add(many(80))
        toolset = ToolcribToolset(crib.session(profile="flat"), deferred=100)
        await Agent(script.model, toolsets=[toolset], capabilities=[toolset.tool_search(limit=1)]).run("go")

    assert [name for name in script.shown[0] if name.startswith("shift")] == []
    assert script.told[0].content == {"discovered_tools": [{"name": "shift_7"}]}
    assert (script.texts[1], "shift_7" in script.shown[1]) == ("8", True)


async def test_of_more_tools_than_may_be_deferred_those_that_fit_the_prompt_are_there_and_others_come() -> None:
    script = Script(
        [("search_tools", {"queries": ["shift by 7 places"]})],
        [("search_tools", {"queries": ["shift by 33 places"]})],
        [("search_tools", {"queries": ["shift by 33 places"]})],
        [("shift_33", {"x": 1})],
    )
    async with opened(Shop()) as crib:
        crib.add(many(80))
        toolset = ToolcribToolset(crib.session(profile="flat"), deferred=4)
        agent = Agent(script.model, toolsets=[toolset], capabilities=[toolset.tool_search(limit=1)])
        await agent.run("please shift by 7 places")

    assert script.told[0].content == {"discovered_tools": [{"name": "shift_7"}]}
    assert "found shift_33; search once more to get them" in script.texts[1]
    assert script.told[2].content == {"discovered_tools": [{"name": "shift_33"}]}
    assert script.texts[3] == "34"


async def test_deferred_tools_of_other_toolsets_are_ranked_as_well() -> None:
    script = Script([("search_tools", {"queries": ["what is the weather in Oslo"]})])
    async with opened(Shop()) as crib:
        toolset = ToolcribToolset(crib.session(profile="flat"), deferred=100)
        agent = Agent(script.model, toolsets=[toolset], capabilities=[toolset.tool_search()])

        @agent.tool_plain(defer_loading=True)
        def weather(city: str) -> str:
            """Tell the weather in a city."""
            return f"sun in {city}"

        await agent.run("go")

    assert script.told[0].content == {"discovered_tools": [{"name": "weather"}]}


async def test_a_profile_with_a_search_of_its_own_cannot_defer() -> None:
    async with opened(Shop()) as crib:
        crib.add(many(80))
        agent = Agent(Script().model, toolsets=[ToolcribToolset(crib.session(), deferred=10)])
        with pytest.raises(UsageError, match="the profile adaptive has a search_tools of its own"):
            await agent.run("go")


async def test_an_interaction_that_the_application_has_begun_is_that_of_the_run() -> None:
    script = Script()
    async with opened(Shop()) as crib:
        session = crib.session(profile="selection", intent={"required_tools": ["sell"]})
        agent = Agent(script.model, toolsets=[ToolcribToolset(session)])
        await agent.run("go")
        await agent.run("go")
        session.begin(intent={"required_tools": ["look"]})
        await agent.run("go")

    chosen = [tuple(name for name in shown if name != "select_tools") for shown in script.shown]
    assert chosen == [("sell",), ("look", "picture", "sell"), ("look",)]
