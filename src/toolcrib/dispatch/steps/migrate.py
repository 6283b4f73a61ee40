"""Arguments of an older version of a tool become those of the one that runs."""

from __future__ import annotations

import logging
from typing import Final

from ...core.call import Call
from ...core.versions import migrate, pin_of_session
from ...errors import ToolFailure

__all__ = ["migrate_arguments", "migrated"]

_logger: Final = logging.getLogger(__name__)


async def migrate_arguments(call: Call) -> Call:
    """Return the call with arguments as the tool takes them now, where the call or its session pins an older version.

    A call that is made again was migrated the first time. Raises `ToolFailure` when a migration breaks.
    """
    return migrated(call)


def migrated(call: Call) -> Call:
    """Do the same at once: nothing here waits."""
    tool = call.target
    version = call.version or pin_of_session(call.session.versions, tool)
    if not version or call.migrated or version not in tool.migrations or version == tool.version:
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
    asked = f"{call.requested or tool.name}@{version}"  # what the audit row says was asked for
    return call.evolve(arguments=arguments, repairs=(*call.repairs, *notes), migrated=version, requested=asked)
