"""Steps on the content of a result, in this order: enrich, version notes, redact, provenance, limit, examine, wrap."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from ...catalog.catalog import BUILTIN_SOURCES
from ...catalog.resources import RESOURCES
from ...core.call import UNCHANGED, Call
from ...core.kept_secrets import KeptSecrets
from ...core.own_commands import with_files
from ...core.result import ToolError, ToolResult
from ...core.schema import compile_schema
from ...core.session import LOCAL, SessionState
from ...core.tool import Tool
from ...disclosure.base import Profile
from ...disclosure.envelopes import ENVELOPES, KEEP_SUCCESSES
from ...disclosure.meta_tools import SOURCE
from ...disclosure.profiles import envelope_of
from ...disclosure.renames import NO_NAMING, in_profile_words
from ...jobs.tools import SOURCE as JOBS
from ...jobs.tools import is_settled
from ...policy.origin import Origin, origin_of_result
from ...policy.secret_arguments import place_of
from ...policy.taint import Taint
from ...results.limit import HINTS, Limiter, LimitOptions
from ...results.redaction.redactor import IN_THREAD, Redactor
from ...results.untrusted_text import fenced, hidden_characters, suspicions, visible_json, visible_text
from ..plan import After, Subject

Enricher = Callable[[Call, ToolResult], Awaitable[ToolResult]]

_logger = logging.getLogger("toolcrib.dispatch")

_OURS: Final = frozenset({SOURCE, JOBS, RESOURCES})
"""Sources that pass on foreign content: their results carry its origin themselves."""

_OUR_WORDS: Final = frozenset({"budget_exceeded", "internal", "overloaded", "storage", "timeout"})
"""Codes whose messages are always ours. `denied` is not among them: after a grant it comes from an API."""

_SCANNED: Final = 64 * 1024
"""Characters of shown text in which commands to the model are looked for; 0.3 ms."""


class Enrich:
    """The first step after the execution. Subscribers may come at any time."""

    def __init__(self) -> None:
        """Start without subscribers."""
        self._enrichers: list[tuple[int, Enricher]] = []

    def subscribe(self, enricher: Enricher, *, priority: int = 0) -> Callable[[], None]:
        """Call `enricher` with every success from now on; a higher priority comes earlier. Return what ends that."""
        entry = (priority, enricher)
        self._enrichers = sorted((*self._enrichers, entry), key=lambda entry: -entry[0])

        def end() -> None:
            self._enrichers = [one for one in self._enrichers if one is not entry]

        return end

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
        return result.evolve(content=tuple(map(dict, result.content)))  # one may have changed the value in place


def _result(enriched: object) -> ToolResult:
    """Return an enricher's result; raises `TypeError` when it returned none."""
    if not isinstance(enriched, ToolResult):
        raise TypeError(f"an enricher returned {type(enriched).__name__}, not a ToolResult")
    return enriched


class NoteVersion:
    """Report a deprecated tool, and arguments that were migrated."""

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result with `version` in its metadata, if there is something to report."""
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


class NameFiles:
    """Name the configuration files of this process in the commands of a failure, where they are not the usual ones."""

    def __init__(self, options: str) -> None:
        """`options` are those of a command, for a shell."""
        self._options = options

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return a failure of ours with whole commands; what another source's tool reports stays.

        An identity of a network has no use for paths of this machine.
        """
        error = result.error
        if error is None or call.session.principal != LOCAL or _is_foreign(call, error):
            return result
        command = error.details.get("command") if error.code == "approval_pending" else None
        details = {**error.details, "command": f"{command} {self._options}"} if command else error.details
        message, hint = (with_files(text, self._options) for text in (error.message, error.hint))
        blocks = tuple(
            {**block, "text": with_files(str(block["text"]), self._options)} if block.get("type") == "text" else block
            for block in result.content
        )
        return result.evolve(content=blocks, error=replace(error, message=message, hint=hint, details=details))


class Redact:
    """Mask secrets in a result; an uncertain find becomes a placeholder that a later call can bring back."""

    def __init__(self, redactor: Redactor) -> None:
        """`redactor` knows the formats of secrets, and our own."""
        self._redactor = redactor

    def __call__(self, call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
        """Return the result without secrets; a short text that no format occurs in is one look."""
        match = self._redactor.search.match  # of every principal: what it does not find, none has
        text = None if result.meta or result.error is not None else result.only_text
        if text is not None and len(text) <= IN_THREAD and not match(text.encode("utf-8", "surrogatepass")):
            return result
        redactor = self._redactor.of(call.session.principal)
        if redactor.is_quick(result):
            clean = redactor.result(result)
            return clean if clean is result or not _keeps(call) else _keeping(redactor, call).result(result)
        return self._long(redactor, call, result)

    async def _long(self, redactor: Redactor, call: Call, result: ToolResult) -> ToolResult:
        clean = await redactor.clean(result)
        return clean if clean is result or not _keeps(call) else await _keeping(redactor, call).clean(result)


def _keeps(call: Call) -> bool:
    """Whether a later call can bring back values of this one: it ran, and its conversation goes on."""
    return call.grant is not None and call.origin != "cli" and call.target.source not in _OURS


def _keeping(redactor: Redactor, call: Call) -> Redactor:
    """Return the redactor that shows placeholders where a find is not certain."""
    kept, source = call.session.state_of(KeptSecrets), place_of(call.target)

    def keep(value: str, is_certain: bool) -> str:
        return kept.known(value) if is_certain else kept.keep(value, source)

    return redactor.keeping(keep)


class Provenance:
    """Mark a result with its origin, and apply its trust to the session."""

    def __init__(self, taint: Taint, is_strict: Callable[[], bool]) -> None:
        """`taint` decides which content is untrusted; `is_strict`: whether the guard of a gateway is switched on."""
        self._taint = taint
        self._is_strict = is_strict

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
        is_refusal = result.error is not None and marked != "untrusted"
        is_ours = is_refusal and (marked == "local" or (result.error and result.error.code in _OUR_WORDS))
        if tool is None or origin is None or is_ours or (call.grant is None and not result.meta.get("replayed")):
            return result.with_meta(source=SOURCE, trust="local")
        hands_on = tool.source in _OURS or tool.origin == "workflow"
        if marked == "untrusted" or (hands_on and marked is not None):
            if marked == "untrusted":  # its links are not noted: a program or a file may have put them together here
                self._taint.note(tool, "untrusted", call.session, "", is_strict=self._is_strict())
            return result  # the result of another call, handed on
        trust = origin_of_result(tool, call.arguments, result, origin).trust
        # A client answers a request for input, and the next result taints; elsewhere a model reads the request itself.
        is_read = result.input_required is None or not call.session.audience.is_client
        if is_read and self._taint.is_noted(tool, trust):
            text = result.text if result.spooled is None else f"{result.spooled.head}\n{result.spooled.tail}"
            self._taint.note(tool, trust, call.session, text, is_strict=self._is_strict())
        return result.with_meta(source=tool.source, trust=trust)


class Examine:
    """Remove invisible characters from an untrusted result, and report text that looks like instructions."""

    def __init__(self, taint: Taint) -> None:
        """`taint` records suspicious text."""
        self._taint = taint

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as a person would see it, with `hidden` and `removed` (characters) and `suspicious`."""
        if result.meta.get("trust") != "untrusted" or result.input_required is not None or "fenced" in result.meta:
            return result
        found = suspicions(result.text[:_SCANNED])
        given = result
        shown, hidden = _visible(call, result)
        if call.origin != "cli":  # a person at a terminal gets escapes, and may ask for the raw text
            result = shown
        findings: dict[str, Any] = {"hidden": hidden, "removed": _removed(given, shown)} if hidden else {}
        findings |= {"suspicious": list(found)} if found else {}
        if found and call.tool is not None:
            self._taint.mark_tainted(call.tool, call.session)
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


def _removed(given: ToolResult, shown: ToolResult) -> Mapping[str, int]:
    """Return the hidden characters that `shown` lacks, by name."""
    if shown.structured_content is None:  # left out whole, because it breaks its schema without them
        shown = replace(shown, structured_content=visible_json(given.structured_content)[0])
    return hidden_characters(_texts(given), _texts(shown))


def _texts(result: ToolResult) -> list[Any]:
    error = result.error
    words = [] if error is None else [error.message, error.hint, error.details]
    return [result.content, result.structured_content, words]


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


class Limit:
    """Shorten a result that is too long, and store the whole."""

    def __init__(self, limiter: Limiter, profile_of: Callable[[SessionState], Profile]) -> None:
        """`limiter` stores the artifacts, `profile_of` returns the profile of a session."""
        self._limiter = limiter
        self._profile_of = profile_of

    def __call__(self, call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
        """Return the result within the session's budget of tokens for one result, and within its profile's.

        Results for an MCP client pass whole up to a size, unless a person or the profile set a limit in tokens or
        characters. Built-in tools keep the limit: clients had no such results before.
        """
        profile = self._profile_of(call.session)
        return self._limited(call, result, profile, _usual_options(profile))

    def bind(self, subject: Subject) -> After:
        """Return the step for one profile: a single text that is short under any characters passes at once."""
        profile = subject.profile
        if profile is None:
            return self
        usual = _usual_options(profile)
        takes_all = usual.fit.hints or (subject.tool is not None and subject.tool.source == JOBS)
        short = 0 if takes_all else self._limiter.short_text(subject.limits.tokens_of_result, usual.fit.least)

        def limit(call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
            if result.error is None:
                text = result.only_text
                if text is not None and len(text) <= short:
                    return result
            return self._limited(call, result, profile, usual)

        return limit

    def _limited(
        self, call: Call, result: ToolResult, profile: Profile, usual: LimitOptions
    ) -> ToolResult | Awaitable[ToolResult]:
        if is_settled(call, result) or (call.options.raw and result.spooled is None):
            return result
        if not usual.fit.hints and self._limiter.fits(result, call.session.result_tokens, usual.fit.least):
            return result
        return self._cut(call, result, profile, usual)

    async def _cut(self, call: Call, result: ToolResult, profile: Profile, usual: LimitOptions) -> ToolResult:
        session = call.session
        way = self._options_for(call, profile, usual)
        if result.meta.get("trust", "local") != "local":
            way = replace(way, source=str(result.meta.get("source", "")), trust=result.meta["trust"])
        limited = await self._limiter.apply(result, session.result_tokens, session.principal, way)
        reading = profile.verbs.get("read")
        if reading and limited is not result and "artifact" in limited.meta:
            session.history.loaded.setdefault(reading)
        is_lost = result.structured_content is not None and limited.structured_content is None
        is_read = call.session.audience.is_client or profile.results.characters is None  # else its model reads the text
        return _without_structure(call, limited) if is_lost and is_read and _is_promised(call) else limited

    def _options_for(self, call: Call, profile: Profile, usual: LimitOptions) -> LimitOptions:
        """Return the fitting of the result of `call`: the caller's option before the declaration of the tool."""
        tool = call.tool
        declared: Mapping[str, Any] = tool.capability.metadata if tool is not None else {}
        hint: Any = call.options.result_hint or declared.get("compression_hint")
        if tool is not None and tool.source == SOURCE:
            hint = "skip"  # a page that the model asked for is cut to fit already
        lines, whole = declared.get("result") == "lines", _passes_whole(call, profile)
        schema = tool.output_schema if tool is not None and _is_promised(call) else None
        as_value = envelope_of(profile) == "gateway"
        if not (hint or lines or whole or as_value or schema is not None):
            return usual
        hint = hint if hint in HINTS else None
        return replace(usual, hint=hint, lines=lines, schema=schema, whole=whole, as_value=as_value)


def _usual_options(profile: Profile) -> LimitOptions:
    """Return the usual fitting of results under a profile."""
    return LimitOptions(fit=profile.results, read=profile.verbs.get("read", ""))


def _passes_whole(call: Call, profile: Profile) -> bool:
    """Whether the result may pass whole: an MCP client reads it, and no other limit is set."""
    if not call.session.audience.is_client:
        return False
    is_limited = call.session.limits.result_tokens is not None or profile.results.is_sized
    is_ours = call.tool is None or call.tool.source in (SOURCE, *BUILTIN_SOURCES)
    return not is_limited and not is_ours


def _is_promised(call: Call) -> bool:
    """Whether the caller read an output schema of the called tool. A call through a meta-tool has none."""
    return not call.route.verb and call.tool is not None and call.tool.output_schema is not None


def _without_structure(call: Call, limited: ToolResult) -> ToolResult:
    """Make the result an error if the caller expects structured content: MCP clients reject a result without it.

    Clients pass errors on, and with them the ends of the text and the artifact; the hint repeats both for envelopes
    that have their own error sentences.
    """
    if limited.is_error:
        return limited
    message = f"{call.name} ran, and its result is too large to be shown whole"
    return replace(limited, error=ToolError(code="too_large", message=message, hint=limited.text))


def _in_words(call: Call, result: ToolResult, profile: Profile) -> ToolResult:
    """Return a failure with the names that the profile gives to tools; what another source's tool reports stays."""
    error = result.error
    if error is None or profile.naming == NO_NAMING or _is_foreign(call, error):
        return result
    written = call.route.as_written
    called = written[0].name if written is not None else call.route.requested
    names = profile.naming.names
    message, hint = in_profile_words(error.message, names, called), in_profile_words(error.hint, names, called)
    tool = call.tool
    if tool is not None and _of_others(tool) and called and not call.route.verb:
        # The hint stays: it may quote a rule, by the catalog's name.
        message = re.sub(rf"(?<!\w){re.escape(tool.name)}(?!\w)", lambda _: called, message)
    if (message, hint) == (error.message, error.hint):
        return result
    blocks = tuple(
        {**block, "text": in_profile_words(str(block["text"]), names, called).replace(error.message, message)}
        if block.get("type") == "text"
        else block
        for block in result.content
    )
    return result.evolve(content=blocks, error=replace(error, message=message, hint=hint))


def _is_foreign(call: Call, error: ToolError) -> bool:
    """Whether the words of a failure are those of another source's tool."""
    return error.code == "tool_error" and call.tool is not None and _of_others(call.tool)


def _of_others(tool: Tool) -> bool:
    return tool.source not in (SOURCE, *BUILTIN_SOURCES)


class Wrap:
    """Put results into the envelope of the profile."""

    def __init__(self, profile_of: Callable[[SessionState], Profile]) -> None:
        """`profile_of` returns the profile of a session."""
        self._profile_of = profile_of

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as the model is to read it."""
        profile = self._profile_of(call.session)
        return self._wrapped(call, result, profile, envelope_of(profile))

    def bind(self, subject: Subject) -> After:
        """Return the step for one profile."""
        profile = subject.profile
        if profile is None:
            return self
        envelope, tool = envelope_of(profile), subject.tool
        is_foreign = tool is None or tool.source not in (SOURCE, JOBS)
        keeps_all = envelope == "mcp" and (tool is None or tool.source != JOBS)
        keeps = keeps_all or (is_foreign and envelope in KEEP_SUCCESSES)
        keeps_errors = keeps_all and not profile.naming.names

        def wrap(call: Call, result: ToolResult) -> ToolResult:
            if (
                keeps
                and (keeps_all or not call.route.verb)
                and (result.error is None or keeps_errors)
                and call.changes is UNCHANGED
                and result.meta.get("trust") != "untrusted"
            ):
                return result
            return self._wrapped(call, result, profile, envelope)

        return wrap

    def _wrapped(self, call: Call, result: ToolResult, profile: Profile, envelope: str) -> ToolResult:
        if call.options.raw or result.input_required is not None or is_settled(call, result):
            return result
        shown = ENVELOPES[envelope](call, _in_words(call, result, profile))
        shown = shown if shown.error is result.error else shown.evolve(error=result.error)
        if call.origin == "cli":  # a person, or a program that reads standard output
            return shown
        suspicious = result.meta.get("suspicious", ())
        is_plain = "fenced" in result.meta or (result.is_error and not suspicious)
        if profile.fence != "none" and not is_plain and result.meta.get("trust") == "untrusted":
            shown = fenced(shown, call.name, suspicious, result.meta.get("removed")).with_meta(fenced=True)
        changes = call.changes
        if not (changes.edited or changes.unused) or envelope == "gateway":  # it has them as warnings
            return shown
        # else it believes that its call ran
        notes = (*((changes.edited,) if changes.edited else ()), *changes.unused)
        blocks = tuple({"type": "text", "text": f"[{note}]"} for note in notes)
        return replace(shown, content=(*shown.content, *blocks)) if blocks else shown
