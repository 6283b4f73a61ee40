"""What a tool tells in a session, as its model reads it."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.crib.session import Session

__all__ = ["told"]


async def told(session: Session, name: str, /, **arguments: Any) -> Any:
    """Make a call that works, and return the JSON that it gives."""
    result = await session.call(name, arguments)
    assert result.error is None, result.text
    return json.loads(result.text)
