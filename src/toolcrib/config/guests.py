"""What the operator tells the built-in tools that nobody else is to read: keys, and the addresses of channels.

The address of a channel is as good as a password: whoever has `discord://…` can write there. So it is masked whole, and
so are its parts, as libraries quote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from .secrets import secret_values

__all__ = ["tool_secrets"]

_MESSAGING: Final = "messaging"
_LEAST: Final = 12
"""Characters of a part of an address that is a token rather than a name."""


def tool_secrets(tools: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets in what the configuration says under `tools`."""
    found: dict[str, None] = {}
    for category, said in tools.items():
        for name, text in _texts(said, category):
            found.update(dict.fromkeys(secret_values(named=({name: text},), url=text if "://" in text else "")))
            if category == _MESSAGING and "://" in text:
                found[text] = None
                found.update(dict.fromkeys(part for part in re.split(r"[/?&=:@]+", text) if len(part) >= _LEAST))
    return tuple(found)


def _texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield every text, however deep, by the key nearest to it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from _texts(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts(inner, name)
