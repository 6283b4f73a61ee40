"""An MCP server of few lines, standard library only: notes that can be searched and deleted, and text that bites.

`python notes_server.py [JOURNAL [WORD]]` writes deletions to JOURNAL; WORD goes into a description.
"""

import json
import sys
from pathlib import Path
from typing import Any

STRING = {"type": "string"}
SEARCH = {
    "type": "object",
    "properties": {
        "query": {**STRING, "description": "Words."},
        "limit": {"type": "integer"},
        "tags": {"type": "array", "items": STRING},
    },
    "required": ["query"],
}
ID = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
READ = {"readOnlyHint": True}


def tools(word: str) -> list[dict[str, Any]]:
    return [
        {
            "name": "search_notes",
            "description": f"Search the notes. {word}",
            "inputSchema": SEARCH,
            "annotations": READ,
        },
        {"name": "delete_note", "description": "Delete one note for ever.", "inputSchema": ID},
        {"name": "shout", "description": "Answer wildly.", "inputSchema": {"type": "object"}, "annotations": READ},
        {"name": "fail", "description": "Fail.", "inputSchema": {"type": "object"}, "annotations": READ},
    ]


def call(name: str, arguments: dict[str, Any], journal: str) -> dict[str, Any]:
    if name == "fail":
        return {"content": [{"type": "text", "text": "no such notebook"}], "isError": True}
    if name == "shout":
        return {"content": [{"type": "text", "text": "a\x1b[31mred\u202e\nb"}]}
    if name == "delete_note":
        Path(journal).write_text(json.dumps(arguments))
    return {"content": [{"type": "text", "text": json.dumps(arguments, sort_keys=True)}]}


def main() -> None:
    journal, word = ([*sys.argv[1:], "", ""])[:2]
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method: str = request["method"]
        params: dict[str, Any] = request.get("params") or {}
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if method == "initialize":
            info = {"name": "notes", "version": "1"}
            answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            answer["result"] = {"tools": tools(word)}
        elif method == "tools/call":
            answer["result"] = call(params["name"], params.get("arguments") or {}, journal)
        else:
            answer["error"] = {"code": -32601, "message": "unknown method"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
