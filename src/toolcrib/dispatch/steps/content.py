"""Steps on the content of a result: enrich, version notes, redact, provenance, examine untrusted text."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from ...catalog.resources import RESOURCES
from ...core.call import Call
from ...core.result import ToolError, ToolResult
from ...core.schema import compile_schema
from ...core.tool import Tool
from ...disclosure.meta_tools import SOURCE
from ...jobs.tools import SOURCE as JOBS
from ...policy.origin import Origin, origin_of_result
from ...policy.taint import Taint
from ...results.redact import Redactor
from ...results.untrusted_text import suspicions, visible_json, visible_text
from ..plan import After, Subject

__all__ = ["Enrich", "Enricher", "Examine", "NoteVersion", "Provenance", "Redact"]

Enricher = Callable[[Call, ToolResult], Awaitable[ToolResult]]

_logger = logging.getLogger("toolcrib.dispatch")


class Enrich:
    """The first step after the execution. Subscribers may come at any time."""

    def __init__(self) -> None:
        """Start without subscribers."""
        self._enrichers: list[tuple[int, Enricher]] = []

    def subscribe(self, enricher: Enricher, *, priority: int = 0) -> None:
        """Call `enricher` with every success from now on; a higher priority comes earlier."""
        self._enrichers.append((priority, enricher))
        self._enrichers.sort(key=lambda entry: -entry[0])

    def __call__(self, call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
        """Return `result` with the subscribers' additions; a replay has them already, and a dry run gets none."""
        if not self._enrichers or result.is_error or call.grant is None:
            return result
        return self._enriched(call, result)

    async def _enriched(self, call: Call, result: ToolResult) -> ToolResult:
        for _, enricher in self._enrichers:
            try:
                result = _result(await enricher(call, result))
            except Exception:
                _logger.exception("an enricher failed on call %s of %s", call.id, call.name)
        return result


def _result(enriched: object) -> ToolResult:
    """Return an enricher's result; raises `TypeError` when it returned none."""
    if not isinstance(enriched, ToolResult):
        raise TypeError(f"an enricher returned {type(enriched).__name__}, not a ToolResult")
    return enriched


class NoteVersion:
    """Report a deprecated tool, and arguments that were migrated."""

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result with `version` in its metadata, where there is something to report."""
        tool = call.tool
        if tool is None or not (tool.deprecated or call.changes.migrated):
            return result
        version = {
            "ran": tool.version,
            "migrated_from": call.changes.migrated,
            "deprecated": tool.deprecated,
            "replaced_by": tool.replaced_by,
        }
        return result.with_meta(version={key: value for key, value in version.items() if value})

    def bind(self, subject: Subject) -> After | None:
        """Return nothing for a tool that is not deprecated and has no migrations."""
        tool = subject.tool
        return None if tool is None or not (tool.deprecated or tool.migrations) else self


class Redact:
    """Mask secrets in a result."""

    def __init__(self, redactor: Redactor) -> None:
        """`redactor` knows the formats of secrets, and our own."""
        self._redactor = redactor

    def __call__(self, call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
        """Return the result without secrets."""
        redactor = self._redactor
        if redactor.is_clean(result):
            return result
        return redactor.result(result) if redactor.is_quick(result) else redactor.clean(result)


_OURS: Final = frozenset({SOURCE, JOBS, RESOURCES})
"""Sources that pass on foreign content: their results carry its origin themselves."""

_OUR_WORDS: Final = frozenset({"budget_exceeded", "internal", "overloaded", "storage", "timeout"})
"""Codes whose messages are always ours. `denied` is not among them: after a grant it comes from an API."""


class Provenance:
    """Mark a result with its origin, and apply its trust to the session."""

    def __init__(self, taint: Taint) -> None:
        """`taint` decides which content is untrusted."""
        self._taint = taint

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result with `source` and `trust` in its metadata. A refusal is our own word, and local."""
        tool = call.tool
        return self._marked(call, result, tool, None if tool is None else self._taint.origin_of(tool))

    def bind(self, subject: Subject) -> After:
        """Return the step for one tool, whose trust no call changes."""
        tool = subject.tool
        if tool is None:
            return self
        origin = self._taint.origin_of(tool)
        trust = origin.trust
        is_noted, hands_on = self._taint.is_noted(tool, trust), tool.source in _OURS or tool.origin == "workflow"
        source = tool.source

        def mark(call: Call, result: ToolResult) -> ToolResult:
            if is_noted or hands_on or call.grant is None or result.error is not None or result.meta.get("trust"):
                return self._marked(call, result, tool, origin)
            return result.with_meta(source=source, trust=trust)

        return mark

    def _marked(self, call: Call, result: ToolResult, tool: Tool | None, origin: Origin | None) -> ToolResult:
        marked = result.meta.get("trust")
        is_ours = result.error is not None and result.error.code in _OUR_WORDS and marked != "untrusted"
        if tool is None or origin is None or is_ours or (call.grant is None and not result.meta.get("replayed")):
            return result.with_meta(source=SOURCE, trust="local")
        hands_on = tool.source in _OURS or tool.origin == "workflow"
        if marked == "untrusted" or (hands_on and marked is not None):
            if marked == "untrusted":
                self._taint.note(tool, "untrusted", call.session, result.text)
            return result  # the result of another call, handed on
        trust = origin_of_result(tool, call.arguments, result, origin).trust
        if result.input_required is None and self._taint.is_noted(tool, trust):
            text = result.text if result.spooled is None else f"{result.spooled.head}\n{result.spooled.tail}"
            self._taint.note(tool, trust, call.session, text)
        return result.with_meta(source=tool.source, trust=trust)


_SCANNED: Final = 64 * 1024
"""Characters of shown text in which commands to the model are looked for; 0.3 ms."""


class Examine:
    """Remove invisible characters from an untrusted result, and report text that looks like instructions."""

    def __init__(self, taint: Taint) -> None:
        """`taint` records suspicious text."""
        self._taint = taint

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as a person would see it, with `hidden` (how many characters) and `suspicious`."""
        if result.meta.get("trust") != "untrusted" or result.input_required is not None or "fenced" in result.meta:
            return result
        found = suspicions(result.text[:_SCANNED])
        shown, hidden = _visible(call, result)
        if call.origin != "cli":  # a person at a terminal gets escapes, and may ask for the raw text
            result = shown
        findings: dict[str, Any] = {"hidden": hidden} if hidden else {}
        findings |= {"suspicious": list(found)} if found else {}
        if found and call.tool is not None:
            self._taint.stain(call.tool, call.session)
        return result.with_meta(**findings) if findings else result


def _visible(call: Call, result: ToolResult) -> tuple[ToolResult, int]:
    content: list[Mapping[str, Any]] = []
    hidden = 0
    for block in result.content:
        shown, count = _visible_block(block)
        content.append(shown)
        hidden += count
    structured, count = visible_json(result.structured_content)
    hidden += count
    error = result.error
    if error is not None:
        error, count = _visible_error(error)
        hidden += count
    if not hidden:
        return result, 0
    shown = replace(result, content=tuple(content), structured_content=structured, error=error)
    return (shown if structured is result.structured_content else _kept_valid(call, shown)), hidden


def _visible_block(block: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """Return the block with its text made visible; data (base64, a URI) and unknown blocks stay unchanged."""
    words = {key: block[key] for key in ("text", "title", "name", "description") if isinstance(block.get(key), str)}
    shown, hidden = visible_json(words)
    inner: Any = block.get("resource")
    if isinstance(inner, Mapping):
        resource = cast("Mapping[str, Any]", inner)
        text, count = visible_text(resource["text"]) if isinstance(resource.get("text"), str) else ("", 0)
        hidden += count
        shown = {**shown, "resource": {**resource, "text": text}} if count else shown
    return ({**block, **shown}, hidden) if hidden else (block, 0)


def _visible_error(error: ToolError) -> tuple[ToolError, int]:
    words, hidden = visible_json({"message": error.message, "hint": error.hint, "details": error.details})
    return (replace(error, **words), hidden) if hidden else (error, 0)


def _kept_valid(call: Call, result: ToolResult) -> ToolResult:
    """Return the result, or an error if its structured content matches its schema only with hidden characters."""
    schema = call.tool.output_schema if call.tool is not None else None
    if schema is None or result.error is not None or not compile_schema(schema).check(result.structured_content):
        return result
    message = f"{call.name} ran, and its structured content keeps its schema only with invisible characters"
    return replace(result, structured_content=None, error=ToolError(code="tool_error", message=message))
