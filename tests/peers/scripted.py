"""A stdio server of the old era, standard library only: `python scripted.py JOURNAL [MODE …]`.

Modes: `exit` at start · `exit-list` · `hang-initialize` · `hang-list` · `noise` before the first answer · `stubborn`
(ignores SIGTERM and the end of its input) · `twins` (one name twice) · `ugly` (bad entries in the list) · `many` (2,500
tools) · `pages` (a list without end) · `grown` (one more tool) · `short-lived` (exits after each answer to a list) ·
`changed` (another description of `effect`) · `gone` (no `effect`, by an error) · `gone-text` (likewise, by a result).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Tool = Callable[["Call"], None]

_OPEN: Json = {"type": "object"}
_READS = ("echo", "die_once")
_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Server:
    """The one server of this process."""

    def __init__(self, journal: Path, modes: set[str]) -> None:
        self.journal = journal
        self.modes = modes
        self.asking: Call | None = None
        self.held: list[Call] = []
        self._lock = threading.Lock()
        self._pages = 0

    def write(self, data: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, message: Json) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def note(self, kind: str, **facts: Any) -> None:
        with self.journal.open("a") as journal:
            journal.write(json.dumps({"kind": kind, "pid": os.getpid(), **facts}) + "\n")

    def next_page(self) -> Json:
        self._pages += 1
        return {"tools": [{"name": f"p{self._pages}"}], "nextCursor": "more"}


class Call:
    """One `tools/call`."""

    def __init__(self, server: Server, key: int, params: Json) -> None:
        self.server = server
        self.key = key
        self.arguments: Json = params.get("arguments", {})
        self.meta: Json = params.get("_meta", {})

    def text(self, words: str, **more: Any) -> None:
        self.result({"content": [{"type": "text", "text": words}], **more})

    def result(self, result: Json) -> None:
        self.server.send({"id": self.key, "result": result})


def _echo(call: Call) -> None:
    call.text(call.arguments.get("text", ""))


def _effect(call: Call) -> None:
    call.server.note("effect", id=call.arguments["id"])
    if call.arguments.get("die"):
        os._exit(9)
    call.text(f"done {call.arguments['id']}")


def _die(call: Call) -> None:
    os._exit(9)


def _die_once(call: Call) -> None:
    call.server.note("die_once")
    died = call.server.journal.with_suffix(".died")
    if not died.exists():
        died.touch()
        os._exit(9)
    call.text("survived")


def _hang(call: Call) -> None:
    call.server.note("hanging")


def _freeze(call: Call) -> None:
    call.server.note("frozen")
    os.kill(os.getpid(), signal.SIGSTOP)
    call.text("thawed")


def _backwards(call: Call) -> None:
    """Answer once there are `of` calls, the last one first."""
    held = call.server.held
    held.append(call)
    if len(held) == call.arguments["of"]:
        for number in range(len(held), 0, -1):
            held.pop().text(f"call {number}")


def _big(call: Call) -> None:
    block = json.dumps(call.arguments.get("unit", "x" * 64) * 1024)[1:-1].encode()
    call.server.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % call.key)
    for _ in range(call.arguments["blocks"]):
        call.server.write(block)
    call.server.write(b'"}],"isError":false}}\n')


def _garbage(call: Call) -> None:
    call.server.write(b'Traceback (most recent call last):\n{not json}\n[]\n{"jsonrpc":"1.0"}\n\xff\xfe bytes\n')
    call.text("after garbage")


def _raw(call: Call) -> None:
    """Write the given lines, one byte a character, with the id of the call for `<id>`."""
    for line in call.arguments["lines"]:
        call.server.write(line.replace("<id>", str(call.key)).encode("latin-1") + b"\n")


def _flood(call: Call) -> None:
    call.server.write(b"y" * 2 * 1024 * 1024)


def _gibberish(call: Call) -> None:
    call.server.write(b"no message\n" * call.arguments.get("lines", 100_001))
    if "lines" in call.arguments:
        call.text("after gibberish")


def _truncated(call: Call) -> None:
    call.server.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content": 5}\n' % call.key)


def _wrong_type(call: Call) -> None:
    call.result({"content": 5})


def _wrong_id(call: Call) -> None:
    call.key += 1_000_000
    call.text("not yours")


def _twice(call: Call) -> None:
    call.text("one")
    call.text("two")


def _refuse(call: Call) -> None:
    call.server.send({"id": call.key, "error": {"code": -32603, "message": "no way"}})


def _structured(call: Call) -> None:
    call.text("s", structuredContent={"n": call.arguments["n"]})


def _stderr(call: Call) -> None:
    sys.stderr.write("e" * 4_000_000)
    call.text("flooded")


def _progress(call: Call) -> None:
    call.server.note("meta", meta=call.meta)
    params = {"progressToken": call.meta.get("progressToken"), "progress": 1, "total": 2}
    call.server.send({"method": "notifications/progress", "params": params})
    call.server.send({"method": "notifications/message", "params": {"level": "info", "data": "half\u202e way"}})
    call.text("there")


def _ask(call: Call) -> None:
    call.server.asking = call
    params = {"message": "your\U000e0041 name?\x1b[2J"}
    question = {"jsonrpc": "2.0", "method": call.arguments["method"], "params": params}
    lines = [json.dumps({**question, "id": f"q{number}"}) for number in range(call.arguments.get("times", 1))]
    call.server.write("".join(f"{line}\n" for line in lines).encode())


def _grow(call: Call) -> None:
    call.server.modes.add("grown")
    if call.arguments.get("tell", True):
        call.server.send({"method": "notifications/tools/list_changed"})
    call.text("grown")


def _become(call: Call) -> None:
    """Take on another mode, and tell nobody."""
    call.server.modes.add(call.arguments["mode"])
    call.text("so be it")


def _child(call: Call) -> None:
    command = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-ISc", command], stdin=subprocess.DEVNULL)
    call.text(str(child.pid))


def _environment(call: Call) -> None:
    call.text(json.dumps(dict(os.environ)))


TOOLS: dict[str, Tool] = {
    "backwards": _backwards,
    "echo": _echo,
    "effect": _effect,
    "die": _die,
    "die_once": _die_once,
    "hang": _hang,
    "freeze": _freeze,
    "big": _big,
    "garbage": _garbage,
    "raw": _raw,
    "flood": _flood,
    "gibberish": _gibberish,
    "truncated": _truncated,
    "wrong_type": _wrong_type,
    "wrong_id": _wrong_id,
    "twice": _twice,
    "fail": _refuse,
    "structured": _structured,
    "stderr": _stderr,
    "progress": _progress,
    "ask": _ask,
    "grow": _grow,
    "become": _become,
    "child": _child,
    "environment": _environment,
}


def _listed(modes: set[str]) -> list[Any]:
    tools: list[Any] = [{"name": name, "description": f"It can {name}.", "inputSchema": _OPEN} for name in TOOLS]
    for tool in tools:
        if tool["name"] in _READS:
            tool["annotations"] = {"readOnlyHint": True}
        if tool["name"] == "structured":
            tool["outputSchema"] = _NUMBER
    if "changed" in modes:
        next(tool for tool in tools if tool["name"] == "effect")["description"] = "It can do something else."
    if not modes.isdisjoint({"gone", "gone-text"}):
        tools = [tool for tool in tools if tool["name"] != "effect"]
    if "grown" in modes:
        tools.append({"name": "late", "inputSchema": _OPEN})
    if "twins" in modes:
        tools.append({"name": "echo", "description": "Another one.", "inputSchema": _OPEN})
    if "ugly" in modes:
        tools += [
            5,
            {"name": "ev\u0456l\nname", "inputSchema": _OPEN},
            {"name": "schemaless", "inputSchema": "nothing"},
            {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
            {"name": "huge", "inputSchema": {"type": "object", "description": "d" * 70_000}},
            {"name": "hidden", "description": "Read\U000e0041\u200b it", "inputSchema": _OPEN},
        ]
    if "many" in modes:
        tools += [{"name": f"t{number}", "inputSchema": _OPEN} for number in range(2500)]
    return tools


def _list_tools(server: Server, key: int) -> None:
    if "hang-list" in server.modes:
        return
    if "exit-list" in server.modes:
        os._exit(9)
    result = server.next_page() if "pages" in server.modes else {"tools": _listed(server.modes)}
    server.send({"id": key, "result": result})
    if "short-lived" in server.modes:
        os._exit(0)


def _initialize(server: Server, key: int, params: Json) -> None:
    server.note("initialize", capabilities=params["capabilities"])
    if "hang-initialize" in server.modes:
        return
    if "noise" in server.modes:
        server.write(b'Starting up...\n\x1b[31mWARN\x1b[0m not json\n\n{"half": \n')
    result = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "scripted", "title": "Scripted", "version": "1"},
        "instructions": "Use echo.",
    }
    server.send({"id": key, "result": result})


def _handle(server: Server, message: Json) -> None:
    key: int = message.get("id", 0)
    params: Json = message.get("params", {})
    match message.get("method"):
        case None if server.asking is not None:
            asking = server.asking
            if "error" in message and asking.arguments.get("fails"):  # as the SDKs of MCP do
                server.send({"id": asking.key, "error": message["error"]})
            else:
                asking.text(json.dumps(message.get("result", message.get("error"))))
        case "initialize":
            _initialize(server, key, params)
        case "tools/list":
            _list_tools(server, key)
        case "tools/call":
            server.note("call", name=params["name"])
            if params["name"] == "effect" and "gone" in server.modes:
                server.send({"id": key, "error": {"code": -32602, "message": "Unknown tool: effect"}})
                return
            if params["name"] == "effect" and "gone-text" in server.modes:
                Call(server, key, params).text("Unknown tool: effect", isError=True)
                return
            TOOLS[params["name"]](Call(server, key, params))
        case "notifications/cancelled":
            server.note("cancelled", id=params["requestId"])
        case method if "id" in message:
            server.send({"id": key, "error": {"code": -32601, "message": f"no {method}"}})
        case _:
            return


def main(journal: Path, modes: set[str]) -> None:
    """Serve until the input ends, or for ever when stubborn."""
    server = Server(journal, modes)
    server.note("start")
    if "exit" in modes:
        sys.exit(3)
    if "stubborn" in modes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        _handle(server, json.loads(line))
    while "stubborn" in modes:
        time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), set(sys.argv[2:]))
