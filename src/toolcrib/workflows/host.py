"""Common parts of the tools that run several calls: services of a crib, options, and outcomes of their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from ..catalog.catalog import Catalog
from ..core.context import Context
from ..core.json import read_json
from ..core.result import ToolError, ToolResult, Trust
from ..core.tool import Tool
from ..crib.assembly import Parts
from ..errors import ToolFailure
from ..sources.python.declaration import tool

F = TypeVar("F", bound=Callable[..., Any])

_INSIDE_WORKFLOW: Final = ContextVar("inside", default=False)

CallTool = Callable[..., Awaitable[ToolResult]]
"""Makes one call of the session that runs the workflow: `call_tool(name, arguments, **fields of Call)`."""


class WorkflowHost:
    """Services of a crib for workflows. Lives as long as their slice."""

    def __init__(self, parts: Parts) -> None:
        self.jobs = parts.jobs
        self.runs = parts.storage.store.workflows
        """The states of runs that have not succeeded."""
        self._tools = parts.tools
        self._calls = parts.calls
        self._views = parts.views
        self._policy = parts.policy
        self._sessions = parts.session_table

    @property
    def catalog(self) -> Catalog:
        """The current catalog."""
        return self._tools.catalog

    def door_of(self, context: Context) -> CallTool:
        """Return the function that makes calls of the same session."""
        return self._calls.door_of(context)

    def find(self, context: Context, name: str) -> Tool | None:
        """Return the tool that the session of a call means by `name`: the profile's name for it, or its own."""
        return self.catalog.find(name) or self._views.visible_of(context).find(name)

    def recall(self, context: Context, tool: str, trust: Trust) -> None:
        """Take note that what `tool` gave an earlier session goes on in this one: private, or written by strangers."""
        state, found = self._sessions.find(context.principal, context.session_key), self.catalog.find(tool)
        if state is not None and found is not None:
            self._policy.taint.note(found, trust, state, "", is_strict=self._policy.is_strict())


def steps_tool(op: str, *, module: str, extra: str, **more: Any) -> Callable[[F], F]:
    """Return the decorator of a tool that runs steps which a model wrote; `extra` brings the `module` that it needs.

    It is never asked about: each of its steps is a call with a permission of its own.
    """
    return tool(
        op=op,
        category="coordination",
        kind="destructive",
        idempotent=False,
        approval="never",
        priority=60,
        background_after=60,
        timeout=86_400,
        lacks=lambda _: "" if find_spec(module) is not None else f"the extra `{extra}`",
        **more,
    )


def refuse_within() -> None:
    """Raise `ToolFailure` in a call of steps that a model wrote: what starts such steps could start itself."""
    if _INSIDE_WORKFLOW.get():
        hint = "write its steps into this one"
        raise ToolFailure("invalid_arguments", "a pipeline or program cannot run another one", hint=hint)


@contextmanager
def once_within() -> Generator[None]:
    """Run steps that a model wrote. Raises `ToolFailure` within others."""
    refuse_within()
    inside = _INSIDE_WORKFLOW.set(True)
    try:
        yield
    finally:
        _INSIDE_WORKFLOW.reset(inside)


_CUT_OFF_CODES: Final = ("cancelled", "outcome_unknown")
"""Outcomes of a call that was stopped midway."""


def was_cut_off(result: ToolResult) -> bool:
    """Whether this is the outcome of a call that an earlier process left unfinished."""
    return "replayed" in result.meta and result.error is not None and result.error.code in _CUT_OFF_CODES


def failure_of(result: ToolResult) -> ToolError | None:
    """Return why there is no value; None if there is one."""
    if was_cut_off(result):
        reason = result.error.message if result.error is not None else ""
        return ToolError(code="outcome_unknown", message=f"it was cut off, and not run again: {reason}")
    if result.input_required is not None:
        return ToolError(code="tool_error", message="the tool asks its client for input, which no other tool can give")
    if result.error is None and "artifact" in result.meta:
        id = result.meta["artifact"]
        return ToolError(code="too_large", message=f"the result is too large to be handed on; artifact {id} has it")
    return result.error


def value_of(result: ToolResult) -> Any:
    """Return the structured content, else the text, parsed if it is a JSON object or array.

    A result without text gives its content blocks: an image can be handed on, or returned to the model.
    """
    if result.structured_content is not None:
        return result.structured_content
    text = result.text
    if not text and any(block.get("type") != "text" for block in result.content):
        return [dict(block) for block in result.content]
    if text.lstrip()[:1] in ("{", "["):
        try:
            return read_json(text, limit=len(text))
        except ValueError:
            return text
    return text


def least_trusted(known: Iterable[Trust]) -> Trust:
    """Return the trust of what was made of results of these trusts."""
    found = {*known}
    return "untrusted" if "untrusted" in found else "reviewed" if "reviewed" in found else "local"
