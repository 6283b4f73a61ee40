"""What `sources.source.Source` promises, for every kind of source.

A kind is a function that opens a source whose tools are `echo` (returns its `text`), `fail` (fails) and `hang` (never
ends), with an entry that cannot be taken, and says how a tool `late` comes. One more kind is one more function in
`KINDS`. All kinds at once, skills among them, are in `test_six_kinds.py`.
"""

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest
from mcp.server.lowlevel import Server

from peers import scripted
from peers.api import described, kind_handlers
from peers.catalog import KIND
from peers.journal import Journal
from peers.web import Request, web_peer
from rig import PATIENCE, eventually
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.json import fields_of
from toolcrib.core.result import ToolResult
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.plugin import Plugin, Services
from toolcrib.policy.taint import Taint
from toolcrib.registration.definitions import BadDefinition, Registered, RestSource, read_definition
from toolcrib.sources.combinators import filtered, prefixed, renamed
from toolcrib.sources.mcp.source import McpSource
from toolcrib.sources.openapi.source import OpenApiSource
from toolcrib.sources.openapi.spec import ApiSettings
from toolcrib.sources.plugins import PluginSource, given
from toolcrib.sources.python.source import PythonSource
from toolcrib.sources.source import Listing, Source
from toolcrib.sources.yaml.document import YamlOptions
from toolcrib.sources.yaml.implementation import Command
from toolcrib.sources.yaml.run_endpoint import EndpointRunner
from toolcrib.sources.yaml.source import YamlSource
from toolcrib.testing import check_source
from toolcrib.workflows import Workflows
from toolcrib.workflows.source import WorkflowSource

pytestmark = pytest.mark.process


_POLL_SECONDS = 0.05


class Opened:
    """A source that is open, and what it published."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.listings: list[Listing] = []
        self._ids = itertools.count()

    async def call(self, name: str, seconds: float = PATIENCE, **arguments: Any) -> ToolResult:
        tool = next(tool for tool in self.listings[-1].tools if tool.name == name)
        deadline, id = time.monotonic() + seconds, f"c{next(self._ids)}"
        context = Context(call_id=id, session_key="s", principal="local", deadline=deadline)
        with anyio.move_on_at(anyio.current_time() + seconds) as scope:
            result = await self.source.call(tool, arguments, context)
            if result.error is not None:
                raise ToolFailure(result.error.code, result.error.message)
            return result
        assert scope.cancelled_caught
        raise ToolFailure("timeout", "the dispatcher's own limit")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A source that is not open yet."""

    source: Source
    late: Callable[[Opened], Awaitable[object]]
    """Brings the tool `late`; gets the source as it is open."""
    broken: str
    """The tool that a problem names; empty for a kind that takes its entries one by one, and refuses them so."""


Kind = Callable[[Path, Toolcrib], AbstractAsyncContextManager[Subject]]


def echo(text: str) -> str:
    return text


def fail() -> str:
    raise ToolFailure("tool_error", "no way")


async def hang() -> str:
    await anyio.sleep_forever()
    return ""


def late() -> str:
    return "late"


def broken(*text: str) -> str:
    return ""


_FUNCTIONS = (echo, fail, hang)
_NAMES = ("echo", "fail", "hang", "late")


@asynccontextmanager
async def python(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    source = PythonSource("kind")
    source.offer([*_FUNCTIONS, broken], "here")

    async def come(opened: Opened) -> None:
        source.add(late)

    yield Subject(source=source, late=come, broken="broken")


@asynccontextmanager
async def plugin(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    class Kinds(Plugin):
        name = "kind"

        def initialize(self, config: Mapping[str, Any], services: Services) -> None:
            self.has: list[Callable[..., Any]] = [*_FUNCTIONS, broken]
            self.services = services

        def tools(self) -> list[Callable[..., Any]]:
            return self.has

    exposed = Kinds()

    async def come(opened: Opened) -> None:
        exposed.has.append(late)
        exposed.services.changed()

    source = PluginSource(
        given(exposed),
        {},
        functions=PythonSource,
        catalog=lambda: crib.catalog,
        subscribe=lambda enrichment, priority: lambda: None,  # it enriches nothing
        data=folder,
    )
    yield Subject(source=source, late=come, broken="broken")


@asynccontextmanager
async def workflow(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    """Workflows of one step each; the session that runs them lives in `crib`."""
    source = WorkflowSource(crib.slice(Workflows).host)
    functions = PythonSource("functions")
    functions.add(*_FUNCTIONS, late)
    await crib.tools.mount_source(functions, prefix=True, trusted=True)

    def steps(name: str, **arguments: Any) -> Mapping[str, Any]:
        given = {"text": "string"} if arguments else {}
        step = {"tool": f"functions__{name}", "arguments": arguments}
        return {"description": "Runs one.", "input": given, "steps": {"do": step}, "output": {"$from": "$.steps.do"}}

    source.put("echo", steps("echo", text={"$from": "$.input.text"}))
    source.put("fail", steps("fail"))
    source.put("hang", steps("hang"))
    source.put("broken", {"steps": {}})

    async def come(opened: Opened) -> None:
        source.put("late", steps("late"))

    yield Subject(source=source, late=come, broken="broken")


def _mcp(spec: ServerSpec, folder: Path) -> McpSource:
    return McpSource(spec, environment=os.environ, cache_dir=folder / "cache", spool_dir=folder / "spooled")


@asynccontextmanager
async def mcp_stdio(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    journal = Journal(folder / "journal")
    source = _mcp(scripted(journal.path, "ugly", name="kind"), folder)

    async def come(opened: Opened) -> None:
        await opened.call("grow")

    yield Subject(source=source, late=come, broken="broken")
    journal.close()


@asynccontextmanager
async def mcp_in_process(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    functions: dict[str, Callable[..., Any]] = {"echo": echo, "fail": fail, "hang": hang, "broken": broken}
    text = {"type": "object", "properties": {"text": {"type": "string"}}}
    schemas = {"echo": text, "broken": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}

    async def list_tools(context: Any, params: Any) -> mcp_types.ListToolsResult:
        empty = {"type": "object"}
        listed = [mcp_types.Tool(name=name, input_schema=schemas.get(name, empty)) for name in (*functions, "grow")]
        return mcp_types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        if params.name == "grow":
            functions["late"] = late
            await context.session.send_tool_list_changed()
            return mcp_types.CallToolResult(content=[])
        try:
            value = functions[params.name](**(params.arguments or {}))
            shown = str(await value if asyncio.iscoroutine(value) else value)
        except ToolFailure as error:
            return mcp_types.CallToolResult(content=[_text(error.message)], is_error=True)
        return mcp_types.CallToolResult(content=[_text(shown)])

    server = Server("kind", on_list_tools=list_tools, on_call_tool=call_tool)

    async def come(opened: Opened) -> None:
        await opened.call("grow")

    source = _mcp(ServerSpec(name="kind", transport="memory", server=server), folder)
    yield Subject(source=source, late=come, broken="broken")


def _text(text: str) -> mcp_types.TextContent:
    return mcp_types.TextContent(type="text", text=text)


@asynccontextmanager
async def mcp_http(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    changed = anyio.Event()

    async def answer(request: Request) -> None:
        await request.text(request.message["params"]["arguments"]["text"])

    async def refuse(request: Request) -> None:
        await request.error(-32000, "no way")

    async def wait(request: Request) -> None:
        await anyio.sleep_forever()

    async def aside(request: Request) -> None:
        await request.events()
        await changed.wait()
        await request.raw(b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n')
        await anyio.sleep_forever()

    async with web_peer(tools={"echo": answer, "fail": refuse, "hang": wait, "broken": refuse}) as web:
        web.schemas["broken"] = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
        web.aside = aside

        async def come(opened: Opened) -> None:
            web.tools["late"] = answer
            changed.set()

        yield Subject(source=_mcp(web.spec, folder), late=come, broken="broken")


@asynccontextmanager
async def openapi(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    body = {"required": True, "content": {"application/json": {"schema": text}}}
    paths: dict[str, Any] = {
        "/echo": {"post": {"operationId": "echo", "requestBody": body}},
        "/fail": {"post": {"operationId": "fail"}},
        "/hang": {"get": {"operationId": "hang"}},
        "/broken": {"get": {"operationId": "broken", "parameters": [{"$ref": "#/components/nowhere"}]}},
    }
    file = folder / "kind.json"
    file.write_text(json.dumps(described(paths)))

    async def come(opened: Opened) -> None:
        file.write_text(json.dumps(described({**paths, "/late": {"get": {"operationId": "late"}}})))

    async with kind_handlers() as running:
        settings = ApiSettings(base_url=running.origin, allow_private=True)
        source = OpenApiSource("kind", file, settings=settings, every=_POLL_SECONDS)
        yield Subject(source=source, late=come, broken="GET /broken")


@asynccontextmanager
async def yaml(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    path = folder / "kind.yaml"
    path.write_text(KIND + "- name: broken\n")

    async def come(opened: Opened) -> None:
        path.write_text(KIND + "- name: late\n  implementation: {command: [echo, late]}\n")

    yield Subject(source=YamlSource("kind", path, YamlOptions(poll_seconds=_POLL_SECONDS)), late=come, broken="broken")


@asynccontextmanager
async def rest(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    async with kind_handlers() as running:
        source = RestSource("kind")

        def put(name: str, method: str = "POST") -> None:
            endpoint = {"url": f"{running.origin}/{name}", "method": method, "allow_private": True}
            text = {"type": "object", "properties": {"text": {"type": "string"}}}
            given = {"name": name, "input_schema": text, "implementation": {"endpoint": endpoint}}
            read = read_definition("kind", given, over_rest=False, commands=False)
            assert not isinstance(read.how, Command)
            runner = EndpointRunner(read.how)
            source.put(Registered(tool=read.tool, run=runner, closing=runner))

        with pytest.raises(BadDefinition):
            put("broken", "SHOUT")
        put("echo")
        put("fail")
        put("hang", "GET")

        async def come(opened: Opened) -> None:
            put("late")

        yield Subject(source=source, late=come, broken="")


def derived(kind: Kind, change: Callable[[Source], Source]) -> Kind:
    """A kind under a combinator, or several."""

    @asynccontextmanager
    async def subject(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
        async with kind(folder, crib) as inner:
            yield replace(inner, source=change(inner.source))

    return subject


@asynccontextmanager
async def other_names(folder: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    """Tools that have the names of the suite only under `renamed` and `prefixed`."""

    async def cho(text: str) -> str:
        return text

    async def crash() -> str:
        raise ToolFailure("tool_error", "no way")

    async def ng() -> str:
        await anyio.sleep_forever()
        return ""

    def te(text: str = "") -> str:
        return "late"

    source = PythonSource("kind")
    source.add(cho, crash, ng)
    given = {"cho": "echo", "crash": "fail", "ng": "hang", "te": "late"}

    async def come(opened: Opened) -> None:
        source.add(te)

    yield Subject(source=renamed(source, given), late=come, broken="te")


KINDS: dict[str, Kind] = {
    "python": python,
    "plugin": plugin,
    "workflow": workflow,
    "mcp over stdio": mcp_stdio,
    "mcp in this process": mcp_in_process,
    "mcp over HTTP": mcp_http,
    "openapi": openapi,
    "yaml": yaml,
    "registered": rest,
    "filtered": derived(python, lambda source: filtered(source, lambda tool: tool.local_name != "secret")),
    "filtered twice": derived(yaml, lambda source: filtered(filtered(source, ["[!x]*"]), ["*"])),
    "prefixed and back": derived(
        python, lambda source: renamed(prefixed(source, "x_"), {f"x_{name}": name for name in (*_NAMES, "broken")})
    ),
    "renamed": other_names,
    "renamed over MCP": derived(
        mcp_stdio,
        lambda source: renamed(prefixed(source, "x_"), {f"x_{name}": name for name in (*_NAMES, "broken", "grow")}),
    ),
}


_PEERS = ("anyio.abc._sockets", "peers.web")
"""Tasks of the server at the far end, which ends after us."""


_KEPT = ("echo", "fail", "hang")
_AWKWARD = (
    "undefined",
    "1e309",
    "0x",
    " \t ",
    "'; DROP TABLE calls;--",
    '"><script>alert(1)</script>',
    "$(touch x) `touch x` ; touch x | touch x & touch x",
    "{text} {{text}} {$.input.text} ${HOME} %s %n %00",
    "../../etc/passwd\\..\\",
    "a\r\nX-Injected: yes\r\n\r\nb",
    "\u202eright\u202c to \u200bleft \u2028 \ufeff",
    "Ω≈ç√∫˜µ 田中さん \U0001f469\u200d\U0001f469\u200d\U0001f467 é e\u0301",
    "\U000e0041\U000e0042 tagged",
    "\x1b[31mred\x1b[0m \x07\x08\x7f\x85",
    '"a": "\\u0000"}',
    "x" * 5000,
)
"""What trips programs up: as in the Big List of Naughty Strings, in words of our own."""
_PASSING = ("seq", "id", "rule", "started", "finished", "latency_ms", "result_bytes", "result_hash", "arguments_hash")


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    """A crib with the session that every call is made in."""
    async with Toolcrib(bare().with_values(untrusted=Taint(ask=False)), memory=True) as crib:
        session = crib.session(key="s", mode="autonomous", profile="flat")
        yield crib
        assert session.state.key == "s"


@pytest.fixture(params=KINDS)
async def subject(request: pytest.FixtureRequest, tmp_path: Path, crib: Toolcrib) -> AsyncGenerator[Subject]:
    async with KINDS[request.param](tmp_path, crib) as subject:
        yield subject


@pytest.fixture
async def opened(subject: Subject) -> AsyncGenerator[Opened]:
    opened = Opened(subject.source)
    with anyio.fail_after(PATIENCE):
        await subject.source.open(opened.listings.append)
        await subject.source.ready()
    yield opened
    await subject.source.close()


async def test_a_listing_has_the_names_of_the_source_and_tells_of_an_entry_that_cannot_be_taken(
    opened: Opened, subject: Subject
) -> None:
    problems, tools = opened.listings[-1].problems, opened.listings[-1].tools

    assert {"echo", "fail", "hang"} <= {tool.name for tool in tools}
    assert [tool.name for tool in tools] == [tool.local_name for tool in tools]
    assert {tool.source for tool in tools} == {opened.source.name}
    assert (opened.source.state.state, opened.source.state.tools) == ("ready", len(tools))
    assert subject.broken in {problem.tool for problem in problems} or problems == () == tuple(subject.broken)
    assert {problem.source for problem in problems} <= {opened.source.name}
    assert subject.broken not in {tool.name for tool in tools}


async def test_a_call_returns_any_text_unchanged_and_a_failure_is_a_tool_failure(opened: Opened) -> None:
    assert {text: (await opened.call("echo", text=text)).text for text in _AWKWARD} == {text: text for text in _AWKWARD}

    with pytest.raises(ToolFailure, match="no way") as caught:
        await opened.call("fail")

    assert caught.value.code == "tool_error"


async def test_a_call_that_hangs_ends_by_its_deadline_and_harms_no_other(opened: Opened) -> None:
    results: list[str] = []

    async def neighbour() -> None:
        results.append((await opened.call("echo", text="next to it")).text)

    async with anyio.create_task_group() as group:
        group.start_soon(neighbour)
        with pytest.raises(ToolFailure) as caught:
            await opened.call("hang", 0.3)
        assert caught.value.code == "timeout"

    assert results == ["next to it"]
    assert (await opened.call("echo", text="after it")).text == "after it"


async def test_it_holds_to_the_check_that_authors_of_sources_have(subject: Subject) -> None:
    context = Context(call_id="c1", session_key="s", principal="local")
    listing = await check_source(subject.source, "echo", {"text": "x"}, hangs="hang", context=context, seconds=PATIENCE)

    assert {"echo", "fail", "hang"} <= {tool.name for tool in listing.tools}


async def test_a_tool_that_comes_is_published_and_the_others_stay(opened: Opened, subject: Subject) -> None:
    before = {tool.name: tool for tool in opened.listings[-1].tools}
    assert "late" not in before

    await subject.late(opened)
    await eventually(lambda: "late" in {tool.name for tool in opened.listings[-1].tools})

    after = {tool.name: tool for tool in opened.listings[-1].tools}
    assert {name: after.get(name) for name in _KEPT} == {name: before[name] for name in _KEPT}
    assert opened.source.state.tools == len(after)
    assert (await opened.call("echo", text="as before")).text == "as before"


async def test_calls_of_every_kind_leave_the_same_record(subject: Subject, crib: Toolcrib) -> None:
    await crib.tools.mount_source(subject.source, prefix=False, trusted=True)
    with anyio.fail_after(PATIENCE):
        await subject.source.ready()
    session = crib.session(key="s")

    answers = [await session.call("echo", {"text": "x"}), await session.call("fail", {})]

    assert [answer.error and answer.error.code for answer in answers] == [None, "tool_error"]
    rows = [row for row in reversed(await crib.store.calls.list()) if row.tool in ("echo", "fail")]
    told = [{key: value for key, value in fields_of(row).items() if key not in _PASSING} for row in rows]
    assert told == [
        {
            "session": "s",
            "principal": "local",
            "origin": "library",
            "client": "",
            "tool": name,
            "requested": name,
            "decision": "allow",
            "arguments": arguments,
            "definition": crib.catalog.tools[name].digest.hex(),
            "outcome": outcome,
        }
        for name, arguments, outcome in (("echo", '{"text":"x"}', "ok"), ("fail", "{}", "tool_error"))
    ]
    assert all(row.finished >= row.started and row.result_hash and row.arguments_hash for row in rows)


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_leaves_no_task_and_may_be_repeated(kind: str, tmp_path: Path, crib: Toolcrib) -> None:
    async with KINDS[kind](tmp_path, crib) as subject:
        source = subject.source
        before = asyncio.all_tasks()
        opened = Opened(source)
        with anyio.fail_after(PATIENCE):
            await source.open(opened.listings.append)
            await source.ready()
            await opened.call("echo", text="x")
            await source.close()
            await source.close()
        left = {task.get_name() for task in asyncio.all_tasks() - before}

        assert {name for name in left if not name.startswith(_PEERS)} == set()
        assert source.state.state == "closed"
