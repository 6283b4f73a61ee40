"""A pattern of RE2 as ripgrep's engine reads it, so that both mean the same.

RE2's classes and word boundaries are ASCII, ripgrep's are Unicode's; some texts mean one thing here and another one
there. What cannot be said the same way is not given to ripgrep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["for_ripgrep"]

_ESCAPES: Final[Mapping[str, str]] = {
    "b": r"(?-u:\b)",
    "B": r"(?-u:\B)",
    "d": "[0-9]",
    "D": "[^0-9]",
    "s": r"[\t\n\f\r ]",
    "S": r"[^\t\n\f\r ]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "<": "<",
    ">": ">",
}
_OTHERWISE: Final = re.compile(r"&&|--|~~|\{,|\[[^\]]*\[(?!:)|\\[ACQz]|\(\?[a-zA-Z-]*[smU]")
"""Set operations, nested sets, an open repetition, ends of the text, flags that look across lines."""


def for_ripgrep(pattern: str) -> str | None:
    """Return the pattern in ripgrep's words; None where it could mean something else there."""
    if _OTHERWISE.search(pattern):
        return None
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), pattern, flags=re.DOTALL)
