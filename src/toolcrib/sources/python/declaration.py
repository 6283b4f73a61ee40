"""`@tool`: declarations of a function beyond its signature and docstring.

`find` discovers the functions in the objects that a user adds: functions, modules, objects, lists of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, Protocol, TypedDict, TypeVar, Unpack, cast, get_args, overload

from msgspec import Struct, field

from ...core.context import Context
from ...core.option_signatures import with_options
from ...core.services.host import Host
from ...core.similar import did_you_mean, nearest
from ...core.tool import TRAITS, Kind, Tool
from ...errors import UsageError
from .framework_tools import converted

_MARK: Final = "__toolcrib_tool__"
_TEXTS: Final = ("category", "deprecated", "description", "name", "op", "replaced_by", "title", "version")
"""Options that are text."""
_APPROVALS: Final = ("never", "mode", "always")
_OTHER_LIBRARIES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("annotations", "side_effects"), 'kind="read"'),
    **dict.fromkeys(("read_only", "readonly", "read_only_hint", "readOnlyHint"), 'kind="read"'),
    **dict.fromkeys(("destructive", "destructive_hint", "destructiveHint"), 'kind="destructive"'),
    **dict.fromkeys(("requires_approval", "needs_approval", "require_confirmation"), 'approval="always"'),
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
    "meta": "metadata",
    **dict.fromkeys(("args_schema", "parameters"), "input_schema"),
}
"""Our option for what other libraries, and MCP, call otherwise."""

NEEDS: Final = ("language_server", "shell", "sockets", "user", "workspace")
"""Possible requirements of a tool on its session; `user` is a person who can be asked."""

Check = Callable[[Mapping[str, Any], Context], Awaitable[None]]
"""Looks at the arguments of a call, before anyone is asked about it."""

Due = Callable[[Host, str], Awaitable[bool]]
"""Whether a call without arguments has anything to do now for a principal. Only reads."""

F = TypeVar("F", bound=Callable[..., Any])


class _Marker(Protocol):
    """Marks a function, or makes one of the tool of another framework."""

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self, function: Any, /) -> Callable[..., Any]: ...


Setting = Callable[[str], Any]
"""Returns the operator's settings for tools by the name of their section under `tools`; None if there are none."""


class _NamingOptions(TypedDict, total=False):
    """Name of a tool, and how it is found."""

    name: str
    """Else the function's own."""
    title: str
    description: str
    """Else the docstring, without its sections on parameters and results."""
    input_schema: Mapping[str, Any]
    """JSON Schema of the arguments, an object; else they are read from the signature. The function gets the arguments
    that a caller gave, by name: one that was left out is not there, and null is None."""
    argument_aliases: Mapping[str, str]
    """Other names that callers may use → the argument, where that is not given. Schemas do not show them."""
    category: str
    op: str
    tags: Sequence[str]
    aliases: Sequence[str]
    core: bool
    priority: int
    """0 to 100, else 50: the higher is preferred when several tools fit."""
    type: Literal["TOOL", "CODE"]
    """CODE executes code that the model writes (seed 004); else TOOL."""
    metadata: Mapping[str, Any]
    """Metadata for selections and for limits on results: `result: lines`, `compression_hint`, `quality` …"""
    examples: Sequence[Mapping[str, Any]]
    """Valid arguments, best first; checked against the schema when the function is added."""
    policy: Mapping[str, Sequence[str]]
    """Advice for the model: `do`, `dont`, `edge_cases`."""


class _EffectOptions(TypedDict, total=False):
    """Options of a tool for the effect of its calls, and who may make them."""

    kind: Kind
    """`read`, `write` or `destructive`; the default is destructive, as in MCP."""
    approval: Literal["never", "mode", "always"]
    idempotent: bool
    """Whether running it twice equals running it once; true by default for a read."""
    open_world: bool
    """Whether it reaches beyond this machine or this data; true by default, as in MCP."""
    traits: Sequence[str]
    """Properties that the pipeline relies on: `file_writer`, `untrusted`, `outbound`, `private`."""
    needs: Sequence[str]
    """Requirements on the session, without which the tool is out of scope; see `NEEDS`."""
    lacks: Callable[[Setting], str]
    """Returns what the machine or the operator's settings lack for the tool to run, such as `the extra "web"`.

    Empty where it can run. Asked once, when the source is opened: no I/O beyond looking for a program or a library.
    """
    contexts: Sequence[str]
    """Kinds of session that have the tool; else all."""
    check: Check
    """Raises the `ToolFailure` of a call that would fail after any answer, before anyone is asked; only then it runs.

    It changes nothing and takes seconds at most.
    """


class _RunOptions(TypedDict, total=False):
    """Options of a tool's calls."""

    timeout: float
    """Seconds."""
    background_after: float
    """Seconds after which a call goes on in the background."""
    streaming: bool
    """Whether it sends its output while it runs (`Context.output`), as an asynchronous generator does anyway."""
    serial: bool
    locks: Sequence[str]
    """Names of the parameters that identify the written resources."""
    due: Due
    """Asked before each run of a schedule that calls the tool without arguments: no makes no call, job or record."""
    explicit: Sequence[str]
    """Names of the parameters that a session's `context=` never fills: left out, they mean something of their own."""


class _VersionOptions(TypedDict, total=False):
    """Version of a tool, and what replaces it."""

    version: str
    """Several functions may have one name and differ in it: sessions get the newest that is not deprecated."""
    deprecated: str
    """Reason for the deprecation."""
    replaced_by: str
    """The name of the tool to use instead."""
    migrations: Mapping[str, Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]]
    """By version: `{"rename": {then: now}, "set": {name: value}, "drop": [name]}`, or a function of the arguments."""


class ToolOptions(_NamingOptions, _EffectOptions, _RunOptions, _VersionOptions, total=False):
    """Options of `@tool(...)`; each is explained in `core.tool.Tool`."""


class Declaration(Struct, frozen=True, kw_only=True):
    """Options given to `@tool`; empty for a plain function."""

    options: ToolOptions = field(default_factory=lambda: ToolOptions())


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> _Marker: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Mark a function or method as a tool. It stays unchanged and can be called as before.

        @tool(kind="read", timeout=10)
        async def price(article: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
            "Return the price of an article; `article` is its number, as on the invoice."

    The signature and the docstring (Google, NumPy or Sphinx style) describe it to models; options are for what they do
    not say. Above all that is the effect: without `kind` a tool counts as `destructive`, which most modes ask about.
    A parameter annotated with `Context` gets the surroundings of the call and is not shown. The function returns
    anything that JSON can say, text, bytes, content blocks of MCP or a `ToolResult`; it fails by raising, best a
    `ToolFailure` with a code, a sentence and the next step for the model.

    A tool of another framework (LangChain, Pydantic AI, OpenAI Agents) becomes a function that runs it, with these
    options over its own: `crib.add(tool(kind="read")(search))`.

    Raises `UsageError` for an unknown option or an invalid value, with the file and line of the call.
    """
    try:
        _check(options)
    except UsageError as error:
        raise _at_caller(str(error)) from None

    def mark(decorated: Callable[..., Any]) -> Callable[..., Any]:
        if (made := converted(decorated)) is not None:
            decorated, own = made
            setattr(decorated, _MARK, Declaration(options=cast("ToolOptions", {**own, **options})))
            return decorated
        function: Any = getattr(decorated, "__func__", decorated)  # a `staticmethod` stands around it
        if not callable(function):
            name = f"name={function!r}" if isinstance(function, str) else "name=…"
            raise _at_caller(f"@tool marks functions and methods, not {function!r:.60}; options have names: {name}")
        setattr(function, _MARK, Declaration(options=options))
        return decorated

    return mark if function is None else mark(function)


vars(tool)["__signature__"] = with_options(tool, ToolOptions)


def declaration_of(function: object) -> Declaration | None:
    """Return the declaration of `function`; None if it was never marked."""
    found = getattr(function, _MARK, None)
    return found if isinstance(found, Declaration) else None


def _at_caller(message: str) -> UsageError:
    """Return an error with the file and line outside of this module."""
    caller = next(frame for frame in inspect.stack(0) if frame.filename != __file__)
    return UsageError(f"{caller.filename}:{caller.lineno}: {message}")


def _check(options: ToolOptions) -> None:
    known = ToolOptions.__annotations__
    for key in options:
        if key not in known:
            near = _OTHER_LIBRARIES.get(key) or "".join(nearest(key, known, 1))
            meant = f"; did you mean {near}?" if near else f", only {', '.join(sorted(known))}"
            raise UsageError(f"@tool has no option {key!r}{meant}")
    _check_word("kind", options.get("kind"), get_args(Kind))
    _check_word("approval", options.get("approval"), _APPROVALS)
    _check_word("type", options.get("type"), ("TOOL", "CODE"))
    _check_run_options(options)
    priority: object = options.get("priority", 50)
    if not isinstance(priority, int | float) or not 0 <= priority <= 100:
        raise UsageError(f"@tool(priority={priority!r}): takes a number from 0 to 100; 50 is the default")
    for key in ("tags", "aliases", "locks", "explicit", "examples", "contexts", "traits", "needs"):
        if isinstance(value := options.get(key), str):
            raise UsageError(f"@tool({key}={value!r}): takes a list; write {key}=[{value!r}]")
    _check_version_options(options)
    for key, allowed in (("traits", TRAITS), ("needs", NEEDS)):
        for word in options.get(key, ()):
            _check_word(key, word, allowed)


def _check_run_options(options: ToolOptions) -> None:
    for key in ("timeout", "background_after"):
        seconds = options.get(key)
        if seconds is not None and (not isinstance(seconds, int | float) or seconds <= 0):
            raise UsageError(f"@tool({key}={seconds!r}): takes seconds, a number above 0 such as {key}=30")
    for key in ("check", "due"):
        if (function := options.get(key)) is not None and not inspect.iscoroutinefunction(function):
            raise UsageError(f"@tool({key}={function!r}): takes an `async def` function")


def _check_version_options(options: ToolOptions) -> None:
    if options.get("replaced_by") and not options.get("deprecated"):
        given = options.get("replaced_by")
        raise UsageError(f'@tool(replaced_by={given!r}) goes with the reason: add deprecated="…"')
    for key in _TEXTS:
        if not isinstance(value := options.get(key, ""), str):
            raise UsageError(f'@tool({key}={value!r}): takes a text; write {key}="{value}"')


def _check_word(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        meant = did_you_mean(str(value), allowed)
        raise UsageError(f"@tool({option}={value!r}): takes one of {', '.join(allowed)}{meant}")


class FoundFunction(Struct, frozen=True, kw_only=True):
    """A function that is to become a tool."""

    function: Callable[..., Any]
    declaration: Declaration
    origin: str
    """Module and qualified name, for messages."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.declaration.options.get("name") or getattr(_named(self.function), "__name__", "")


class KeptFunction(Struct, frozen=True, kw_only=True):
    """A function of a static package (`static_tools`) that is imported at its first use."""

    name: str
    declaration: Declaration
    """The options that are asked for before a call."""
    origin: str
    """As that of a function that was found."""
    tool: Tool
    """Its definition, of no source."""
    module: str
    attribute: str

    def loaded(self) -> FoundFunction:
        """Return the function, imported now. Raises each exception of its module."""
        return _found(getattr(import_module(self.module), self.attribute))


Found = FoundFunction | KeptFunction


def find(thing: object) -> list[Found]:
    """Return the functions in `thing`; raises `UsageError` listing the supported kinds when it has none."""
    if isinstance(thing, ModuleType):
        return _in_module(thing)
    if isinstance(thing, KeptFunction):
        return [thing]
    if isinstance(thing, list | tuple | set | frozenset):
        return [found for item in cast("Iterable[object]", thing) for found in find(item)]
    if inspect.isclass(thing):
        raise UsageError(f"{thing.__qualname__} is a class; add an instance of it whose methods are marked with @tool")
    if inspect.isroutine(thing):
        return [_found(cast("Callable[..., Any]", thing))]
    return _in_object(thing)


def _in_module(module: ModuleType) -> list[Found]:
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    marked = [value for value in functions if declaration_of(value) and value.__module__ == module.__name__]
    if not marked:
        public: Iterable[str] = getattr(module, "__all__", ())
        values = [getattr(module, name, None) for name in public]
        marked = [value for value in values if inspect.isfunction(value)]
    if not marked:
        message = f"module {module.__name__} has no function marked with @tool and none in __all__"
        raise UsageError(f"{message}: mark those that are tools, or list them there")
    return [_found(value) for value in _distinct(marked)]


def _in_object(thing: object) -> list[Found]:
    if converted(thing) is not None:
        return [_found(tool()(thing))]
    marked = [
        cast("Callable[..., Any]", getattr(thing, name))
        for name in dir(type(thing))
        if not name.startswith("__") and _is_marked(inspect.getattr_static(type(thing), name))
    ]
    if callable(thing) and not marked and not hasattr(thing, "openapi"):  # a web application
        return [_found(thing)]
    if isinstance(thing, str | Path):
        raise UsageError(
            f"{str(thing)!r} is not a tool; `await crib.load(path)` takes catalogs, skills and API documents,"
            " `await crib.mount(url)` an MCP server"
        )
    if not marked:
        raise UsageError(
            f"{type(thing).__name__} is not a tool, and has no method marked with @tool:"
            " add functions, modules, lists of them, objects with such methods, or tools of LangChain, Pydantic AI and"
            " OpenAI Agents; MCP servers are mounted with crib.mount, applications loaded with crib.load"
        )
    return [_found(value) for value in marked]


def _is_marked(attribute: Any) -> bool:
    return declaration_of(getattr(attribute, "__func__", attribute)) is not None


def _found(function: Callable[..., Any]) -> FoundFunction:
    named = _named(function)
    name = getattr(named, "__qualname__", type(function).__qualname__)
    declared = declaration_of(function) or Declaration()
    return FoundFunction(function=function, declaration=declared, origin=f"{getattr(named, '__module__', '?')}.{name}")


def _named(function: Any) -> Any:
    """The function that has the name: a partial is called after its function."""
    return function.func if isinstance(function, partial) else function


def _distinct(functions: Iterable[Callable[..., Any]]) -> Iterator[Callable[..., Any]]:
    seen = set[int]()
    for function in functions:
        if id(function) not in seen:
            seen.add(id(function))
            yield function
