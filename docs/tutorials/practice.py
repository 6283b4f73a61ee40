"""Twelve MCP servers of a made-up office, for the tutorial "From 12 servers to one". Plain Python, no dependency.

python practice.py FOLDER          make FOLDER a home for practice: its Cursor is configured with the twelve servers
python practice.py FOLDER SERVER   be one of the servers, over stdio; its records are in FOLDER/SERVER.json
"""

import json
import sys
from pathlib import Path
from typing import Any

SERVERS = {
    "calendar": ("meeting", "title of the meeting", "when it begins, such as 2026-12-01T10:00"),
    "rooms": ("reservation", "name of the room", "when the room is taken, such as 2026-12-01T10:00/11:00"),
    "mail": ("message", "address of the recipient", "text of the message"),
    "contacts": ("contact", "full name of the person", "e-mail address and telephone number"),
    "tickets": ("ticket", "one line that says what is wrong", "steps that show the fault"),
    "wiki": ("page", "title of the page", "text of the page in Markdown"),
    "crm": ("customer", "name of the company", "what was agreed with the customer"),
    "invoices": ("invoice", "number of the invoice", "amount and currency, such as 120.00 EUR"),
    "orders": ("order", "article that is ordered", "number of pieces and address of delivery"),
    "stock": ("article", "name of the article", "pieces in the warehouse and the place of the shelf"),
    "deploys": ("release", "version, such as 2.4.1", "what changed since the version before"),
    "alerts": ("alert", "service that is watched", "threshold at which somebody is called"),
}
"""By server: the kind of its records, and what the fields `name` and `details` hold."""

READS = {"list": "List every {0}.", "find": "Find {0} records by words.", "get": "Get one {0} by its number."}
WRITES = {
    "create": "Create a {0}.",
    "update": "Change the fields of a {0}.",
    "comment_on": "Add a comment to a {0}; the other fields stay.",
    "assign": "Make a person responsible for a {0}.",
    "delete": "Delete a {0}. It cannot be undone.",
}


def tools(server: str) -> list[dict[str, Any]]:
    """Return the definitions of the eight tools of a server."""
    noun, name, details = SERVERS[server]
    text = {"type": "string"}
    fields = {
        "number": {"type": "integer", "minimum": 1, "description": f"The number of the {noun}."},
        "query": {**text, "description": f"Words of the {noun}, in any order."},
        "name": {**text, "description": f"The {name}."},
        "details": {**text, "description": f"The {details}."},
        "comment": {**text, "description": "What the comment says."},
        "person": {**text, "description": "Name of the person."},
    }
    takes: dict[str, tuple[list[str], list[str]]] = {
        "list": ([], []),
        "find": (["query"], []),
        "get": (["number"], []),
        "create": (["name"], ["details"]),
        "update": (["number"], ["name", "details"]),
        "comment_on": (["number", "comment"], []),
        "assign": (["number", "person"], []),
        "delete": (["number"], []),
    }
    return [
        {
            "name": f"{verb}_{noun}" + ("s" if verb in ("list", "find") else ""),
            "description": sentence.format(noun),
            "inputSchema": {
                "type": "object",
                "properties": {key: fields[key] for key in (*required, *optional)},
                "required": required,
                "additionalProperties": False,
            },
            "annotations": {"readOnlyHint": verb in READS, "destructiveHint": verb == "delete"},
        }
        for verb, sentence in {**READS, **WRITES}.items()
        for required, optional in [takes[verb]]
    ]


def call(file: Path, tool: str, given: dict[str, Any]) -> str:
    """Run a tool on the records in `file` and return its result as text. Raises LookupError for an unknown number."""
    records: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    verb = tool.rpartition("_")[0]
    if verb == "create":
        records.append({"number": len(records) + 1, **given})
        found = records[-1]
    elif verb in ("list", "find"):
        words = given.get("query", "").lower().split()
        return json.dumps([one for one in records if all(word in json.dumps(one).lower() for word in words)])
    else:
        found = next((one for one in records if one["number"] == given["number"]), None)
        if found is None:
            raise LookupError(f"there is no number {given['number']}")
        if verb == "delete":
            records.remove(found)
        elif verb == "comment_on":
            found.setdefault("comments", []).append(given["comment"])
        else:
            found.update(given)
    if verb != "get":
        file.write_text(json.dumps(records))
    return json.dumps(found)


def answer(server: str, file: Path, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one request."""
    if method == "initialize":
        info = {"name": server, "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": tools(server)}
    if method == "tools/call":
        try:
            text, failed = call(file, params["name"], params.get("arguments", {})), False
        except (KeyError, LookupError) as error:
            text, failed = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return {}


def serve(server: str, file: Path) -> None:
    """Answer the requests on standard input until it ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(server, file, message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


def practise(home: Path) -> None:
    """Write the configuration of Cursor in `home`."""
    file = home / ".cursor" / "mcp.json"
    if file.exists():
        sys.exit(f"{file} exists: choose another folder")
    file.parent.mkdir(parents=True)
    program = [str(Path(__file__).resolve()), str(home)]
    entries = {name: {"command": sys.executable, "args": ["-IS", *program, name]} for name in SERVERS}
    file.write_text(json.dumps({"mcpServers": entries}, indent=2) + "\n")
    print(f"{file} names {len(entries)} servers; work there with: export HOME={home}")


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    serve(sys.argv[2], folder / f"{sys.argv[2]}.json") if sys.argv[2:] else practise(folder)
