"""A stdio server that is killed at random, standard library only: `chaos_server.py JOURNAL`.

Every call writes `begin TOOL NUMBER` before anything else and `end TOOL NUMBER` before it is answered. Both are on the
disk then: one write each, so that a kill tears no line and nobody is answered for what the journal does not know.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Final

_WORK_SECONDS: Final = 0.02
"""How long a call takes: time enough to be killed in the middle of it."""
_NUMBER: Final = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
_TOOLS: Final[dict[str, dict[str, Any]]] = {
    "charge": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False},
    "put": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    "look": {"readOnlyHint": True},
}
"""Name → annotations: what may never run twice, what may, and what only reads."""


def write(journal: str, line: str) -> None:
    """Append a line, and return once it is on the disk."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


def answer(method: str, params: dict[str, Any], journal: str) -> dict[str, Any]:
    """Return the result of a request."""
    if method == "initialize":
        info = {"name": "chaos", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        shown = {"description": "Write a number into the journal.", "inputSchema": _NUMBER}
        return {"tools": [{"name": name, **shown, "annotations": hints} for name, hints in _TOOLS.items()]}
    if method != "tools/call":
        return {}
    body = f"{params['name']} {params['arguments']['number']}"
    write(journal, f"begin {body}")
    time.sleep(_WORK_SECONDS)
    write(journal, f"end {body}")
    return {"content": [{"type": "text", "text": body}]}


def main(journal: str) -> None:
    """Answer until the input ends, one request after another."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "server/discover":
            reply["error"] = {"code": -32601, "message": "unknown method"}
        else:
            reply["result"] = answer(request["method"], request.get("params") or {}, journal)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
