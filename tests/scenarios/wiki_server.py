"""The wiki: an MCP server on stdio, standard library only. `wiki_server.py PAGES` keeps its pages in that JSON file."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Pages = dict[str, str]

TEXT = {"type": "string"}
READ = {"readOnlyHint": True, "openWorldHint": False}
WRITE = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
DESTROY = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}


def fields(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, TEXT), "required": list(names)}


def there(pages: Pages, title: str) -> str:
    if title not in pages:
        raise LookupError(f"there is no page {title}; there are {', '.join(pages)}")
    return title


def search(pages: Pages, text: str) -> str:
    found = [title for title, body in pages.items() if text.lower() in f"{title} {body}".lower()]
    return "\n".join(found) or "no page holds that"


def read(pages: Pages, title: str) -> str:
    return pages[there(pages, title)]


def write(pages: Pages, title: str, text: str) -> str:
    pages[title] = text
    return f"{title} is written"


def append(pages: Pages, title: str, text: str) -> str:
    pages[there(pages, title)] += f"\n{text}"
    return f"{title} is longer now"


def rename(pages: Pages, title: str, new_title: str) -> str:
    pages[new_title] = pages.pop(there(pages, title))
    return f"{title} is {new_title} now"


def delete(pages: Pages, title: str) -> str:
    del pages[there(pages, title)]
    return f"{title} is gone"


TOOLS: dict[str, tuple[str, dict[str, Any], dict[str, bool], Callable[..., str]]] = {
    "search_pages": ("Find pages of the company's wiki that hold a word.", fields("text"), READ, search),
    "read_page": ("Read a page of the company's wiki.", fields("title"), READ, read),
    "write_page": ("Write a page of the company's wiki, over what it said.", fields("title", "text"), DESTROY, write),
    "append_to_page": ("Add a line at the end of a page of the wiki.", fields("title", "text"), WRITE, append),
    "rename_page": ("Give a page of the wiki another title.", fields("title", "new_title"), WRITE, rename),
    "delete_page": ("Delete a page of the wiki for good.", fields("title"), DESTROY, delete),
}


def call(file: Path, params: Any) -> dict[str, Any]:
    pages: Pages = json.loads(file.read_text(encoding="utf-8"))
    try:
        told = TOOLS[params["name"]][3](pages, **params["arguments"])
    except LookupError as error:
        return {"content": [{"type": "text", "text": str(error.args[0])}], "isError": True}
    file.write_text(json.dumps(pages), encoding="utf-8")
    return {"content": [{"type": "text", "text": told}]}


def answer(file: Path, method: str, params: Any) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "wiki", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        listed = [
            {"name": name, "description": told, "inputSchema": schema, "annotations": hints}
            for name, (told, schema, hints, _) in TOOLS.items()
        ]
        return {"tools": listed}
    return call(file, params) if method == "tools/call" else {}


def main(file: Path) -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "server/discover":
            reply["error"] = {"code": -32601, "message": "unknown method"}
        else:
            reply["result"] = answer(file, request["method"], request.get("params"))
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
