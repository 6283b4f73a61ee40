"""Steps on arguments: repair, migrate, expand references, validate."""

from __future__ import annotations

import logging
from typing import Final

from ...core.call import Call, complete_arguments
from ...core.json import dumps
from ...core.schema import FieldError, repair
from ...core.tool import Tool
from ...core.versions import migrate, pin_of_session
from ...disclosure import signatures
from ...disclosure.meta_tools import SOURCE
from ...errors import ToolFailure
from ...jobs.tools import SOURCE as JOBS
from ...policy.taint import Taint
from ...results.artifact_references import expand, holds_reference
from ...results.artifacts import Artifacts

__all__ = ["Expand", "migrate_arguments", "migrated", "repair_arguments", "repaired", "validate_arguments"]


async def repair_arguments(call: Call) -> Call:
    """Return the call with arguments that are an object; raises `ToolFailure` for text that is not JSON."""
    return repaired(call)


def repaired(call: Call) -> Call:
    """Do the same at once: nothing here waits."""
    arguments, notes = repair(call.arguments, call.target.input_schema)
    if arguments is call.arguments and not notes:
        return call
    return call.evolve(arguments=arguments, repairs=(*call.changes.repairs, *notes))


_logger: Final = logging.getLogger(__name__)


async def migrate_arguments(call: Call) -> Call:
    """Return the call with arguments as the tool takes them now, where the call or its session pins an older version.

    A call that is made again was migrated the first time. Raises `ToolFailure` when a migration breaks.
    """
    return migrated(call)


def migrated(call: Call) -> Call:
    """Do the same at once: nothing here waits."""
    tool = call.target
    version = call.options.version or pin_of_session(call.session.scope.versions, tool)
    if not version or call.changes.migrated or version not in tool.migrations or version == tool.version:
        return call
    try:
        arguments, notes = migrate(tool, version, call.arguments)
    except Exception as error:
        _logger.exception("the migration of %s from version %s failed", tool.name, version)
        raise ToolFailure(
            "invalid_arguments",
            f"{tool.name} did not run: the arguments of version {version} could not be made those of {tool.version}",
            hint=f"call it as version {tool.version} wants it",
        ) from error
    asked = f"{call.route.requested or tool.name}@{version}"  # the requested name in the audit row
    return call.evolve(arguments=arguments, repairs=(*call.changes.repairs, *notes), migrated=version, requested=asked)


class Expand:
    """Replace artifact references by their values."""

    def __init__(self, artifacts: Artifacts, taint: Taint) -> None:
        """`artifacts` holds the outputs, each for its owner; `taint` records which of them are untrusted."""
        self._artifacts = artifacts
        self._taint = taint

    async def __call__(self, call: Call) -> Call:
        """Return the call with real arguments; raises `ToolFailure` naming the argument that cannot be resolved.

        Arguments of meta-tools and of the tools for jobs stay as they are: they belong to another call.
        """
        tool = call.target
        if tool.source in (SOURCE, JOBS) or not holds_reference(call.arguments):
            return call
        owner = call.session.principal
        arguments, references = await expand(call.arguments, tool.input_schema, owner, self._artifacts)
        if any(reference.trust == "untrusted" for reference in references):
            # another session may have read it, so the tool's own declaration counts here
            self._taint.stain(tool, call.session)
        return call.evolve(arguments=arguments, references=references) if references else call


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
    if call.route.as_written is None:
        return None
    shown, given = call.route.as_written
    _, errors = complete_arguments(shown, given, call.session.defaults)
    return _invalid(shown, errors) if errors else None


def _invalid(tool: Tool, errors: tuple[FieldError, ...]) -> ToolFailure:
    listed = "; ".join(str(error) for error in errors[:10])
    more = f" (and {len(errors) - 10} more)" if len(errors) > 10 else ""
    schema = dumps(tool.input_schema).decode()
    shown = schema if len(schema) <= _SCHEMA_SHOWN else signatures.signature(tool)
    example = signatures.call_example(tool)
    return ToolFailure(
        "invalid_arguments",
        f"{tool.name} did not run: {listed}{more}",
        hint=f"schema: {shown}\nexample: {dumps(example).decode()}",
        details={"field_errors": [error.to_json() for error in errors], "example": example},
    )
