"""Mend what models really send, as far as the schema proves what was meant; anything else is left to `validate`."""

from __future__ import annotations

from ...core.call import Call
from ...core.schema import repair

__all__ = ["repair_arguments", "repaired"]


async def repair_arguments(call: Call) -> Call:
    """Return the call with arguments that are an object; raises `ToolFailure` for text that is no JSON."""
    return repaired(call)


def repaired(call: Call) -> Call:
    """Do the same at once: nothing here waits."""
    arguments, notes = repair(call.arguments, call.target.input_schema)
    if arguments is call.arguments and not notes:
        return call
    return call.evolve(arguments=arguments, repairs=(*call.repairs, *notes))
