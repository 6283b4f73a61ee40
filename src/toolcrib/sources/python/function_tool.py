"""A marked function as a tool: its definition, read once in a process, and how it is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from ...core.schema import compile_schema
from ...core.tool import (
    NO_VERSION_INFO,
    PLAIN,
    Annotations,
    Availability,
    Capability,
    Execution,
    Guidance,
    Tool,
    VersionInfo,
)
from ...core.versions import read_migrations, retiring
from ...errors import UsageError
from ..function_run import Run, is_stream, run_of
from .declaration import (
    Check,
    Declaration,
    Due,
    Found,
    FoundFunction,
    KeptFunction,
    Setting,
    ToolOptions,
    declaration_of,
)

if TYPE_CHECKING:
    from .signature import DeclaredSignature, Signature

_READ: Final[WeakKeyDictionary[FunctionType, dict[tuple[str, bool], _Reading]]] = WeakKeyDictionary()
"""By function, source, and whether it is a method: every crib of a process has the same guests, and reading one takes 2
to 6 ms of pydantic. Lives as long as the function; holds none, so that none is kept alive by it.
"""


class Body(Struct, frozen=True, kw_only=True):
    """Function of a tool, and how it is called."""

    signature: Signature | DeclaredSignature
    function: Callable[..., Any]
    run: Run | None
    """Caller of the function; None for one that is awaited."""
    check: Check | None = None
    due: Due | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """A function as a tool of one source."""

    tool: Tool
    name: str
    """In messages: that of the function's declaration."""
    body: Body | KeptFunction


class _Reading(Struct, frozen=True, kw_only=True):
    """Converted form of a marked function, valid while its inputs are unchanged."""

    declaration: Declaration
    doc: str | None
    tool: Tool
    signature: Signature | DeclaredSignature

    def is_of(self, found: FoundFunction, doc: str | None) -> bool:
        return self.declaration is found.declaration and self.doc == doc and self.tool.name == found.name


def make_entry(found: Found, source: str, setting: Setting) -> Entry:
    """Return a function as a tool of a source. Raises `UsageError` or `ValueError` for one that cannot be a tool."""
    if isinstance(found, KeptFunction):
        tool, body = replace(found.tool, source=source), found
    else:
        tool, body = read_body(found, source)
    if missing := _missing(found, setting):
        availability = replace(tool.availability, missing=missing)
        tool = replace(tool, description=f"needs: {missing}; {tool.description}", availability=availability)
    seconds = _background_after(found, setting, tool.execution.background_after)
    if seconds != tool.execution.background_after:
        tool = replace(tool, execution=replace(tool.execution, background_after=seconds))
    return Entry(tool=tool, name=found.name, body=body)


def read_body(found: FoundFunction, source: str) -> tuple[Tool, Body]:
    """Return the definition of a function, and how it is called. Raises as `make_entry` does."""
    tool, signature = _read_once(found, source)
    options = found.declaration.options
    return tool, Body(
        signature=signature,
        function=found.function,
        run=run_of(found.function),
        check=options.get("check"),
        due=options.get("due"),
    )


def read_definition(found: FoundFunction) -> Tool:
    """Return the definition of a function, of no source. Raises `UsageError` for one that cannot be a tool."""
    return _read_once(found, "")[0]


def _background_after(found: Found, setting: Setting, declared: float | None) -> float | None:
    """Return the operator's `tools.background_after` of a tool, else the `declared` one; null keeps it waiting.

    Raises `UsageError` for anything but a time.
    """
    given = setting("background_after")
    seconds = cast("Mapping[str, Any]", given).get(found.name, declared) if isinstance(given, Mapping) else declared
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise UsageError(f"tools.background_after.{found.name}: seconds were expected, 0 or more")
    return float(seconds)


def _missing(found: Found, setting: Setting) -> str:
    """Return the missing requirement of the tool. Raises `UsageError` if the function that returns it fails."""
    lacks = found.declaration.options.get("lacks")
    try:
        return lacks(setting) if lacks is not None else ""
    except Exception as error:
        raise UsageError(f"lacks of {found.name} failed: {type(error).__name__}: {error}") from error


def _read_once(found: FoundFunction, source: str) -> tuple[Tool, Signature | DeclaredSignature]:
    """Convert a function; a marked one, which cannot change, is converted once in a process.

    The result for a method does not depend on its object, unless it inherits its description.
    """
    is_method = isinstance(found.function, MethodType)
    function: object = getattr(found.function, "__func__", None) if is_method else found.function
    if not isinstance(function, FunctionType) or declaration_of(function) is None:
        return _read(found, source)
    if is_method and not function.__doc__:
        return _read(found, source)
    readings = _READ.setdefault(function, {})
    reading = readings.get((source, is_method))
    if reading is None or not reading.is_of(found, function.__doc__):
        tool, signature = _read(found, source)
        reading = _Reading(declaration=found.declaration, doc=function.__doc__, tool=tool, signature=signature)
        readings[source, is_method] = reading
    return reading.tool, reading.signature


def _read(found: FoundFunction, source: str) -> tuple[Tool, Signature | DeclaredSignature]:
    options = found.declaration.options
    from .signature import declared_signature, read_signature  # loads pydantic: with the first function

    if not found.name.isidentifier() and "name" not in options:
        raise UsageError(f"{found.name!r} is not a tool name; give it one: tool(name=…)(function)")
    description = options.get("description", "")
    if "input_schema" in options:
        signature = declared_signature(found.function, options["input_schema"], description)
    else:
        signature = read_signature(found.function, description)
    tool = _tool(found.name, source, options, signature, streams=is_stream(found.function))
    _check(tool)
    return tool, signature


def _tool(
    name: str, source: str, options: ToolOptions, signature: Signature | DeclaredSignature, *, streams: bool
) -> Tool:
    return Tool(
        name=name,
        local_name=name,
        source=source,
        title=options.get("title", ""),
        description=retiring(signature.description, options.get("deprecated", ""), options.get("replaced_by", "")),
        input_schema=signature.input_schema,
        output_schema=signature.output_schema,
        annotations=_annotations(options),
        op=options.get("op", ""),
        origin="python",
        category=options.get("category", ""),
        tags=tuple(options.get("tags", ())),
        aliases=tuple(options.get("aliases", ())),
        core=options.get("core", False),
        version_info=_version_info(options, signature),
        approval=options.get("approval", "mode"),
        execution=Execution(
            timeout=options.get("timeout"),
            serial=options.get("serial", False),
            locks=tuple(options.get("locks", ())),
            streaming=streams or options.get("streaming", False),
            background_after=options.get("background_after"),
        ),
        guidance=Guidance(examples=tuple(options.get("examples", ())), policy=dict(options.get("policy", {}))),
        capability=_capability(options),
        availability=Availability(contexts=tuple(options.get("contexts", ())), needs=tuple(options.get("needs", ()))),
        traits=tuple(options.get("traits", ())),
    )


def _version_info(options: ToolOptions, signature: Signature | DeclaredSignature) -> VersionInfo:
    if not options.keys() & {"version", "deprecated", "migrations"}:
        return NO_VERSION_INFO
    return VersionInfo(
        version=options.get("version", ""),
        deprecated=options.get("deprecated", ""),
        replaced_by=options.get("replaced_by", ""),
        migrations=read_migrations(options.get("migrations", {}), signature.input_schema),
    )


def _capability(options: ToolOptions) -> Capability:
    if not options.keys() & {"type", "priority", "metadata", "explicit", "argument_aliases"}:
        return PLAIN
    return Capability(
        type=options.get("type", PLAIN.type),
        priority=options.get("priority", PLAIN.priority),
        metadata=dict(options.get("metadata", {})),
        explicit=tuple(options.get("explicit", ())),
        argument_aliases=dict(options.get("argument_aliases", {})),
    )


def _annotations(options: ToolOptions) -> Annotations:
    kind = options.get("kind", "destructive")
    return Annotations(
        read_only=kind == "read",
        destructive=kind == "destructive",
        idempotent=options.get("idempotent", kind == "read"),
        open_world=options.get("open_world", True),
    )


def _check(tool: Tool) -> None:
    """Check a declaration against the signature: locks and explicit name parameters, examples are valid."""
    declared = tool.input_schema["properties"]
    known = ", ".join(declared) or "none"
    for name in tool.execution.locks:
        if name.partition(".")[0] not in declared:
            raise UsageError(f"locks names {name!r}, which is not a parameter; the parameters are {known}")
    for name in tool.explicit:
        if name not in declared:
            raise UsageError(f"explicit names {name!r}, which is not a parameter; the parameters are {known}")
    validator = compile_schema(tool.input_schema)
    for example in tool.guidance.examples:
        if errors := validator.check(example):
            raise UsageError(f"the example {dict(example)!r} is not valid: {'; '.join(map(str, errors))}")
