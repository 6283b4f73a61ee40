"""The tool `run_code`: a program that a model writes, in which every tool is an asynchronous function (code mode).

The program runs in an interpreter of its own process (`pydantic_monty`), which has no files and no network. It stops at
each function that it does not know, and is gone on with here:

    interpreter ── stops: NAME(…) ──> a task of this loop makes the call ── a future at once ──> goes on
                ── stops: waits for futures ──> results of those that have ended ──────────────> goes on
                ── ends ──> value and print

Each call has an idempotency key of run, tool, arguments and their count. With `resume` the whole program runs again:
calls that changed something and ended well answer with their first results, reads are made again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import anyio
from anyio import to_thread
from msgspec import Struct, field
from pydantic import Field

from ..core.call import effective_arguments
from ..core.context import Context
from ..core.json import MAX_DEPTH, MESSAGE_BYTES, canonical, dumps, loads
from ..core.patterns import regex
from ..core.result import ToolError, ToolResult, Trust
from ..core.sanitize import escape
from ..core.tool import Tool
from ..errors import ToolFailure
from ..results.normalize import to_result
from .host import WorkflowHost, failure_of, least_trusted, once_within, steps_tool, value_of, was_cut_off

if TYPE_CHECKING:
    import pydantic_monty as monty  # needs the extra `code-mode`

_CALL_FUNCTIONS: Final = ("call", "call_tool")
"""Functions that take the name of a tool: ours, and the one that models know from other systems."""
_MAX_CALLS: Final = 1_000
_MAX_PRINTED_BYTES: Final = 1 << 20
_MAX_TRACEBACK_LENGTH: Final = 2_000
"""Characters of a traceback that the model reads: its end, which names the line and the error."""
_TRACEBACK_HEADER: Final = "Traceback (most recent call last):\n"
_MAX_PROGRAM_BYTES: Final = 100_000_000
"""Of the program, and of its value: written in full, a list in a list in a list may be larger by any factor."""
_LIMITS: Final[monty.ResourceLimits] = {
    "max_feed_duration_secs": 30.0,  # while it computes: the time of its calls is not counted
    "max_memory": _MAX_PROGRAM_BYTES,
    "max_suspensions": 4 * _MAX_CALLS,  # a call is up to three: its name, the call, the wait
}
_MAX_PROGRAMS: Final = 16
"""Programs of all callers: each is a process of up to `_MAX_PROGRAM_BYTES`. One caller has no more of them than it
leaves."""
_UNAWAITED_COROUTINE: Final = regex(r"<(?:coroutine object \w+|coroutine external_future\(\d+\)|gather\(\d+\))>")
"""Coroutines as the interpreter hands them over: it gives their names, and no types."""
_SLEEP_FUNCTION: Final = "system.async_sleep"
"""`asyncio.sleep`, as the interpreter asks its host for it: for 10 s at most."""
_MAX_ATTEMPTS: Final = 100
_MAX_SHOWN_CALLS: Final = 20
_BYTES_PER_VALUE: Final = 8
_MAX_NAME_LENGTH: Final = 80
"""Characters of the name of an unknown tool that an answer shows."""
_PURPOSE: Final = "code"


class Programs:
    """Programs of a crib."""

    def __init__(self, host: WorkflowHost) -> None:
        self._host = host
        self._running: Counter[str] = Counter()

    @steps_tool(
        "x.workflow.code",
        module="pydantic_monty",
        extra="code-mode",
        traits=["hands_on"],
        tags=["code_mode", "script", "program", "loop", "filter", "several tools", "orchestration"],
        examples=[
            {"code": "files = await glob_files(pattern='**/*.md')\nlen(files['files'])"},
            {
                "code": "import asyncio\npages = await asyncio.gather(*[read_file(path=p) for p in ('a.md', 'b.md')])\n"
                "[page['content'].splitlines()[0] for page in pages]"
            },
        ],
        policy={
            "do": ["Use it for loops, filters and sums over results: only what it prints and returns reaches you."],
            "edge_cases": [
                "Each call has its own permission, as if it were made alone.",
                "After a failure, correct the code and give `resume`: what was changed already is not changed again.",
            ],
        },
    )
    async def run_code(
        self,
        code: Annotated[str, Field(min_length=1, max_length=100_000)],
        ctx: Context,
        resume: Annotated[str, Field(max_length=200)] = "",
    ) -> ToolResult:
        """Run Python that calls tools: `await NAME(argument=value)`, `await call("NAME", {…})`, `asyncio.gather`.

        Gives what it prints and its last expression. A call gives structured content, else text; its failure raises
        RuntimeError. No files, no network, no packages, no `yield`.

        Args:
            ctx: The call.
            code: The program; `await` works at its top level.
            resume: From the answer of a program that failed: calls that changed something and ended well give their
                results again, and are not made twice.
        """
        if resume:
            await self._check(resume, ctx)
        run = _ProgramRun(
            host=self._host, context=ctx, id=resume or ctx.first_call or ctx.call_id, goes_on=bool(resume)
        )
        if self._running[ctx.principal] >= _MAX_PROGRAMS - self._running.total():
            message = f"{self._running.total()} programs run already"
            raise ToolFailure("overloaded", message, hint="call it again when one has ended")
        self._running[ctx.principal] += 1
        try:
            with once_within():
                result = await run(code)
        finally:
            self._running -= Counter((ctx.principal,))
        if result.error is None:
            if resume:
                await self._host.runs.forget(run.id, ctx.principal)
        elif run.has_changed or resume:
            await self._host.runs.save(run.id, ctx.principal, {"purpose": _PURPOSE})
            result = _with_resume(result, run.id)
        return result.with_meta(source="workflows", trust=least_trusted(run.trusts))

    async def _check(self, token: str, ctx: Context) -> None:
        state = await self._host.runs.load(token, ctx.principal)
        if state is None or state.get("purpose") != _PURPOSE:
            hint = "take it from the answer of the program that failed, or leave it out"
            raise ToolFailure("not_found", f"no program of yours goes on by {token[:80]!r}", hint=hint)


class _ProgramRun(Struct, kw_only=True):
    """One run of one program. Used once."""

    host: WorkflowHost
    context: Context
    id: str
    goes_on: bool
    """Whether it goes on with one that failed: what failed then is tried again."""
    errors: dict[str, ToolError] = field(default_factory=dict[str, ToolError])
    """Failures of calls, by the text of the exception that the program got."""
    trusts: list[Trust] = field(default_factory=list[Trust])
    noted: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The calls that failed, and those that ended well and do more than read."""
    has_changed: bool = False
    """Whether a call that does more than read ended well, or is made once it is approved."""
    _begun: int = 0
    _ended: int = 0
    _seen: Counter[str] = field(default_factory=Counter[str])

    async def __call__(self, code: str) -> ToolResult:
        """Run the program; return what it printed and its last value, or its failure."""
        import pydantic_monty as monty  # 11 MB, of an extra: loaded where a program runs

        printed = monty.CollectString(_MAX_PRINTED_BYTES)
        try:
            async with monty.AsyncMonty(max_processes=1) as pool, pool.checkout(limits=_LIMITS) as session:
                ended = await self._walk(await session.feed_start(_unfenced(code), print_callback=printed))
        except monty.MontySyntaxError as error:
            return ToolResult.failed("invalid_arguments", f"code: {_shown(error.display())}")
        except monty.MontyRuntimeError as error:
            return self._failure(error.display(), self.errors.get(str(error.exception())), printed.output)
        except monty.MontyError as error:
            return self._failure(str(error), None, printed.output)
        if _is_unawaited(ended.output):
            return self._failure("its last line has a call without `await`: the result is lost", None, printed.output)
        return await to_thread.run_sync(_answer, ended, printed.output)  # the value may have 100 MB

    async def _walk(self, state: monty.AsyncSnapshot) -> monty.MontyComplete:
        """Make the calls at which the program stops, several at once where it gathers them; return its end.

        Calls that the program did not wait for, because it ended or failed before, are waited for all the same: they
        have begun. Raises `MontyError` as the program ends.
        """
        import pydantic_monty as monty

        sender, receiver = anyio.create_memory_object_stream[tuple[int, monty.ExternalSettledResult]](_MAX_CALLS)

        async def make(id: int, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> None:
            if name == _SLEEP_FUNCTION:
                await anyio.sleep(args[0])
                sender.send_nowait((id, {"return_value": None}))
            else:
                sender.send_nowait((id, await self._call(name, args, named)))

        failure: monty.MontyError | None = None
        async with sender, receiver, anyio.create_task_group() as group:
            try:
                while not isinstance(state, monty.MontyComplete):
                    match state:
                        case monty.AsyncFutureSnapshot():
                            ended = [await receiver.receive()]
                            ended += (
                                receiver.receive_nowait() for _ in range(receiver.statistics().current_buffer_used)
                            )
                            state = await state.resume(dict(ended))
                        case monty.AsyncFunctionSnapshot() if (
                            state.is_os_function and state.function_name != _SLEEP_FUNCTION
                        ):
                            state = await state.resume_auto()  # what the sandbox refuses
                        case monty.AsyncFunctionSnapshot() if self._begun >= _MAX_CALLS:
                            most = RuntimeError(f"a program makes at most {_MAX_CALLS:,} calls")
                            state = await state.resume({"exception": most})
                        case monty.AsyncFunctionSnapshot():
                            self._begun += 1
                            group.start_soon(make, state.call_id, str(state.function_name), state.args, state.kwargs)
                            state = await state.resume({"future": ...})
                        case _:
                            state = await state.resume_auto()  # a name that no tool has
            except monty.MontyError as error:
                failure = error
        if failure is not None:
            raise failure
        return cast("monty.MontyComplete", state)

    async def _call(self, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> monty.ExternalSettledResult:
        """Make one call; return its value, or the exception that the program gets."""
        try:
            name, arguments = self._read(name, args, named)
            _check_size([name, arguments], MESSAGE_BYTES)
            request = dumps([name, arguments])  # tuples and dates as the tool gets them
        except (TypeError, ValueError) as error:
            return {"exception": TypeError(f"{name}: {error}")}
        arguments = loads(request)[1]
        found = self.host.find(self.context, name)
        digest = hashlib.sha256(canonical(_same(found, name, arguments))).hexdigest()[:24]
        self._seen[digest] += 1
        label = escape(name[:_MAX_NAME_LENGTH]) if found is None else found.name
        result = await self._attempt(name, arguments, f"{_PURPOSE}:{self.id}:{digest}:{self._seen[digest]}")
        self.trusts.append(result.meta.get("trust", "local"))
        error = failure_of(result)
        outcome = "ok" if error is None else error.code
        has_effect = found is None or not found.annotations.read_only
        is_pending = result.error is not None and result.error.details.get("reason") == "pending"
        if has_effect and (result.error is None or is_pending):  # also where its result cannot be handed on
            self.has_changed = True
        if error is not None or has_effect:
            self.noted.append({"tool": label, "call_id": str(result.meta.get("call_id", "")), "outcome": outcome})
        self._ended += 1
        await self.context.report(self._ended, message=f"{label}: {outcome}")
        if error is None:
            return {"return_value": value_of(result)}
        text = f"{name}: {error.code}: {error.message}" + (f" ({error.hint})" if error.hint else "")
        self.errors[text] = error
        return {"exception": RuntimeError(text)}

    async def _attempt(self, name: str, arguments: Mapping[str, Any], key: str) -> ToolResult:
        """Make one call under the first attempt of `key` that has not failed, or whose effect is unknown."""
        door, attempt = self.host.door_of(self.context), 1
        while True:
            result = await door(name, arguments, raw=True, idempotency_key=f"{key}:{attempt}")
            has_failed = "replayed" in result.meta and result.error is not None and not was_cut_off(result)
            if not (self.goes_on and has_failed and attempt < _MAX_ATTEMPTS):
                return result
            attempt += 1

    def _read(self, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the tool's name and the arguments as an object. Raises `ValueError` saying how a call is written."""
        if name in _CALL_FUNCTIONS:
            if not args:
                args, named = (named.get("name"), named.get("arguments", {})), {}
            if not isinstance(args[0], str):
                raise ValueError('call("NAME", {"argument": value}) takes the name of a tool first')
            name, args = args[0], args[1:]
        if not args:
            return name, named
        if len(args) == 1 and isinstance(args[0], Mapping):
            return name, {**cast("Mapping[str, Any]", args[0]), **named}
        found = self.host.find(self.context, name)
        if found is None:
            return name, named  # the call is refused as one of an unknown tool
        places = _parameters(found)
        if len(args) > len(places):
            raise ValueError(f"{name} takes {len(places)} arguments: {', '.join(places) or 'none'}")
        return name, {**dict(zip(places, args, strict=False)), **named}

    def _failure(self, shown: str, cause: ToolError | None, printed: str) -> ToolResult:
        text = _shown(shown) + (f"\nprinted before:\n{_shown(printed)}" if printed else "")
        code = cause.code if cause is not None else "tool_error"
        return ToolResult.failed(code, f"the program failed: {text}", details={"calls": self.noted[-_MAX_SHOWN_CALLS:]})


def _shown(text: str) -> str:
    """Return the end of a traceback, or of what was printed, with names for characters that are not seen."""
    return escape(text.removeprefix(_TRACEBACK_HEADER)[-_MAX_TRACEBACK_LENGTH:], lines=True)


def _parameters(tool: Tool) -> list[str]:
    """Return the parameters of a tool in the order of its schema, those that it needs first."""
    needed = tool.input_schema.get("required", ())
    return sorted(tool.input_schema.get("properties", {}), key=lambda name: name not in needed)


def _same(tool: Tool | None, name: str, arguments: Mapping[str, Any]) -> list[Any]:
    """Return what the same call has in common, however it is written: by another name, a default left out."""
    with suppress(ValueError):  # a schema that cannot be compiled
        if tool is not None:
            return [tool.name, effective_arguments(tool, arguments)]
    return [name, arguments]


def _check_size(value: Any, limit: int) -> None:
    """Raise `ValueError` for a value larger than about `limit` bytes when written: parts count wherever they stand.

    Nothing that writes a value can be stopped midway.
    """
    size, _ = _size_of(value, {})
    if size > limit:
        raise ValueError(f"it is larger than {limit:,} bytes in full")


def _size_of(part: Any, known: dict[int, tuple[int, int, Any]], depth: int = 0) -> tuple[int, int]:
    """Return the size of a value and its levels. `known` has those of each part, and the part: no other gets its id.

    Raises `ValueError` for too many levels. How deep the functions that write a value can go depends on the Python.
    """
    if isinstance(part, str | bytes):
        return _BYTES_PER_VALUE + len(part), 0
    if isinstance(part, int):
        return _BYTES_PER_VALUE + part.bit_length() // 3, 0
    size, levels, _ = known.get(id(part), (0, 1, None))
    if depth + levels > MAX_DEPTH + 1:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    if not size:
        inner = getattr(part, "attributes", part)  # of an instance of a class of the program
        if isinstance(inner, Mapping):
            inner = chain.from_iterable(cast("Mapping[Any, Any]", inner).items())
        elif not isinstance(inner, list | tuple | set | frozenset):
            inner = ()
        size = _BYTES_PER_VALUE
        for one in cast("Iterable[Any]", inner):
            inner_size, inner_levels = _size_of(one, known, depth + 1)
            size, levels = size + inner_size, max(levels, 1 + inner_levels)
        known[id(part)] = size, levels, part
    return size, levels


def _value(value: Any) -> ToolResult:
    try:
        return to_result(value)
    except ToolFailure:  # the program ran: its value is shown as Python writes it
        return ToolResult.of_text(repr(value))


def _answer(ended: monty.MontyComplete, printed: str) -> ToolResult:
    value = ended.output
    try:
        _check_size(value, _MAX_PROGRAM_BYTES)
        result = _value(value)
    except (ValueError, RecursionError) as error:
        return ToolResult.failed("too_large", f"the last value cannot be written: {error}", hint="return less of it")
    if value is None:
        return ToolResult.of_text(printed or "The program ended: it printed nothing, and its last line has no value.")
    if not printed:
        return result
    if any(block.get("type") != "text" for block in result.content):
        return ToolResult(content=({"type": "text", "text": printed}, *result.content))
    return ToolResult.of_text(printed + result.text)


def _unfenced(code: str) -> str:
    """Return the program without the Markdown fence that models put around code."""
    first, *lines = code.strip().splitlines() or [""]
    return "\n".join(lines[:-1]) if first.startswith("```") and lines[-1:] == ["```"] else code


def _is_unawaited(value: Any) -> bool:
    """Whether the value is a coroutine, or holds one among others."""
    held: Iterable[Any] = (value,)
    if isinstance(value, dict | list | tuple):
        held = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else cast("Iterable[Any]", value)
    return any(isinstance(one, str) and _UNAWAITED_COROUTINE.fullmatch(one) for one in held)


def _with_resume(result: ToolResult, id: str) -> ToolResult:
    error = result.error
    assert error is not None
    hint = f"give the same or corrected code with resume={id!r}: what was changed already is not changed again"
    return ToolResult.failed(error.code, error.message, hint=hint, details={**error.details, "resume": id})
