"""Arguments against the tool's schema: context values of the session, schema defaults, then every error with its path.

Nothing is coerced. A refusal carries what a model needs to get it right the next time: each wrong field, the schema
and one valid example.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ...core.call import Call
from ...core.json import dumps
from ...core.schema import FieldError, ValidatorCache
from ...core.tool import Tool
from ...disclosure import render
from ...errors import ToolFailure

__all__ = ["Validate"]

_SCHEMA_SHOWN = 4000
"""Characters of a schema that an error repeats; a larger one is named by its fields."""


class Validate:
    """Check arguments; keeps the compiled schemas of the tools in use."""

    def __init__(self) -> None:
        """Start with nothing compiled."""
        self._validators = ValidatorCache()

    async def __call__(self, call: Call) -> Call:
        """Return the call with complete arguments; raises `ToolFailure` listing every field that is wrong."""
        tool, given = call.target, call.arguments
        validator = self._validators.of(tool)
        if call.session.defaults:
            given = _with_context(given, tool, call.session.defaults)
        arguments, errors = validator.accept(given)
        if errors:
            raise self._in_words(call) or _invalid(tool, errors)
        return call if arguments is call.arguments else call.evolve(arguments=arguments)

    def _in_words(self, call: Call) -> ToolFailure | None:
        """Return what is wrong in the words of the profile that the caller spoke; None where it spoke in others."""
        if call.said is None:
            return None
        shown, given = call.said
        if call.session.defaults:
            given = _with_context(given, shown, call.session.defaults)
        _, errors = self._validators.of(shown).accept(given)
        return _invalid(shown, errors) if errors else None


def _with_context(given: Any, tool: Tool, defaults: Mapping[str, Any]) -> Any:
    """Add the session's values for arguments that the tool declares and the caller left out.

    Arguments in `tool.explicit` are the caller's alone.
    """
    if not isinstance(given, Mapping):
        return given
    sent = cast("Mapping[str, Any]", given)
    declared = tool.input_schema.get("properties", {})
    missing = {
        name: value
        for name, value in defaults.items()
        if name in declared and name not in sent and name not in tool.explicit
    }
    return {**sent, **missing} if missing else sent


def _invalid(tool: Tool, errors: tuple[FieldError, ...]) -> ToolFailure:
    listed = "; ".join(str(error) for error in errors[:10])
    more = f" (and {len(errors) - 10} more)" if len(errors) > 10 else ""
    schema = dumps(tool.input_schema).decode()
    shown = schema if len(schema) <= _SCHEMA_SHOWN else render.signature(tool)
    example = render.call_example(tool)
    return ToolFailure(
        "invalid_arguments",
        f"{tool.name} did not run: {listed}{more}",
        hint=f"schema: {shown}\nexample: {dumps(example).decode()}",
        details={"field_errors": [error.to_json() for error in errors], "example": example},
    )
