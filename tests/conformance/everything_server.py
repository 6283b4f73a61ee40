"""An MCP server that has everything the official conformance suite asks for, both eras, made with the MCP SDK.

    python everything_server.py --port 3901             streamable HTTP at http://127.0.0.1:3901/mcp
    python everything_server.py --port 3901 --legacy    the same, but it knows no revision after 2025-11-25
    python everything_server.py                         stdio

It is the downstream of the gateway in the conformance runs, and the suite is run on it alone to know that it is sound.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import anyio
import uvicorn
from everything_tasks import TASK_TOOLS
from everything_tools import BUS, PASSING_PROMPTS, PNG, TOOLS, Context, Result, ask_form
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    BlobResourceContents,
    CallToolRequestParams,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_NAME = "toolcrib-everything"

_RESOURCES = (
    Resource(uri="test://static-text", name="Static text", description="A text that never changes"),
    Resource(uri="test://static-binary", name="Static image", description="An image", mime_type="image/png"),
    Resource(uri="test://watched-resource", name="Watched", description="A resource to subscribe to"),
)
_TEMPLATES = (
    ResourceTemplate(
        uri_template="test://template/{id}/data",
        name="Data by id",
        description="Data that says which id was asked for",
        mime_type="application/json",
    ),
)


def _argument(name: str, description: str) -> PromptArgument:
    return PromptArgument(name=name, description=description, required=True)


_PROMPTS = (
    Prompt(name="test_simple_prompt", description="A prompt without arguments"),
    Prompt(
        name="test_prompt_with_arguments",
        description="A prompt with two arguments",
        arguments=[_argument("arg1", "First test argument"), _argument("arg2", "Second test argument")],
    ),
    Prompt(
        name="test_prompt_with_embedded_resource",
        description="A prompt that embeds a resource",
        arguments=[_argument("resourceUri", "URI of the resource to embed")],
    ),
    Prompt(name="test_prompt_with_image", description="A prompt with an image"),
    Prompt(name="test_input_required_result_prompt", description="A prompt that asks for its context first"),
)


async def _list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[tool.listed() for tool in TOOLS.values()])


async def _call_tool(ctx: Context, params: CallToolRequestParams) -> Result:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await tool.run(ctx, params)


async def _list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(resources=list(_RESOURCES))


async def _list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=list(_TEMPLATES))


async def _read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    match params.uri.removeprefix("test://").split("/"):
        case ["static-text"]:
            content = _text_contents(params.uri, "This is the content of the static text resource.")
        case ["static-binary"]:
            content = BlobResourceContents(uri=params.uri, mime_type="image/png", blob=PNG)
        case ["watched-resource"]:
            content = _text_contents(params.uri, "Watched resource content")
        case ["template", id_, "data"]:
            data = {"id": id_, "templateTest": True, "data": f"Data for ID: {id_}"}
            content = TextResourceContents(uri=params.uri, mime_type="application/json", text=json.dumps(data))
        case _:
            raise MCPError(INVALID_PARAMS, f"Resource not found: {params.uri}", {"uri": params.uri})
    return ReadResourceResult(contents=[content])


async def _list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
    passing = (Prompt(name=name, description="A prompt that comes and goes") for name in PASSING_PROMPTS)
    return ListPromptsResult(prompts=[*_PROMPTS, *passing])


async def _get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    arguments = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _prompt(_say("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            said = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
            return _prompt(_say(said))
        case "test_prompt_with_embedded_resource":
            uri = arguments.get("resourceUri", "test://example-resource")
            resource = _text_contents(uri, "Embedded resource content for testing.")
            embedded = PromptMessage(role="user", content=EmbeddedResource(type="resource", resource=resource))
            return _prompt(embedded, _say("Please process the embedded resource above."))
        case "test_prompt_with_image":
            image = ImageContent(type="image", data=PNG, mime_type="image/png")
            return _prompt(PromptMessage(role="user", content=image), _say("Please analyze the image above."))
        case "test_input_required_result_prompt":
            return _prompt_with_context(params)
        case _:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {params.name}")


def _prompt_with_context(params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    answer = (params.input_responses or {}).get("user_context")
    if isinstance(answer, ElicitResult):
        return _prompt(_say(f"Context: {(answer.content or {}).get('context', '')}"))
    question = ask_form("What context should the prompt use?", context={"type": "string"})
    return InputRequiredResult(input_requests={"user_context": question})


async def _complete(ctx: Context, params: CompleteRequestParams) -> CompleteResult:
    known = ("paris", "park", "party", "test-1", "test-2")
    values = [value for value in known if value.startswith(params.argument.value)]
    return CompleteResult(completion=Completion(values=values, total=len(values), has_more=False))


async def _subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def _unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def _set_level(ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


def build_server() -> Server[Any]:
    """Return the server, ready to be served on any transport."""
    server: Server[Any] = Server(
        _NAME,
        version="1.0.0",
        instructions="Everything the conformance suite asks for.",
        get_tool_input_schema=lambda name: TOOLS[name].schema if name in TOOLS else None,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
        on_subscribe_resource=_subscribe,
        on_unsubscribe_resource=_unsubscribe,
        on_subscriptions_listen=ListenHandler(BUS),
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_completion=_complete,
    )
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, _set_level)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=_NAME))
    return server


async def _serve_stdio() -> None:
    server = build_server()
    async with stdio_server() as (incoming, outgoing):
        await server.run(
            incoming, outgoing, server.create_initialization_options(NotificationOptions(tools_changed=True))
        )


def _serve_http(port: int, *, legacy: bool) -> None:
    """Serve on 127.0.0.1 until interrupted."""
    app: ASGIApp = build_server().streamable_http_app()
    uvicorn.run(_without_modern(app) if legacy else app, host="127.0.0.1", port=port, log_level="warning")


def _without_modern(app: ASGIApp) -> ASGIApp:
    """Answer a modern request as the servers did that were written before there were any: 400, unknown version."""

    async def legacy_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Headers(scope=scope).get("mcp-protocol-version") == "2026-07-28":
            error = {"code": INVALID_REQUEST, "message": "Bad Request: Unsupported protocol version: 2026-07-28"}
            refusal = JSONResponse({"jsonrpc": "2.0", "id": "server-error", "error": error}, status_code=400)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return legacy_app


def main() -> None:
    """Serve what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, help="serve streamable HTTP here instead of stdio")
    parser.add_argument("--legacy", action="store_true", help="over HTTP: know no revision after 2025-11-25")
    arguments = parser.parse_args()
    TOOLS.update({tool.name: tool for tool in TASK_TOOLS})
    if arguments.port is None:
        anyio.run(_serve_stdio)
    else:
        _serve_http(arguments.port, legacy=arguments.legacy)


def _text_contents(uri: str, value: str) -> TextResourceContents:
    return TextResourceContents(uri=uri, mime_type="text/plain", text=value)


def _say(value: str) -> PromptMessage:
    return PromptMessage(role="user", content=TextContent(type="text", text=value))


def _prompt(*messages: PromptMessage) -> GetPromptResult:
    return GetPromptResult(messages=list(messages), description="A prompt of a test")


if __name__ == "__main__":
    main()
