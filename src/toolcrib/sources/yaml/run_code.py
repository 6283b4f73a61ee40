"""Running a class or a function of a module: loaded once, at the first call, in a thread."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import anyio

from ...core.context import Context
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...results.normalize import to_result
from ..run import body_of
from ..threads import Threads
from .context import ToolContext
from .implementation import Code
from .modules import Located, load

__all__ = ["CodeRunner"]

_log: Final = logging.getLogger(__name__)
_INJECTED: Final = ("context", "ctx")
"""Names of a function's parameter that gets the context, unless the tool has an argument of that name."""

_Prepared = Callable[[Mapping[str, Any], Context], Callable[[], Any]]


class CodeRunner:
    """One class or function. Its instance, if it is a class, lives as long as this."""

    def __init__(self, code: Code, located: Located, threads: Threads) -> None:
        self._code = code
        self._located = located
        self._threads = threads
        self._prepare: _Prepared | None = None
        self._loading = anyio.Lock()

    async def __call__(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run it. Raises `ToolFailure`: `unavailable` when it cannot be loaded, else what it says itself."""
        if self._prepare is None:
            async with self._loading:
                self._prepare = self._prepare or await self._load(tool)
        call = self._prepare(arguments, context)
        return _judged(await body_of(call, tool.name)({}, context, self._threads))

    async def _load(self, tool: Tool) -> _Prepared:
        code = self._code
        try:
            return await self._threads.run(partial(_prepared, code, self._located, frozenset(_arguments(tool))))
        except (Exception, SystemExit) as error:
            _log.warning("tool %s: %s.%s cannot be loaded", tool.name, code.module, code.attribute, exc_info=error)
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise ToolFailure(
                "unavailable",
                f"{tool.name} is not loaded: {code.module}.{code.attribute}: {reason}",
                hint="Its operator has to fix this; another tool may do.",
            ) from error


def _prepared(code: Code, located: Located, names: frozenset[str]) -> _Prepared:
    """Load, and return how a call is made of arguments. Runs in a thread."""
    found = load(code, located)
    if not code.is_class:
        if not callable(found):
            raise TypeError(f"{code.attribute} cannot be called")
        return _of_function(found, names)
    execute = getattr(found(), "execute", None)
    if not callable(execute):
        raise TypeError(f"{code.attribute} has no method execute(params, context)")
    takes_context = _positional(execute) != 1
    return lambda arguments, context: partial(
        execute, dict(arguments), *((ToolContext.of(context),) if takes_context else ())
    )


def _of_function(function: Callable[..., Any], names: frozenset[str]) -> _Prepared:
    parameters = inspect.signature(function).parameters
    injected = next((name for name in _INJECTED if name in parameters and name not in names), "")
    return lambda arguments, context: partial(
        function, **dict(arguments), **({injected: ToolContext.of(context)} if injected else {})
    )


def _positional(execute: Callable[..., Any]) -> int:
    """Return how many arguments it takes by place; any number counts as two."""
    kinds = [parameter.kind for parameter in inspect.signature(execute).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 2
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _arguments(tool: Tool) -> Mapping[str, Any]:
    properties = tool.input_schema.get("properties")
    return cast("Mapping[str, Any]", properties) if isinstance(properties, Mapping) else {}


def _judged(value: Any) -> ToolResult:
    """Raise the failure that a tool of seed 004 reports as `{"success": false, "error": …}`."""
    result = to_result(value)
    answer: Any = result.structured_content
    said = cast("dict[str, Any]", answer if isinstance(answer, dict) else {})
    if said.get("success") is not False or "error" not in said:
        return result
    hint = said.get("recovery_hint")
    raise ToolFailure(
        "tool_error",
        str(said["error"]),
        hint=hint if isinstance(hint, str) else "",
        details={key: item for key, item in said.items() if key not in ("success", "error", "recovery_hint")},
    )
