"""Steps of the program that embeds Toolcrib: `Toolcrib(before=[…], after=[…])`.

A before-step runs after `validate` and before anything is decided: rules, approval and record see the arguments that it
returns. An after-step runs before `redact`. Functions may be plain or async; a plain one runs on the event loop and
must not block. Neither is given a grant, and what a step returns besides arguments and content is not taken over.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ...core.call import Call, Reference
from ...core.json import canonical
from ...core.result import ToolResult
from ...core.schema import compile_schema
from ...errors import CODES, ToolFailure, UsageError
from ...jobs.tools import is_settled
from ...policy.grant import covers
from ..pipeline import caller_left

BeforeStep = Callable[[Call], Call | ToolResult | Awaitable[Call | ToolResult]]
"""Gets a validated call; returns it, a copy with other arguments (`call.evolve(arguments=…)`), or a result: the end."""
AfterStep = Callable[[Call, ToolResult], ToolResult | Awaitable[ToolResult]]
"""Gets a call and its outcome; returns the outcome, or a copy with other content."""

_logger = logging.getLogger("toolcrib.dispatch")


class CustomSteps(Struct, frozen=True, kw_only=True):
    """The steps of one crib, in the order in which they run."""

    before: tuple[BeforeStep, ...] = ()
    after: tuple[AfterStep, ...] = ()

    @classmethod
    def of(cls, before: Iterable[BeforeStep], after: Iterable[AfterStep]) -> CustomSteps:
        """Return the steps. Raises `UsageError` for anything but a list of functions."""
        return cls(before=_functions("before", before), after=_functions("after", after))


NO_STEPS: Final = CustomSteps()


def _functions(name: str, given: Iterable[Any]) -> tuple[Any, ...]:
    steps = tuple(given) if isinstance(cast("Any", given), Iterable) else (None,)
    for place, step in enumerate(steps):
        if not callable(step):
            raise UsageError(f"{name}[{place}]: a list of functions was expected, as in Toolcrib({name}=[my_step])")
    return steps


def step_name(step: Callable[..., Any]) -> str:
    """Return the name of a step for people: the module and name of its function or class."""
    while isinstance(step, partial):
        step = cast("Callable[..., Any]", step.func)
    named = step if hasattr(step, "__qualname__") else type(step)
    return f"{named.__module__}.{named.__qualname__}"


class CustomBefore:
    """One before-step of the program, as a step of the pipeline."""

    def __init__(self, step: BeforeStep, validate: Callable[[Call], Call]) -> None:
        """Its name stands in errors and in the record; `validate` is the step of the pipeline."""
        self._step = step
        self._validate = validate
        self._name = step_name(step)

    async def __call__(self, call: Call) -> Call | ToolResult:
        """Return the call, with other arguments where the step gave some that the tool takes, or the step's result.

        In a call that is made again, as a job or for a late approval, the step may still end it; the arguments stay
        those that were accepted. Raises `ToolFailure` for arguments that the tool does not take.
        """
        outcome = await self._outcome(call)
        if isinstance(outcome, ToolResult):
            return outcome
        if call.charged or canonical(outcome) == canonical(call.arguments):
            return call
        return self._changed(call, outcome)

    async def confirm(self, call: Call) -> Call:
        """Return a call whose arguments an approver has edited; the step may refuse it.

        A change would run what the approver has not seen. Raises `ToolFailure("denied")`.
        """
        outcome = await self._outcome(call)
        if isinstance(outcome, ToolResult) or canonical(outcome) != canonical(call.arguments):
            raise ToolFailure("denied", f"the before-step {self._name} does not let these arguments pass")
        return call

    async def _outcome(self, call: Call) -> Mapping[str, Any] | ToolResult:
        """Return the arguments that the step gives back, or its result without metadata.

        A step that breaks ends the call: `ToolFailure("internal")`, which names it.
        """
        try:
            return await self._given(call)
        except ToolFailure:
            raise
        except Exception:
            _logger.exception("the before-step %s failed on call %s of %s", self._name, call.id, call.name)
            message = f"{call.name} did not run: the before-step {self._name} of this program failed"
            raise ToolFailure("internal", message) from None

    async def _given(self, call: Call) -> Mapping[str, Any] | ToolResult:
        shown = call.evolve(arguments=copy.deepcopy(call.arguments), grant=None)
        try:
            outcome = await _returned(self._step(shown))
        except anyio.get_cancelled_exc_class() as error:
            if caller_left():
                raise
            raise RuntimeError(f"the before-step {self._name} was cancelled from inside") from error
        if isinstance(outcome, ToolResult):
            return self._result(outcome)
        if not isinstance(outcome, Call):
            kind = type(outcome).__name__
            raise TypeError(f"the before-step {self._name} returned {kind}, not the call or a ToolResult")
        others = (name for name in shown.__struct_fields__ if name != "arguments")
        if changed := [name for name in others if getattr(outcome, name) is not getattr(shown, name)]:
            raise TypeError(f"the before-step {self._name} changed {', '.join(changed)}: only arguments may change")
        arguments: Any = outcome.arguments
        if not isinstance(arguments, Mapping):
            raise TypeError(f"the before-step {self._name} returned {type(arguments).__name__} as arguments")
        return cast("Mapping[str, Any]", arguments)

    def _result(self, given: ToolResult) -> ToolResult:
        """Return the result of the step, with nothing but its content, its error and who ended the call."""
        if given.error is not None and given.error.code not in CODES:
            raise TypeError(f"the before-step {self._name} returned an unknown code {given.error.code!r}")
        content, structured = _content(given.content), given.structured_content
        canonical([structured, given.error and given.error.to_json()])
        meta = {"ended_by": self._name}
        return ToolResult(content=content, structured_content=structured, error=given.error, meta=meta)

    def _changed(self, call: Call, arguments: Mapping[str, Any]) -> Call:
        given = copy.deepcopy(dict(arguments))
        before = call.arguments
        names = (name for name in dict.fromkeys((*given, *before)) if not _is_equal(given, before, name))
        note = f"{self._name} changed {', '.join(names)}"
        references = tuple(one for one in call.references if _is_at(given, before, one))
        changed = call.evolve(arguments=given, references=references, repairs=(*call.changes.repairs, note))
        try:
            return self._validate(changed)
        except ToolFailure as failure:
            message = f"{call.name} did not run: {self._name} changed its arguments, and it does not take them"
            raise ToolFailure(
                failure.code, f"{message}: {failure.message}", hint=failure.hint, details=failure.details
            ) from failure


class CustomAfter:
    """One after-step of the program, as a step of the pipeline."""

    def __init__(self, step: AfterStep) -> None:
        """Its name stands in errors."""
        self._step = step
        self._name = step_name(step)

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result with the content of the step; code, `is_error` and metadata stay as they were.

        A step that breaks withholds the result: what it should have changed is not handed out. Results that went
        through it before (a replay, the result of a job) are handed on.
        """
        if result.meta.get("replayed") or is_settled(call, result):
            return result
        try:
            return await self._applied(call, result)
        except Exception:
            _logger.exception("the after-step %s failed on call %s of %s", self._name, call.id, call.name)
            return replace(self._withheld(call, result), meta=result.meta)

    async def _applied(self, call: Call, result: ToolResult) -> ToolResult:
        shown = call.evolve(arguments=copy.deepcopy(call.arguments), grant=None)
        given = await _returned(self._step(shown, copy.deepcopy(result)))
        if not isinstance(given, ToolResult):
            raise TypeError(f"the after-step {self._name} returned {type(given).__name__}, not the ToolResult")
        content, structured = _content(given.content), given.structured_content
        if structured != result.structured_content:
            canonical(structured)
            schema = call.tool.output_schema if call.tool is not None and not result.is_error else None
            if schema is not None and compile_schema(schema).check(structured):
                raise TypeError(f"the after-step {self._name} returned content that breaks the tool's output schema")
        spooled = None if content else result.spooled  # content takes the place of the file
        return replace(result, content=content, structured_content=structured, spooled=spooled)

    def _withheld(self, call: Call, result: ToolResult) -> ToolResult:
        outcome = result.error.code if result.error is not None else "ok"
        grant = call.grant
        ran = grant is not None and not covers(grant, call.target, call.arguments, call.id)
        if not ran:
            message = f"{call.name} did not run, and the after-step {self._name} of this program failed"
            return ToolResult.failed("internal", message, details={"outcome": outcome})
        message = f"{call.name} ran, and the after-step {self._name} of this program failed: the result is withheld"
        is_read = call.target.annotations.read_only
        hint = "" if is_read else "it may have had its effect: check before calling it again"
        return ToolResult.failed("internal", message, hint=hint, details={"outcome": outcome})


async def _returned(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _content(given: Any) -> tuple[Mapping[str, Any], ...]:
    """Return content blocks, copied. Raises `TypeError` for what is none, or is not JSON."""
    given = tuple(given)
    for block in given:
        if not isinstance(block, Mapping) or not isinstance(cast("Mapping[str, Any]", block).get("type"), str):
            raise TypeError("content is a list of MCP content blocks, each with a type")
        canonical(block)
    return tuple(map(dict, given))


def _is_equal(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    return name in one and name in other and canonical(one[name]) == canonical(other[name])


def _is_at(new: Any, old: Any, reference: Reference) -> bool:
    """Whether the value of a reference is still where it was."""
    for step in reference.path:
        try:
            new, old = new[step], old[step]
        except (KeyError, IndexError, TypeError):
            return False
    return bool(new == old)
