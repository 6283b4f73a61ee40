"""A stdio server with one tool and no annotations, standard library only: `python plain_server.py ROLE [CHANGED]`.

Roles: `write` a file · `fetch` a URL · `echo` a text · `resource`, which also has a resource and a prompt, and says
SECRET where it refuses: to complete, and to watch REFUSED · `resource-unwatched`, without subscriptions ·
`view-NAME`, whose tool has a view of MCP Apps that says NAME. With CHANGED
the description is another one, and there is a second tool.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
TOOLS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "write": ("write_file", "Write text into a file, replacing what it holds.", ("path", "text")),
    "fetch": ("fetch_page", "Fetch a page and return its text.", ("url",)),
    "echo": ("say", "Return the text.", ("text",)),
    "resource": ("count", "Count the characters of a text.", ("text",)),
    "view": ("count", "Count the characters of a text, and show them.", ("text",)),
}
REFUSED = "plain://refused"
SECRET = "ghp_" + "0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
VIEW = "ui://count/view.html"
HTML = "text/html;profile=mcp-app"


def listed(role: str, *, changed: bool) -> list[Json]:
    name, description, required = TOOLS[role]
    schema = {"type": "object", "properties": dict.fromkeys(required, _TEXT), "required": list(required)}
    tool: Json = {"name": name, "description": description, "inputSchema": schema}
    if role == "view":
        tool["_meta"] = {"ui": {"resourceUri": VIEW, "visibility": ["model"]}, "ui/resourceUri": VIEW}
    if not changed:
        return [tool]
    return [{**tool, "description": f"{description} Now in another way."}, {**tool, "name": f"{name}_again"}]


def run(name: str, given: Json) -> str:
    if name.startswith("write_file"):
        Path(given["path"]).write_text(given["text"])
        return f"wrote {len(given['text'])} characters"
    if name.startswith("fetch_page"):
        with urllib.request.urlopen(given["url"]) as page:
            return page.read().decode()
    return str(len(given["text"])) if name.startswith("count") else given["text"]


def answer(role: str, changed: bool, method: str, params: Json) -> Json:
    role, _, name = role.partition("-")
    if method == "initialize":
        offers: Json = (
            {"resources": {"subscribe": name != "unwatched"}, "prompts": {}} if role in ("resource", "view") else {}
        )
        offers |= {"completions": {}} if role == "resource" else {}
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, **offers},
            "serverInfo": {"name": role, "version": "1"},
        }
    if method == "resources/list" and role == "view":
        return {"resources": [{"uri": VIEW, "name": "view", "mimeType": HTML}]}
    if method == "resources/read" and role == "view":
        return {"contents": [{"uri": params["uri"], "mimeType": HTML, "text": f"<p>{name}</p>"}]}
    if method == "resources/list":
        return {"resources": [{"uri": "plain://one", "name": "one"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": "the resource"}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "one"}]}
    if method == "tools/list":
        return {"tools": listed(role, changed=changed)}
    if method != "tools/call":
        return watched(method, params)
    return {"content": [{"type": "text", "text": run(params["name"], params["arguments"])}], "isError": False}


def watched(method: str, params: Json) -> Json:
    if method not in ("resources/subscribe", "resources/unsubscribe") or params["uri"] == REFUSED:
        raise LookupError(f"{method} for {SECRET}\u202e")
    return {}


def main(role: str, *, changed: bool) -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        request: Json = json.loads(line)
        if "id" not in request:
            continue
        try:
            outcome = {"result": answer(role, changed, request["method"], request.get("params") or {})}
        except LookupError as error:
            outcome = {"error": {"code": -32601, "message": f"no method {error}"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], changed=len(sys.argv) > 2)
