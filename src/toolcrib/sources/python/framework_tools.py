"""Tools of other frameworks: `BaseTool` of LangChain, `Tool` of Pydantic AI, `FunctionTool` of OpenAI Agents.

`converted` recognises one by its class, without importing anything, and returns a function that runs it, with the
options that the tool itself states: name, description, schema, approval, time. None of these frameworks says what a
call does, so that a tool counts as destructive until `tool(kind="read")(it)` says more.

A tool of Pydantic AI or OpenAI Agents gets the context of the run that calls it (`in_run`).
What needs more of its framework's agent (guardrails, injected state) cannot run here: it is refused when it is added.
"""

from __future__ import annotations

import copy
import inspect
import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

from ...core.json import dumps
from ...errors import ToolFailure, UsageError

if TYPE_CHECKING:  # a program that has such a tool has loaded its framework
    from agents import FunctionTool
    from langchain_core.tools import BaseTool
    from pydantic_ai import Tool

Call = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Runs a tool with arguments; raises `ToolFailure` for what the model is to read."""
_Converted = tuple[dict[str, Any], Call]
"""Options of `@tool`, and how the tool is run."""

_MEDIA: Final = ("image", "audio")
_RUN: Final = ContextVar[Any]("toolcrib_framework_run", default=None)
"""The `RunContext` of Pydantic AI, or the `RunContextWrapper` of OpenAI Agents, in whose run a call is made."""


@contextmanager
def in_run(context: object) -> Generator[None]:
    """Let the tools that are called meanwhile have the `context` of their framework's run."""
    token = _RUN.set(context)
    try:
        yield
    finally:
        _RUN.reset(token)


def converted(thing: object) -> tuple[Callable[..., Awaitable[Any]], dict[str, Any]] | None:
    """Return a function that runs the tool `thing`, and its options; None where it is none that is known here.

    Raises `UsageError` for one that cannot run outside of its framework.
    """
    for kind in type(thing).__mro__:
        if (convert := _CONVERT.get(f"{kind.__module__}.{kind.__qualname__}")) is not None:
            break
    else:
        return None
    options, call = convert(cast("Any", thing))
    schema = {name: part for name, part in options["input_schema"].items() if name not in ("title", "description")}
    options["input_schema"] = {"type": "object", "properties": {}, **schema}

    async def run(**arguments: Any) -> Any:
        return await call(arguments)

    run.__module__, run.__qualname__ = type(thing).__module__, f"{type(thing).__qualname__} {options['name']}"
    return run, {name: value for name, value in options.items() if value not in (None, "")}


def _langchain(tool: BaseTool) -> _Converted:
    from langchain_core.tools import InjectedToolCallId, ToolException
    from langchain_core.utils.function_calling import convert_to_openai_function

    given: dict[str, Any] = convert_to_openai_function(tool).get("parameters", {})
    shown: Mapping[str, Any] = given.get("properties", {})
    for name, field in getattr(tool.args_schema, "model_fields", {}).items():
        if name not in shown and field.is_required() and InjectedToolCallId not in field.metadata:
            raise _needs_agent(tool.name, f"the argument {name!r}, which a graph of LangGraph injects")

    async def call(arguments: Mapping[str, Any]) -> Any:
        made = {"type": "tool_call", "id": secrets.token_hex(16), "name": tool.name, "args": dict(arguments)}
        try:
            message: Any = await tool.ainvoke(made)
        except ToolException as error:
            raise ToolFailure("tool_error", str(error)) from error
        if type(message).__name__ != "ToolMessage":
            raise ToolFailure("tool_error", f"it returned a {type(message).__name__}, which only a graph can take")
        if message.status == "error":
            raise ToolFailure("tool_error", message.text)
        return message.content if isinstance(message.content, str) else [*map(_block, message.content_blocks)]

    return {"name": tool.name, "description": tool.description, "input_schema": given}, call


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a content block of LangChain as one of MCP."""
    if block.get("type") == "text":
        return {"type": "text", "text": block.get("text", "")}
    if isinstance(data := block.get("base64"), str):
        return _medium(data, str(block.get("mime_type") or "application/octet-stream"))
    return _text(block)


def _pydantic_ai(tool: Tool[Any]) -> _Converted:
    from pydantic import ValidationError
    from pydantic_ai import RunContext
    from pydantic_ai.exceptions import ModelRetry, ToolFailed

    for name in ("prepare", "args_validator"):
        if getattr(tool, name):
            raise _needs_agent(tool.name, f"a RunContext (`{name}`), which a run of Pydantic AI makes")
    function = tool.function_schema

    async def call(arguments: Mapping[str, Any]) -> Any:
        run: Any = _RUN.get()
        if tool.takes_ctx and not isinstance(run, RunContext):
            raise ToolFailure("tool_error", f"{tool.name} needs the RunContext of an agent of Pydantic AI")
        try:
            taken = function.validator.validate_python(dict(arguments))
        except ValidationError as error:
            reasons = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
            raise ToolFailure("invalid_arguments", f"the arguments do not fit: {'; '.join(reasons)}") from None
        try:
            value = await function.call(taken, cast("Any", run))
        except (ModelRetry, ToolFailed) as error:
            raise ToolFailure("tool_error", error.message) from error
        value = value.return_value if hasattr(value, "return_value") else value
        return _of_parts(value, _of_pydantic_ai)

    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.tool_def.parameters_json_schema,
        "approval": "always" if tool.requires_approval else None,
        "serial": tool.sequential or None,
        "timeout": tool.timeout,
    }, call


def _of_pydantic_ai(value: Any) -> dict[str, Any] | None:
    if getattr(value, "kind", None) == "binary":
        return _medium(value.base64, value.media_type)
    return None


def _openai_agents(given: FunctionTool) -> _Converted:
    from agents.tool import set_function_tool_failure_error_function
    from agents.tool_context import ToolContext

    for name in ("tool_input_guardrails", "tool_output_guardrails"):
        if getattr(given, name):
            raise _needs_agent(given.name, f"`{name}`, which a run of OpenAI Agents checks")
    if given.is_enabled is not True:
        raise _needs_agent(given.name, "`is_enabled`, which a run of OpenAI Agents decides")
    explains: Any = None if getattr(given, "_use_default_failure_error_function", True) else _explanation(given)
    tool = set_function_tool_failure_error_function(copy.copy(given), None)  # an error is not a result

    async def call(arguments: Mapping[str, Any]) -> Any:
        text = dumps(arguments).decode()
        of_run = getattr(_RUN.get(), "context", None)
        call_id = secrets.token_hex(16)
        context = ToolContext[Any](of_run, tool_name=tool.name, tool_call_id=call_id, tool_arguments=text)
        try:
            value = await tool.on_invoke_tool(context, text)
        except Exception as error:
            if explains is None:
                raise
            words = explains(context, error)
            raise ToolFailure("tool_error", str(await words if inspect.isawaitable(words) else words)) from error
        return _of_parts(value, _of_openai_agents)

    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.params_json_schema,
        "approval": "always" if tool.needs_approval else None,
        "timeout": tool.timeout_seconds,
    }, call


def _explanation(tool: FunctionTool) -> Any:
    return getattr(tool, "_failure_error_function", None)


def _of_openai_agents(value: Any) -> dict[str, Any] | None:
    kind = type(value).__name__
    if kind == "ToolOutputText":
        return {"type": "text", "text": value.text}
    if kind == "ToolOutputImage" and str(value.image_url).startswith("data:"):
        head, _, data = value.image_url.partition(",")
        return _medium(data, head[5:].partition(";")[0])
    if kind == "ToolOutputFileContent" and value.file_data:
        return _medium(value.file_data.rpartition(",")[2], "application/octet-stream")
    return None


def _of_parts(value: Any, part: Callable[[Any], dict[str, Any] | None]) -> Any:
    """Return content blocks where `value` is a medium of a framework or a list with one; else `value` itself."""
    values = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
    blocks = [part(one) for one in values]
    if not any(blocks):
        return cast("Any", value)
    return [block or _text(one) for block, one in zip(blocks, values, strict=True)]


def _text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value if isinstance(value, str) else dumps(value).decode()}


def _medium(data: str, media_type: str) -> dict[str, Any]:
    """Return base64 data as a content block of MCP."""
    kind = media_type.partition("/")[0]
    if kind in _MEDIA:
        return {"type": kind, "data": data, "mimeType": media_type}
    return {"type": "resource", "resource": {"uri": "file:///result", "mimeType": media_type, "blob": data}}


def _needs_agent(name: str, what: str) -> UsageError:
    message = f"{name} cannot run outside of its framework: it needs {what}"
    return UsageError(f"{message}; leave it among the agent's own tools")


_CONVERT: Final[Mapping[str, Callable[[Any], _Converted]]] = {
    "agents.tool.FunctionTool": _openai_agents,
    "langchain_core.tools.base.BaseTool": _langchain,
    "pydantic_ai.tools.Tool": _pydantic_ai,
}
"""By module and name of a class."""
