"""The tools that the official conformance suite calls by name, as data: name, schema, and what each does.

The suite states what each must do in the descriptions of its scenarios. A tool that needs something of the client works
in both eras: it answers a modern request with `input_required` and goes on in the retry; a legacy client it asks over
the back channel, in the middle of the call.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

Context = ServerRequestContext[Any, Any]
Result = CallToolResult | InputRequiredResult
Handler = Callable[[Context, CallToolRequestParams], Awaitable[Result]]
Schema = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
BUS = InMemorySubscriptionBus()
"""Carries the list changes that the two trigger tools make to open `subscriptions/listen` streams."""

PASSING_PROMPTS: list[str] = []
"""Names of prompts that are there for now."""

_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
_PAUSE_SECONDS = 0.05
_NOTHING: Schema = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class EverythingTool:
    """One tool of the everything server."""

    name: str
    description: str
    run: Handler
    schema: Schema = field(default_factory=lambda: dict(_NOTHING))
    reads: bool = False
    """Whether a call may be repeated."""

    def listed(self) -> Tool:
        """Return the tool as `tools/list` shows it."""
        hints = ToolAnnotations(read_only_hint=True) if self.reads else None
        return Tool(name=self.name, description=self.description, input_schema=self.schema, annotations=hints)


TOOLS: dict[str, EverythingTool] = {}
"""All tools by name, in the order in which they are listed."""


def text(value: str) -> CallToolResult:
    """Return a result of one text."""
    return CallToolResult(content=[TextContent(type="text", text=value)])


def ask_form(message: str, **properties: Schema) -> ElicitRequest:
    """Return a request for a form whose fields are all required."""
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=_object(properties)))


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _tool(description: str, schema: Schema | None = None, *, reads: bool = False) -> Callable[[Handler], Handler]:
    def register(run: Handler) -> Handler:
        name = getattr(run, "__name__", "")
        given = schema or dict(_NOTHING)
        TOOLS[name] = EverythingTool(name=name, description=description, run=run, schema=given, reads=reads)
        return run

    return register


@_tool("Returns one text")
async def test_simple_text(ctx: Context, params: CallToolRequestParams) -> Result:
    return text("This is a simple text response for testing.")


@_tool("Returns one image")
async def test_image_content(ctx: Context, params: CallToolRequestParams) -> Result:
    return CallToolResult(content=[_image()])


@_tool("Returns one sound")
async def test_audio_content(ctx: Context, params: CallToolRequestParams) -> Result:
    return CallToolResult(content=[AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


@_tool("Returns one embedded resource")
async def test_embedded_resource(ctx: Context, params: CallToolRequestParams) -> Result:
    content = _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    return CallToolResult(content=[content])


@_tool("Returns a text, an image and a resource")
async def test_multiple_content_types(ctx: Context, params: CallToolRequestParams) -> Result:
    content: list[ContentBlock] = [
        TextContent(type="text", text="Multiple content types test:"),
        _image(),
        _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]
    return CallToolResult(content=content)


@_tool("Always fails")
async def test_error_handling(ctx: Context, params: CallToolRequestParams) -> Result:
    failure = text("This tool intentionally returns an error for testing")
    return failure.model_copy(update={"is_error": True})


@_tool("Logs three lines while it runs")
async def test_tool_with_logging(ctx: Context, params: CallToolRequestParams) -> Result:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await _log(ctx, line)
        await anyio.sleep(_PAUSE_SECONDS)
    return text("Logged three lines.")


@_tool("Logs one line, to those who asked for logs")
async def test_logging_tool(ctx: Context, params: CallToolRequestParams) -> Result:
    await _log(ctx, "Diagnostic log line")
    return text("Logged one line.")


@_tool("Reports progress 0, 50 and 100 of 100")
async def test_tool_with_progress(ctx: Context, params: CallToolRequestParams) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(_PAUSE_SECONDS)
    return text("Reported progress.")


@_tool("Asks the client's model", _object({"prompt": {"type": "string", "description": "What to ask the model"}}))
async def test_sampling(ctx: Context, params: CallToolRequestParams) -> Result:
    question = _ask_model(str((params.arguments or {})["prompt"]), max_tokens=100)
    return text(f"LLM response: {_said(await _ask_now(ctx, question))}")


@_tool("Asks the user", _object({"message": {"type": "string", "description": "What to ask the user"}}))
async def test_elicitation(ctx: Context, params: CallToolRequestParams) -> Result:
    form = ask_form(
        str((params.arguments or {})["message"]),
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return await _filled_in_now(ctx, form)


@_tool("Asks for a form whose fields have defaults")
async def test_elicitation_sep1034_defaults(ctx: Context, params: CallToolRequestParams) -> Result:
    properties: Schema = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await _filled_in_now(ctx, _ask_optional(properties))


@_tool("Asks for a form with every kind of choice")
async def test_elicitation_sep1330_enums(ctx: Context, params: CallToolRequestParams) -> Result:
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    properties: Schema = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await _filled_in_now(ctx, _ask_optional(properties))


@_tool("Needs a client that can sample")
async def test_missing_capability(ctx: Context, params: CallToolRequestParams) -> Result:
    if not _can_sample(ctx):
        message = "this tool needs the client capability 'sampling'"
        needed: Schema = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, needed)
    return text("The client can sample.")


@_tool("Asks the user in its response, never beside it")
async def test_streaming_elicitation(ctx: Context, params: CallToolRequestParams) -> Result:
    return await _filled_in(ctx, params, ask_form("Please answer", answer={"type": "string"}))


@_tool("Changes the tools: one comes or goes")
async def test_trigger_tool_change(ctx: Context, params: CallToolRequestParams) -> Result:
    if TOOLS.pop(_PASSING.name, None) is None:
        TOOLS[_PASSING.name] = _PASSING
    await BUS.publish(ToolsListChanged())
    if not _is_modern(ctx):
        await ctx.session.send_tool_list_changed()
    return text("Changed.")


@_tool("Changes the prompts: one comes or goes")
async def test_trigger_prompt_change(ctx: Context, params: CallToolRequestParams) -> Result:
    if PASSING_PROMPTS:
        PASSING_PROMPTS.clear()
    else:
        PASSING_PROMPTS.append("test_passing_prompt")
    await BUS.publish(PromptsListChanged())
    if not _is_modern(ctx):
        await ctx.session.send_prompt_list_changed()
    return text("Changed.")


@_tool("Says that a resource changed", {"type": "object", "properties": {"uri": {"type": "string"}}})
async def test_trigger_resource_update(ctx: Context, params: CallToolRequestParams) -> Result:
    uri = str((params.arguments or {})["uri"])
    await BUS.publish(ResourceUpdated(uri))
    if not _is_modern(ctx):
        await ctx.session.send_resource_updated(uri)
    return text("Told.")


@_tool("Asks for a name")
async def test_input_required_result_elicitation(ctx: Context, params: CallToolRequestParams) -> Result:
    answers = await _answers(ctx, params, {"user_name": ask_form("What is your name?", name={"type": "string"})})
    if isinstance(answers, InputRequiredResult):
        return answers
    answer = answers["user_name"]
    content = answer.content or {} if isinstance(answer, ElicitResult) else {}
    return text(f"Hello, {content.get('name', 'stranger')}!")


@_tool("Ends its call with a question, whatever the era of its client", reads=True)
async def test_questions_at_the_end(ctx: Context, params: CallToolRequestParams) -> Result:
    asked: dict[str, InputRequest] = {"user_name": ask_form("What is your name?", name={"type": "string"})}
    return text("Hello!") if params.input_responses else InputRequiredResult(input_requests=asked)


@_tool("Asks the client's model")
async def test_input_required_result_sampling(ctx: Context, params: CallToolRequestParams) -> Result:
    question = _ask_model("What is the capital of France?", max_tokens=100)
    answers = await _answers(ctx, params, {"capital_question": question})
    return answers if isinstance(answers, InputRequiredResult) else text(_said(answers["capital_question"]))


@_tool("Asks for the client's roots")
async def test_input_required_result_list_roots(ctx: Context, params: CallToolRequestParams) -> Result:
    answers = await _answers(ctx, params, {"client_roots": ListRootsRequest()})
    if isinstance(answers, InputRequiredResult):
        return answers
    answer = answers["client_roots"]
    roots = answer.roots if isinstance(answer, ListRootsResult) else []
    return text("Roots: " + ", ".join(str(root.uri) for root in roots))


@_tool("Asks for a confirmation and checks the state that comes back")
async def test_input_required_result_request_state(ctx: Context, params: CallToolRequestParams) -> Result:
    answers = await _answers(ctx, params, {"confirm": _confirm()}, state="asked")
    return answers if isinstance(answers, InputRequiredResult) else text("state-ok")


@_tool("Refuses a state that is not its own")
async def test_input_required_result_tampered_state(ctx: Context, params: CallToolRequestParams) -> Result:
    answers = await _answers(ctx, params, {"confirm": _confirm()}, state="signed")
    return answers if isinstance(answers, InputRequiredResult) else text("state-ok")


@_tool("Asks three things at once")
async def test_input_required_result_multiple_inputs(ctx: Context, params: CallToolRequestParams) -> Result:
    asked: dict[str, InputRequest] = {
        "user_name": ask_form("What is your name?", name={"type": "string"}),
        "greeting": _ask_model("Generate a greeting", max_tokens=50),
        "client_roots": ListRootsRequest(),
    }
    answers = await _answers(ctx, params, asked, state="three")
    return answers if isinstance(answers, InputRequiredResult) else text("All three came back.")


@_tool("Asks twice, one thing after the other")
async def test_input_required_result_multi_round(ctx: Context, params: CallToolRequestParams) -> Result:
    second: dict[str, InputRequest] = {
        "step2": ask_form("Step 2: What is your favorite color?", color={"type": "string"})
    }
    if params.request_state != "round-2":
        first = {"step1": ask_form("Step 1: What is your name?", name={"type": "string"})}
        answers = await _answers(ctx, params, first, state="round-1")
        if isinstance(answers, InputRequiredResult):
            return answers
        if _is_modern(ctx):
            return InputRequiredResult(input_requests=second, request_state="round-2")
    answers = await _answers(ctx, params, second, state="round-2")
    return answers if isinstance(answers, InputRequiredResult) else text("Both rounds are done.")


@_tool("Asks only for what the client declared that it can do")
async def test_input_required_result_capabilities(ctx: Context, params: CallToolRequestParams) -> Result:
    asked: dict[str, InputRequest] = {}
    if _can_sample(ctx):
        asked["question"] = _ask_model("Say hello", max_tokens=20)
    if ctx.session.check_client_capability(ClientCapabilities(elicitation=ElicitationCapability())):
        asked["user_name"] = ask_form("What is your name?", name={"type": "string"})
    answers = await _answers(ctx, params, asked)
    return answers if isinstance(answers, InputRequiredResult) else text(f"Answered: {sorted(answers)}")


@_tool(
    "Takes arguments that only JSON Schema 2020-12 describes",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema_2020_12_tool(ctx: Context, params: CallToolRequestParams) -> Result:
    return text(f"Called with {json.dumps(params.arguments, sort_keys=True)}")


@_tool(
    "Takes an argument that is mirrored in a request header",
    {
        "type": "object",
        "properties": {"region": {"type": "string", "description": "Where to run", "x-mcp-header": "Region"}},
    },
)
async def test_x_mcp_header(ctx: Context, params: CallToolRequestParams) -> Result:
    return text(f"region={(params.arguments or {}).get('region', '')}")


async def _run_passing(ctx: Context, params: CallToolRequestParams) -> Result:
    return text("Here now.")


_PASSING = EverythingTool(name="test_passing_tool", description="Comes and goes", run=_run_passing)


async def _answers(
    ctx: Context, params: CallToolRequestParams, asked: Mapping[str, InputRequest], state: str | None = None
) -> dict[str, InputResponse] | InputRequiredResult:
    """Return the client's answers to `asked`, or the result that asks for them; `state` must come back with them."""
    if not _is_modern(ctx):
        return {name: await _ask_now(ctx, request) for name, request in asked.items()}
    answers = params.input_responses or {}
    if not asked.keys() <= answers.keys():
        return InputRequiredResult(input_requests=dict(asked), request_state=state)
    if params.request_state != state:
        raise MCPError(INVALID_PARAMS, "the answers came without the requestState that was sent with the questions")
    return answers


async def _ask_now(ctx: Context, request: InputRequest) -> InputResponse:
    """Ask a legacy client over the stream of the call that is running."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    match request:
        case ElicitRequest():
            return await ctx.session.send_request(request, ElicitResult, metadata=related)
        case CreateMessageRequest():
            return await ctx.session.send_request(request, CreateMessageResult, metadata=related)
        case ListRootsRequest():
            return await ctx.session.send_request(request, ListRootsResult, metadata=related)


async def _filled_in(ctx: Context, params: CallToolRequestParams, form: ElicitRequest) -> Result:
    answers = await _answers(ctx, params, {"form": form})
    if isinstance(answers, InputRequiredResult):
        return answers
    return _completed(answers["form"])


async def _filled_in_now(ctx: Context, form: ElicitRequest) -> Result:
    """Ask in the middle of the call, which the handshake era alone allows: most tools of users do no better."""
    return _completed(await _ask_now(ctx, form))


def _completed(answer: InputResponse) -> Result:
    if not isinstance(answer, ElicitResult):
        raise MCPError(INVALID_PARAMS, "the answer to 'form' is not the result of an elicitation")
    return text(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")


def _ask_optional(properties: Schema) -> ElicitRequest:
    schema: Schema = {"type": "object", "properties": properties, "required": []}
    return ElicitRequest(params=ElicitRequestFormParams(message="Please fill in the form", requested_schema=schema))


async def _log(ctx: Context, line: str) -> None:
    """Log at level info: to every legacy client, to a modern one only when the request asked for logs."""
    if _is_modern(ctx) and not (ctx.meta or {}).get(_LOG_LEVEL):
        return
    params = LoggingMessageNotificationParams(level="info", data=line)
    await ctx.session.send_notification(LoggingMessageNotification(params=params), ctx.request_id)


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version >= "2026-07-28"


def _can_sample(ctx: Context) -> bool:
    return ctx.session.check_client_capability(ClientCapabilities(sampling=SamplingCapability()))


def _confirm() -> ElicitRequest:
    return ask_form("Please confirm", ok={"type": "boolean"})


def _ask_model(prompt: str, *, max_tokens: int) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


def _said(answer: InputResponse) -> str:
    if isinstance(answer, CreateMessageResult) and isinstance(answer.content, TextContent):
        return answer.content.text
    return f"(no text: {type(answer).__name__})"


def _image() -> ImageContent:
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def _embedded(uri: str, mime_type: str, value: str) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=value))
