"""What a tool tells in a session, as its model reads it."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.core.result import ToolError
from toolcrib.crib.session import Session


async def told(session: Session, name: str, /, **arguments: Any) -> Any:
    """Make a call that works, and return the JSON that it gives."""
    return json.loads(await text_of(session, name, **arguments))


async def text_of(session: Session, name: str, /, **arguments: Any) -> str:
    """Make a call that works, and return its text."""
    result = await session.call(name, arguments)
    assert result.error is None, result.text
    return result.text


async def lines_of(session: Session, name: str, /, **arguments: Any) -> list[str]:
    """Make a call that works, and return the lines of its text."""
    return (await text_of(session, name, **arguments)).splitlines()


async def refused(session: Session, name: str, /, **arguments: Any) -> str:
    """Make a call that fails, and return its text."""
    result = await session.call(name, arguments)
    assert result.error is not None, result.text
    return result.text


async def failure_of(session: Session, name: str, /, **arguments: Any) -> ToolError:
    """Make a call that fails, and return why it did."""
    result = await session.call(name, arguments)
    assert result.error is not None, result.text
    return result.error


async def error_of(session: Session, name: str, /, **arguments: Any) -> tuple[str, str]:
    """Make a call that fails, and return its code and message."""
    failure = await failure_of(session, name, **arguments)
    return failure.code, failure.message
