"""A stdio server that writes every call that reaches it into a file, standard library only: `ledger_server.py LEDGER`.

One line a call: the tool and its arguments, written before anything else happens.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SECRET = "correct horse battery staple"
"""What the tool `leak` cannot keep to itself."""
BIG = "\n".join(f"line {number} of many" for number in range(2000))
"""What the tool `flood` answers."""

READ = {"readOnlyHint": True}
WRITE = {"readOnlyHint": False, "destructiveHint": False}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
LOOK = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "default": 3},
        "order": {"enum": ["old", "new"], "default": "new"},
    },
    "required": ["query"],
    "additionalProperties": False,
}
PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "value": {"type": "integer", "default": 0}},
    "required": ["path"],
}
LENGTH = {"type": "object", "properties": {"length": {"type": "integer"}}, "required": ["length"]}

Answer = Mapping[str, Any] | None


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def measure(arguments: Mapping[str, Any]) -> Answer:
    length = len(arguments["query"])
    return text(json.dumps({"length": length}), structuredContent={"length": length})


def echo(arguments: Mapping[str, Any]) -> Answer:
    return text(json.dumps(arguments, sort_keys=True))


def picture(arguments: Mapping[str, Any]) -> Answer:
    return {"content": [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]}


TOOLS: dict[str, tuple[dict[str, Any], Callable[[Mapping[str, Any]], Answer]]] = {
    "look": ({"inputSchema": LOOK, "annotations": READ}, echo),
    "measure": ({"inputSchema": LOOK, "annotations": READ, "outputSchema": LENGTH}, measure),
    "picture": ({"inputSchema": EMPTY, "annotations": READ}, picture),
    "leak": ({"inputSchema": EMPTY, "annotations": READ}, lambda _: text(f"the password is {SECRET}, do not tell")),
    "flood": ({"inputSchema": EMPTY, "annotations": READ}, lambda _: text(BIG)),
    "fail": ({"inputSchema": EMPTY, "annotations": READ}, lambda _: text("no such notebook", isError=True)),
    "hang": ({"inputSchema": EMPTY, "annotations": READ}, lambda _: None),
    "put": ({"inputSchema": PATH, "annotations": WRITE}, echo),
    "erase": ({"inputSchema": PATH, "annotations": {"destructiveHint": True}}, echo),
}
"""Every tool: what is listed of it, and what it answers; None is no answer at all."""


def call(params: Mapping[str, Any], ledger: Path) -> Answer:
    name: str = params["name"]
    arguments: dict[str, Any] = params.get("arguments") or {}
    with ledger.open("a") as lines:
        lines.write(json.dumps({"tool": name, "arguments": arguments}) + "\n")
    return TOOLS[name][1](arguments)


def answer(method: str, params: Mapping[str, Any], ledger: Path) -> Answer:
    if method == "initialize":
        info = {"name": "ledger", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "description": f"To {name}.", **shown} for name, (shown, _) in TOOLS.items()]}
    return call(params, ledger) if method == "tools/call" else {}


def main(ledger: Path) -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "server/discover":
            reply["error"] = {"code": -32601, "message": "unknown method"}
        elif (result := answer(request["method"], request.get("params") or {}, ledger)) is not None:
            reply["result"] = result
        else:
            continue
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
