"""Tools of one server as its newest list has them, and what a call needs of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.schema import Validator, compile_schema
from ...core.tool import Tool
from ...errors import ToolFailure
from ...mcp.client.session import ClientSession
from ...mcp.client.spec import ServerSpec
from ...mcp.headers import header_paths, parameter_headers
from ..source import Listing
from .tool_list import same


class ListedTools:
    """The newest list. What is made of a definition is kept until the next one."""

    def __init__(self, spec: ServerSpec, *, reviewed: bool) -> None:
        """Where definitions are `reviewed`, a tool whose definition changed since the caller saw it is refused."""
        self._spec = spec
        self._reviewed = reviewed
        self._tools: dict[str, Tool] = {}
        self._outputs: dict[str, Validator] = {}
        self._paths: dict[str, Mapping[tuple[str, ...], str]] = {}

    def replace(self, listing: Listing) -> None:
        """Take another list."""
        self._tools = {tool.local_name: tool for tool in listing.tools}
        self._outputs, self._paths = {}, {}

    def current(self, tool: Tool) -> Tool:
        """Return the tool as it is listed now; refuse it if the caller saw another definition, or it is gone.

        Every connection is listed before it takes calls, so that a server cannot change while it restarts.
        """
        current = self._tools.get(tool.local_name)
        if current is None:
            raise ToolFailure(
                "definition_changed",
                f"server {self._spec.name!r} no longer has the tool {tool.local_name!r}",
                hint="Look for another tool.",
            )
        same_input = current.input_schema is tool.input_schema or same(current.input_schema, tool.input_schema)
        same_output = current.output_schema is tool.output_schema or same(current.output_schema, tool.output_schema)
        same_words = current.description == tool.description and current.annotations == tool.annotations
        if self._reviewed and not (same_input and same_output and same_words and current.title == tool.title):
            raise ToolFailure(
                "definition_changed",
                f"server {self._spec.name!r} describes {tool.local_name!r} otherwise than when it was looked up",
                hint="Look the tool up again.",
            )
        return current

    def output(self, tool: Tool) -> Validator | None:
        """Return the validator of what the tool promises to return; None where it promises nothing."""
        if tool.output_schema is None:
            return None
        validator = self._outputs.get(tool.local_name)
        if validator is None:
            validator = compile_schema(tool.output_schema, strict_extra=False)
            self._outputs[tool.local_name] = validator
        return validator

    def headers(self, tool: Tool, session: ClientSession, arguments: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the arguments that go along as headers; only HTTP of the modern era has any."""
        if self._spec.transport != "http" or not session.era.modern:
            return None
        paths = self._paths.get(tool.local_name)
        if paths is None:
            paths = self._paths[tool.local_name] = header_paths(tool.input_schema)
        return parameter_headers(paths, arguments) if paths else None
