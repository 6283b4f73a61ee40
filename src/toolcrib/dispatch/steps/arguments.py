"""Steps on arguments: repair, migrate, expand references, validate."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final

from ...core.call import Call, complete_arguments, validator_of
from ...core.json import dumps
from ...core.schema import FieldError, plain_check, repair
from ...core.tool import Tool
from ...core.versions import migrate, pin_of_session
from ...disclosure import signatures
from ...disclosure.meta_tools import SOURCE
from ...errors import ToolFailure
from ...jobs.tools import SOURCE as JOBS
from ...policy.taint import Taint
from ...results.artifact_references import expand, holds_reference
from ...results.artifacts import Artifacts
from ..plan import Before, Subject

__all__ = ["Expand", "Migrate", "Repair", "Validate"]

_logger: Final = logging.getLogger(__name__)


class Repair:
    """Make the arguments an object; raises `ToolFailure` for text that is not JSON."""

    def __call__(self, call: Call) -> Call:
        """Return the call with arguments that are an object."""
        arguments, notes = repair(call.arguments, call.target.input_schema)
        if arguments is call.arguments and not notes:
            return call
        return call.evolve(arguments=arguments, repairs=(*call.changes.repairs, *notes))

    def bind(self, subject: Subject) -> Before:
        """Return the step for one schema: arguments that need no repair pass at once."""
        if subject.tool is None:
            return self
        is_plain = plain_check(subject.tool.input_schema)
        return lambda call: call if is_plain(call.arguments) else self(call)


class Migrate:
    """Make the arguments those that the tool takes now, where the call or its session pins an older version."""

    def __call__(self, call: Call) -> Call:
        """Return the call with migrated arguments. Raises `ToolFailure` when a migration breaks.

        A call that is made again was migrated the first time.
        """
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
                f"{tool.name} did not run: the arguments of version {version} could not be made those of "
                f"{tool.version}",
                hint=f"call it as version {tool.version} wants it",
            ) from error
        asked = f"{call.route.requested or tool.name}@{version}"  # the requested name in the audit row
        repairs = (*call.changes.repairs, *notes)
        return call.evolve(arguments=arguments, repairs=repairs, migrated=version, requested=asked)

    def bind(self, subject: Subject) -> Before | None:
        """Return nothing for a tool without migrations."""
        return None if subject.tool is not None and not subject.tool.migrations else self


class Expand:
    """Replace artifact references by their values."""

    def __init__(self, artifacts: Artifacts, taint: Taint) -> None:
        """`artifacts` holds the outputs, each for its owner; `taint` records which of them are untrusted."""
        self._artifacts = artifacts
        self._taint = taint

    def __call__(self, call: Call) -> Call | Awaitable[Call]:
        """Return the call with real arguments; raises `ToolFailure` naming the argument that cannot be resolved.

        Arguments of meta-tools and of the tools for jobs stay as they are: they belong to another call.
        """
        if call.target.source in (SOURCE, JOBS) or not holds_reference(call.arguments):
            return call
        return self._expanded(call)

    def bind(self, subject: Subject) -> Before | None:
        """Return nothing for meta-tools and the tools for jobs."""
        return None if subject.tool is not None and subject.tool.source in (SOURCE, JOBS) else self

    async def _expanded(self, call: Call) -> Call:
        tool, owner = call.target, call.session.principal
        arguments, references = await expand(call.arguments, tool.input_schema, owner, self._artifacts)
        if any(reference.trust == "untrusted" for reference in references):
            # another session may have read it, so the tool's own declaration counts here
            self._taint.stain(tool, call.session)
        return call.evolve(arguments=arguments, references=references) if references else call


_SCHEMA_SHOWN: Final = 4000
"""Characters of a schema that an error repeats; a larger one is named by its fields."""


class Validate:
    """Check the arguments against the schema, and fill in its defaults and those of the session."""

    def __call__(self, call: Call) -> Call:
        """Return the call with its effective arguments; raises `ToolFailure` listing every field that is wrong."""
        tool = call.target
        arguments, errors = complete_arguments(tool, call.arguments, call.session.defaults)
        if errors:
            raise _in_profile_words(call) or _invalid(tool, errors)
        return call if arguments is call.arguments else call.evolve(arguments=arguments)

    def bind(self, subject: Subject) -> Before:
        """Return the step for one schema; a session with values of its own, and every error, takes the whole step."""
        try:
            accept = validator_of(subject.tool).accept if subject.tool is not None else None
        except ValueError:  # the schema cannot be taken: the step fails with its reason at each call
            return self
        if accept is None:
            return self

        def validate(call: Call) -> Call:
            if call.session.defaults:
                return self(call)
            given = call.arguments
            arguments, errors = accept(given)
            if errors:
                return self(call)
            return call if arguments is given else call.evolve(arguments=arguments)

        return validate


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
