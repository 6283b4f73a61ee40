"""Arguments against the tool's schema: context values of the session, schema defaults, then every error with its path.

Nothing is coerced. A refusal carries what a model needs to get it right the next time: each wrong field, the schema
and one valid example.
"""

from __future__ import annotations

from typing import Final

from ...core.arguments import complete_arguments
from ...core.call import Call
from ...core.json import dumps
from ...core.schema import FieldError
from ...core.tool import Tool
from ...disclosure import render
from ...errors import ToolFailure

__all__ = ["validate_arguments"]

_SCHEMA_SHOWN: Final = 4000
"""Characters of a schema that an error repeats; a larger one is named by its fields."""


async def validate_arguments(call: Call) -> Call:
    """Return the call with its effective arguments; raises `ToolFailure` listing every field that is wrong."""
    tool = call.target
    arguments, errors = complete_arguments(tool, call.arguments, call.session.defaults)
    if errors:
        raise _in_profile_words(call) or _invalid(tool, errors)
    return call if arguments is call.arguments else call.evolve(arguments=arguments)


def _in_profile_words(call: Call) -> ToolFailure | None:
    """Return the errors in the argument names that the caller used; None for a call in the tool's own."""
    if call.said is None:
        return None
    shown, given = call.said
    _, errors = complete_arguments(shown, given, call.session.defaults)
    return _invalid(shown, errors) if errors else None


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
