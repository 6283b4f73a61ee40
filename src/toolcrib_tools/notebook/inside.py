"""Program beside the kernel in the sandbox: Jupyter's sockets on one side, JSON lines on the other.

It is a program of its own, run by the Python that has ipykernel; nothing of ours can be imported there. The sockets are
files in a folder of the sandbox's own, so that no network is needed and no other process reaches the kernel.

    us → it     {"do": "run", "id": 1, "code": "…"}   {"do": "look", "id": 2}   {"do": "interrupt"}
    it → us     {"event": "ready", "language": …}     {"event": "failed", "why": …}   {"event": "dead", "status": -9}
                {"event": "stream" | "data" | "error" | "done", …}
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

MOST_MEDIA: Final = 4 * 1024 * 1024
"""Base64 characters of one image that are handed on."""
MOST_TEXT: Final = 200_000
"""Characters of one value, and of one traceback, that are handed on."""
VARIABLES: Final = "application/vnd.toolcrib.variables+json"

_PIECE: Final = 64 * 1024
"""Characters of one line: what comes out is read line by line."""
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_READABLE: Final = ("text/markdown", "text/latex", "application/json", "image/svg+xml", "text/html")
"""Media types that are preferred to plain text, which is often only an object's name."""
_PLACEHOLDER: Final = re.compile(r"<[\w.]+ object(?: at 0x[0-9a-f]+)?>")
_ROUND: Final = 8
"""Messages that are handed on before our input is looked at again: a flood must not keep an interruption waiting."""
_FLOOD: Final = 256 * 1024
"""Characters that are handed on of what a cell prints in one go, 0.2 s of it as ipykernel does it."""
_AFTER: Final = 4 * 1024
"""The same once it was interrupted."""
_TICK: Final = 500
"""Milliseconds between looks whether the kernel lives."""
_START: Final = 100
"""Seconds for the kernel to begin."""
_LATE: Final = 4
"""Ticks that the end of a cell is waited for once its answer is there: a flood of output may have swallowed it."""


def main(words: list[str]) -> None:
    """Serve one kernel until our input ends or the kernel dies; `--list` names the kernels that there are instead."""
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    out = os.dup(1)
    os.dup2(2, 1)  # other writers to stdout must not look like an event
    try:
        if words[0] == "--list":
            _tell(out, event="kernels", kernels=_kernels())
        else:
            _serve(words[0], out)
    except Exception as error:  # noqa: BLE001 - any failure is reported as the reason why there is no kernel
        _tell(out, event="failed", why=f"{type(error).__name__}: {error}"[:2_000])


def chosen(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return one format of a value that the kernel shows in several: an image, or the best text."""
    if VARIABLES in data:
        return {VARIABLES: data[VARIABLES]}
    for kind in _IMAGES:
        if isinstance(data.get(kind), str):
            return _image(kind, data[kind])
    plain = data.get("text/plain")
    if isinstance(plain, str) and not _PLACEHOLDER.fullmatch(plain) and "text/markdown" not in data:
        return {"text/plain": _cut(plain)}
    for kind in _READABLE:
        if kind in data:
            value = data[kind]
            return {kind: _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}
    return {"text/plain": _cut(str(plain or f"a value that is shown as {', '.join(data) or 'nothing'}"))}


def pieces(text: str) -> Iterator[str]:
    """Yield a text in parts that fit a line."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def shortened(text: str, most: int) -> str:
    """Return the beginning and the end of a text that is longer than that."""
    left = len(text) - most
    return text if left <= 0 else f"{text[: most // 2]}\n[… {left:,} characters left out …]\n{text[-(most // 2) :]}"


def _image(kind: str, data: str) -> dict[str, Any]:
    packed = "".join(data.split())
    if len(packed) > MOST_MEDIA:
        return {"text/plain": f"[an image ({kind}) of {len(packed):,} base64 characters: too large to be shown]"}
    return {kind: packed}


def _cut(text: str) -> str:
    left = len(text) - MOST_TEXT
    return text if left <= 0 else f"{text[:MOST_TEXT]}\n[… {left:,} characters left out …]"


def _tell(out: int, **event: Any) -> None:
    data = json.dumps(event, ensure_ascii=True).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


def _kernels() -> list[dict[str, str]]:
    # By name: jupyter_client and zmq belong to the interpreter in the sandbox, not to this installation.
    found: dict[str, Any] = import_module("jupyter_client.kernelspec").KernelSpecManager().get_all_specs()
    return [
        {
            "kernel": name,
            "language": str(entry["spec"].get("language", "")),
            "title": str(entry["spec"]["display_name"]),
        }
        for name, entry in sorted(found.items())
    ]


def _serve(kernel: str, out: int) -> None:
    client = import_module("jupyter_client")
    folder = tempfile.mkdtemp(prefix="kernel-")
    manager = client.KernelManager(
        kernel_name=kernel,
        transport="ipc",
        ip=os.path.join(folder, "s"),
        connection_file=os.path.join(folder, "connection.json"),
    )
    signal.signal(signal.SIGTERM, _leave)
    try:
        manager.start_kernel(stdout=2, stderr=2)
        channels = manager.client()
        channels.start_channels()
        channels.wait_for_ready(timeout=_START)
        about = _about(channels)
        if about["language"] == "python":
            _answer(channels, channels.execute(_code_of("pace"), silent=True, store_history=False))
        _tell(out, event="ready", **about)
        _Relay(manager, channels, out).run()
    finally:
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
        shutil.rmtree(folder, ignore_errors=True)


def _leave(number: int, frame: object) -> None:
    """End on a signal as at the end of our input: with the kernel."""
    sys.exit(0)


def _about(channels: Any) -> dict[str, str]:
    spoken = _answer(channels, channels.kernel_info())["content"].get("language_info", {})
    return {"language": str(spoken.get("name", "")), "version": str(spoken.get("version", ""))}


def _answer(channels: Any, request: str) -> Mapping[str, Any]:
    while True:
        message = channels.get_shell_msg(timeout=_START)
        if message["parent_header"].get("msg_id") == request:
            return message


class _Relay:
    """Hands lines on to the kernel, and its messages back to us. One cell at a time."""

    def __init__(self, manager: Any, channels: Any, out: int) -> None:
        self._manager = manager
        self._channels = channels
        self._out = out
        self._zmq: Any = import_module("zmq")
        self._input = b""
        self._cell = 0
        self._request = ""
        self._reply: Mapping[str, Any] | None = None
        self._is_idle = False
        self._is_interrupted = False
        self._late = 0

    def run(self) -> None:
        """Serve until our input ends, or the kernel does."""
        poller = self._zmq.Poller()
        for source in (0, self._channels.iopub_channel.socket, self._channels.shell_channel.socket):
            poller.register(source, self._zmq.POLLIN)
        while True:
            ready = dict(poller.poll(_TICK))
            if 0 in ready and not self._hear():
                return
            self._hand_on()
            self._finish(is_quiet=not ready)
            if not ready and not self._manager.is_alive():
                self._hand_on()
                _tell(self._out, event="dead", status=self._status())
                return

    def _status(self) -> int:
        process = getattr(self._manager.provisioner, "process", None)
        status = process.poll() if process is not None else None
        return status if isinstance(status, int) else 1

    def _hear(self) -> bool:
        """Handle our commands; return True while more can follow."""
        piece = os.read(0, _PIECE)
        *lines, self._input = (self._input + piece).split(b"\n")
        for line in lines:
            self._do(json.loads(line))
        return bool(piece)

    def _do(self, wanted: Mapping[str, Any]) -> None:
        if wanted["do"] == "interrupt":
            self._is_interrupted = True
            self._manager.interrupt_kernel()
            return
        looks = wanted["do"] == "look"
        code = _code_of("variables") if looks else str(wanted["code"])
        self._cell, self._reply, self._is_idle, self._late = int(wanted["id"]), None, False, 0
        self._is_interrupted = False
        self._request = self._channels.execute(
            code, silent=looks, store_history=not looks, allow_stdin=False, stop_on_error=True
        )

    def _hand_on(self) -> None:
        """Hand on the next messages."""
        session: Any = self._channels.session
        while (message := session.recv(self._channels.shell_channel.socket, self._zmq.NOBLOCK)[1]) is not None:
            if message["parent_header"].get("msg_id") == self._request:
                self._reply = message["content"]
        for _ in range(_ROUND):
            message = session.recv(self._channels.iopub_channel.socket, self._zmq.NOBLOCK)[1]
            if message is None:
                break
            self._show(message["msg_type"], message["content"], message["parent_header"].get("msg_id"))

    def _show(self, kind: str, content: Mapping[str, Any], parent: str | None) -> None:
        if kind == "stream":
            for piece in pieces(shortened(str(content["text"]), _AFTER if self._is_interrupted else _FLOOD)):
                _tell(self._out, event="stream", name=content["name"], text=piece)
        elif kind in ("display_data", "execute_result", "update_display_data"):
            _tell(self._out, event="data", data=chosen(content["data"]))
        elif kind == "error":
            traceback = _cut("\n".join(map(str, content["traceback"])))
            _tell(self._out, event="error", name=_cut(content["ename"]), value=_cut(content["evalue"]), text=traceback)
        elif kind == "status" and content["execution_state"] == "idle" and parent == self._request:
            self._is_idle = True

    def _finish(self, *, is_quiet: bool) -> None:
        """Say that a cell has ended: it was answered, and its output is complete, or has not come for a while."""
        if self._reply is None:
            return
        self._late += is_quiet
        if self._is_idle or self._late >= _LATE:
            count = self._reply.get("execution_count")
            _tell(self._out, event="done", id=self._cell, status=str(self._reply.get("status")), count=count)
            self._reply = None


def _code_of(module: str) -> str:
    """Return code that runs a file beside this one inside a Python kernel, independent of the kernel's names."""
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return f"__import__('builtins').exec({source!r}, {{'__name__': '__main__'}})"


if __name__ == "__main__":
    main(sys.argv[1:])
