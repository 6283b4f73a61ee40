"""A call of an MCP server is a span of kind CLIENT, and the server learns the trace that it belongs to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from peers.api import api, described
from peers.web import Behaviour, Request, WebPeer, web_peer
from rig import PATIENCE
from toolcrib.core.result import ToolResult
from toolcrib.sources.openapi.source import OpenApiSource
from toolcrib.sources.openapi.spec import ApiSettings
from unit.toolcrib.telemetry.watched import Watched, attributes, watched_crib


async def echo(request: Request) -> None:
    await request.text("hello")


async def fails(request: Request) -> None:
    await request.result({"content": [{"type": "text", "text": "no"}], "isError": True})


async def refuses(request: Request) -> None:
    await request.error(-32603, "broken inside")


async def hangs(request: Request) -> None:
    await anyio.sleep_forever()


@asynccontextmanager
async def served(*, modern: bool = True, **tools: Behaviour) -> AsyncGenerator[tuple[Watched, WebPeer]]:
    """A watched crib in front of a server."""
    async with web_peer(tools=tools, modern=modern) as web, watched_crib(accept=True) as watched:
        await watched.crib.mount({"mcpServers": {"web": {"url": web.url}}}, accept=True)
        await watched.crib.tools.wait_ready(PATIENCE)
        yield watched, web


async def called(watched: Watched, tool: str, **options: Any) -> ToolResult:
    session = watched.crib.session(mode="autonomous", profile="flat")
    (name,) = [shown.name for shown in watched.crib.catalog.tools.values() if shown.local_name == tool]
    return await session.call(name, {}, **options)


@pytest.mark.parametrize("modern", [True, False])
async def test_the_server_is_told_the_trace_and_its_hop_is_the_parent(modern: bool) -> None:
    async with served(modern=modern, read=echo) as (watched, web):
        with watched.tracers.get_tracer("test").start_as_current_span("agent"):
            await called(watched, "read")

    sent = web.of("tools/call")[0].message["params"]["_meta"]["traceparent"]
    ours, hop = watched.span("execute_tool web__read"), watched.span("tools/call web__read")
    assert sent == f"00-{trace.format_trace_id(_of(ours).trace_id)}-{trace.format_span_id(_of(hop).span_id)}-03"
    assert (hop.parent and hop.parent.span_id, hop.kind) == (_of(ours).span_id, SpanKind.CLIENT)
    assert attributes(hop) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28" if modern else "2025-11-25",
        "gen_ai.tool.name": "web__read",
        "network.transport": "tcp",
    }
    assert attributes(ours)["gen_ai.tool.type"] == "extension"
    assert watched.points("mcp.client.operation.duration") == [(attributes(hop), 1)]


async def test_an_api_is_told_the_trace_in_the_headers_of_the_request(tmp_path: Path) -> None:
    incoming = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "baggage": "team=red"}
    async with api() as running, watched_crib() as watched:
        paths: dict[str, Any] = {"/far": {"get": {"operationId": "far", "responses": {}}}}
        settings = ApiSettings(base_url=running.origin, allow_private=True)
        await watched.crib.tools.mount_source(OpenApiSource("api", described(paths), settings=settings), trusted=True)
        endpoint = f'{{method: GET, url: "{running.origin}/near", allow_private: true}}'
        (tmp_path / "c.yaml").write_text(f"- {{name: near, kind: read, implementation: {{endpoint: {endpoint}}}}}\n")
        await watched.crib.load(tmp_path / "c.yaml")
        await watched.crib.tools.wait_ready(PATIENCE)
        for tool in ("far", "near"):
            assert not (await called(watched, tool, meta=incoming)).is_error

    spans = [_of(watched.span(f"execute_tool {name}")) for name in ("api__far", "near")]
    assert [seen["headers"].get("traceparent") for seen in running.received] == [
        f"00-0af7651916cd43dd8448eb211c80319c-{trace.format_span_id(span.span_id)}-01" for span in spans
    ]
    assert not any("baggage" in seen["headers"] for seen in running.received)


@pytest.mark.process
async def test_a_program_of_a_catalog_finds_the_trace_in_its_environment_unless_its_entry_sets_it(
    tmp_path: Path,
) -> None:
    incoming = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "baggage": "team=red"}
    prints = '[sh, -c, "echo $TRACEPARENT $BAGGAGE"]'
    (tmp_path / "c.yaml").write_text(
        f"- {{name: traced, kind: read, implementation: {{command: {prints}}}}}\n"
        f"- {{name: own, kind: read, implementation: {{command: {prints}, env: {{TRACEPARENT: mine}}}}}}\n"
    )
    async with watched_crib() as watched:
        await watched.crib.load(tmp_path / "c.yaml")
        traced, own = [await called(watched, tool, meta=incoming) for tool in ("traced", "own")]
        span = _of(watched.span("execute_tool traced")).span_id

    assert traced.text.split() == [f"00-0af7651916cd43dd8448eb211c80319c-{trace.format_span_id(span)}-01"]
    assert own.text.split() == ["mine"]


async def test_the_baggage_of_a_client_goes_on_to_the_server_and_the_trace_is_ours() -> None:
    incoming = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "baggage": "team=red"}
    async with served(read=echo) as (watched, web):
        await called(watched, "read", meta=incoming)

    sent = web.of("tools/call")[0].message["params"]["_meta"]
    hop = _of(watched.span("tools/call web__read"))
    assert sent["traceparent"] == f"00-0af7651916cd43dd8448eb211c80319c-{trace.format_span_id(hop.span_id)}-01"
    assert sent["baggage"] == "team=red"


@pytest.mark.parametrize(("behaviour", "error", "status"), [(fails, "tool_error", None), (refuses, "-32603", "-32603")])
async def test_a_failing_hop_says_how(behaviour: Behaviour, error: str, status: str | None) -> None:
    async with served(read=behaviour) as (watched, _):
        await called(watched, "read")

    hop = watched.span("tools/call web__read")
    said = attributes(hop)
    assert (said["error.type"], said.get("rpc.response.status_code"), hop.status.status_code) == (
        error,
        status,
        StatusCode.ERROR,
    )


@pytest.mark.slow
async def test_a_hop_that_was_cut_off_ends_as_cancelled() -> None:
    async with served(read=hangs) as (watched, _):
        result = await called(watched, "read", timeout=0.5)

    assert result.error is not None
    assert (result.error.code, attributes(watched.span("tools/call web__read"))["error.type"]) == (
        "timeout",
        "cancelled",
    )


def _of(span: ReadableSpan) -> trace.SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context
