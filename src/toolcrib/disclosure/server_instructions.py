"""Instructions of the servers behind a gateway, merged for its client within a budget.

A client that is connected to the servers directly gets the `instructions` of each of them; behind a gateway it gets
only the gateway's. So the gateway includes those of the servers whose tools the session sees, each between tags with
the server's name: untrusted text, of which instructions to the model were withheld before (`catalog.preflight`).
Servers share the budget: short texts stay whole, long ones get equal parts of the rest and a mark where they are cut.
"""

from __future__ import annotations

import re
from typing import Final

from ..core.patterns import regex
from ..results.structured_content import share_out
from .base import View, VisibleCatalog

_INTRODUCTION: Final = "What the servers of these tools say of their use, in their own words:"
_FRAME: Final = '<server_instructions server="{server}">\n{text}\n</server_instructions>'
_FORGED_TAG: Final = regex(r"<(?=[\s/\\]*server[\s_-]{0,3}instructions)", re.IGNORECASE)
_CUT_MARK: Final = " […]"
_MIN_BYTES: Final = 80
"""Minimum useful bytes of one text: with too many servers, the last ones are left out."""
_BYTES_PER_TOKEN: Final = 4


def server_instructions(visible: VisibleCatalog, view: View) -> str:
    """Return the instructions of the MCP servers that have tools in `view`; empty without any."""
    about = visible.catalog.about
    sources = dict.fromkeys(tool.source for tool in view.tools if tool.origin == "mcp")
    texts = {name: _FORGED_TAG.sub("&lt;", about[name].instructions.strip()) for name in sources if name in about}
    tokens = visible.profile.tokens.instructions_tokens
    if view.spare_tokens is not None:
        tokens = min(tokens, view.spare_tokens)
    texts = {name: text for name, text in texts.items() if text}
    frames = {name: len(_frame(name, "").encode()) + 1 for name in texts}
    room = tokens * _BYTES_PER_TOKEN - len(_INTRODUCTION)
    taken: list[str] = []
    for name, text in texts.items():
        least = frames[name] + min(len(text.encode()), _MIN_BYTES)
        if least > room:
            break
        room -= least
        taken.append(name)
    if not taken:
        return ""
    sizes = {name: len(texts[name].encode()) for name in taken}
    shares = share_out(sizes, room + sum(min(size, _MIN_BYTES) for size in sizes.values()))
    return "\n".join([_INTRODUCTION, *(_frame(name, _cut(texts[name], shares[name])) for name in taken)])


def _frame(server: str, text: str) -> str:
    return _FRAME.format(server=server, text=text)


def _cut(text: str, size: int) -> str:
    """Return `text` in `size` bytes, cut between words if that loses little, with a mark."""
    data = text.encode()
    if len(data) <= size:
        return text
    piece = data[: max(0, size - len(_CUT_MARK.encode()))].decode("utf-8", "ignore")
    border = max(piece.rfind(" "), piece.rfind("\n"))
    return (piece[:border] if border > len(piece) // 2 else piece).rstrip() + _CUT_MARK
