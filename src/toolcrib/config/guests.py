"""Settings of built-in tools that must stay private: keys, and the addresses of channels.

The address of a channel is as good as a password: anyone with `discord://…` can write there. So it is masked whole, and
so are its parts, as libraries quote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from .secrets import secret_values

__all__ = ["TOOL_KEYS", "known_settings", "tool_secrets"]

TOOL_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("*",),
    "api.*": ("headers", "url"),
    "git": ("ca_file", "known_hosts", "private_hosts", "ssh_key", "tokens"),
    "lsp": ("servers",),
    "lsp.servers": ("*",),
    "lsp.servers.*": ("command", "environment", "files", "options", "readable", "seconds", "settings", "writes"),
    "messaging": ("channels", "default"),
    "notebook": ("python",),
    "references": ("folders", "sources"),
    "services": ("credentials",),
    "services.credentials": ("*",),
    "services.credentials.*": ("secret", "url", "username"),
    "settings": ("backends",),
    "templates": ("index",),
    "web": ("private_hosts", "robots", "search"),
    "web.search": ("brave_key", "brave_url", "searxng_url", "tavily_key", "tavily_url"),
}
"""The keys that built-in tools read below `tools`; `*` is a name of the user's. Other categories are for plugins."""

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


def known_settings(path: Sequence[str]) -> tuple[str, ...] | None:
    """Return the keys that the mapping at `path` below `tools` may have; None where any is right."""
    patterns = (key for key in TOOL_KEYS if len(key.split(".")) == len(path))
    fits = (key for key in patterns if all(one in ("*", step) for one, step in zip(key.split("."), path, strict=True)))
    known = TOOL_KEYS.get(next(fits, ""), ("*",))
    return None if known == ("*",) else known


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
