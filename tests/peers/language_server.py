"""A language server that answers as a file says, and misbehaves on purpose. Standard library only: it runs isolated.

    language_server.py SCRIPT [HEARD]

SCRIPT is JSON, read anew for every message: by method what is answered, or `{"do": …}`. With `once` the server takes
that method out of SCRIPT first, so that the next one that is started answers. `HEARD` gets a line for every message.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

CAPABILITIES = {
    "textDocumentSync": {"openClose": True, "change": 1},
    "definitionProvider": True,
    "referencesProvider": True,
    "hoverProvider": True,
    "documentSymbolProvider": True,
    "workspaceSymbolProvider": True,
    "renameProvider": True,
    "codeActionProvider": {"resolveProvider": True},
    "executeCommandProvider": {"commands": ["change"]},
}
ENOUGH = 2_000

script_file = Path(sys.argv[1])
heard_file = Path(sys.argv[2]) if len(sys.argv) > 2 else None
texts: dict[str, tuple[int, str]] = {}
root: str = ""


def send(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).replace("$ROOT", root).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    sys.stdout.buffer.flush()


def receive() -> dict[str, Any]:
    length = 0
    for line in sys.stdin.buffer:
        if not line.strip():
            break
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        sys.exit(0)
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
    if heard_file is not None:
        with heard_file.open("a") as heard:
            heard.write(json.dumps(message) + "\n")
    return message


def die(_said: dict[str, Any], _number: Any) -> None:
    print("no memory left", file=sys.stderr, flush=True)
    sys.exit(3)


def hang(_said: dict[str, Any], _number: Any) -> None:
    time.sleep(3600)


def say(said: dict[str, Any], _number: Any) -> None:
    """Write what is no message."""
    sys.stdout.write(said["text"])
    sys.stdout.flush()


def chatter(said: dict[str, Any], number: Any) -> None:
    for _ in range(ENOUGH):
        print("l" * 1_000, file=sys.stderr, flush=True)
        send({"method": "window/logMessage", "params": {"type": 4, "message": "m" * 1_000}})
    send({"id": number, "result": said.get("result")})


def late(said: dict[str, Any], number: Any) -> None:
    if "write" in said:
        path, text = said["write"]
        Path(path).write_text(text)
    time.sleep(said["seconds"])
    send({"id": number, "result": said.get("result")})


def refuse(said: dict[str, Any], number: Any) -> None:
    send({"id": number, "error": {"code": said.get("code", -32603), "message": said["message"]}})


def change(said: dict[str, Any], number: Any) -> None:
    """Ask for a change, and answer with what became of it."""
    ask({"method": "workspace/applyEdit", "params": {"edit": said["edit"]}}, number)


def ask(said: dict[str, Any], number: Any) -> None:
    """Ask the client something, and answer with its reply, as a hover does."""
    send({"id": "mine", "method": said["method"], "params": said["params"]})
    while (reply := receive()).get("id") != "mine":
        pass
    text = json.dumps({key: reply[key] for key in ("result", "error") if key in reply}, sort_keys=True)
    send({"id": number, "result": {"contents": text}})


DEEDS = {one.__name__: one for one in (ask, change, chatter, die, hang, late, refuse, say)}


def answer(message: dict[str, Any], script: dict[str, Any]) -> None:
    method, number = message["method"], message.get("id")
    params: dict[str, Any] = message.get("params") or {}
    said: Any = script.get(method)
    if "do" in (said or ()):
        if said.get("once"):
            script_file.write_text(json.dumps({key: value for key, value in script.items() if key != method}))
        DEEDS[said["do"]](said, number)
    elif method == "initialize":
        send({"id": number, "result": {"capabilities": script.get("capabilities", CAPABILITIES)}})
    elif method in script:
        send({"id": number, "result": said})
    elif method == "textDocument/hover":
        version, text = texts.get(params["textDocument"]["uri"], (0, "not open"))
        position = params["position"]
        where = f"{position['line']}:{position['character']}"
        send({"id": number, "result": {"contents": f"version {version} at {where}: {text}"}})
    elif number is not None and method in ("shutdown", "textDocument/documentSymbol", "workspace/symbol"):
        send({"id": number, "result": None})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": f"unknown: {method}"}})


while True:
    told = receive()
    if "method" not in told:
        continue
    now = json.loads(script_file.read_text())
    about: dict[str, Any] = told.get("params") or {}
    if told["method"] == "initialize":
        root = about["rootUri"]
    if told["method"] == "exit":
        sys.exit(0)
    if told["method"] in ("textDocument/didOpen", "textDocument/didChange"):
        document = about["textDocument"]
        content = document["text"] if "text" in document else about["contentChanges"][-1]["text"]
        texts[document["uri"]] = (document["version"], content)
        for findings in now.get("publish", []):
            published = {"uri": document["uri"], "version": document["version"], "diagnostics": findings}
            send({"method": "textDocument/publishDiagnostics", "params": published})
    if told["method"] == "textDocument/didClose":
        texts.pop(about["textDocument"]["uri"], None)
    answer(told, now)
