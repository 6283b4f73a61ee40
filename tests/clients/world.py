"""The world that the clients meet: a user's home, a gateway, models, and somebody in another terminal who says yes.

There are two, one a transport. In the first every client starts the gateway itself, and so all share one daemon; in the
second it is a service on loopback.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clients.models import ChatModel, Conversation, ResponsesModel, chat_model, responses_model
from clients.script import UNATTENDED, config, printed
from rig import PATIENCE, Hearing, free_port, node_env, serving

TOOLCRIB: Final = str(Path(sys.executable).with_name("toolcrib"))
TRANSPORTS: Final = ("stdio", "http")
CONNECTED: Final = ("claude-code", "codex", "goose", "mcporter", "opencode")
"""Clients whose configuration `toolcrib connect` writes."""
_PRIVATE: Final = ("ANTHROPIC_", "CLAUDE", "CODEX_", "GOOSE_", "OPENAI_", "OPENCODE_", "TMPDIR", "TOOLCRIB_", "XDG_")
_GRACE_SECONDS: Final = 3.0
"""What a client that refuses by itself has to do so, before somebody else says yes."""

Row = Mapping[str, Any]


class ApprovalWatcher:
    """Somebody in another terminal: watches what is asked, and says yes where nobody is at the client."""

    def __init__(self, env: Mapping[str, str], cwd: Path) -> None:
        self._env, self._cwd = env, cwd
        self._rows: dict[str, Row] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> ApprovalWatcher:
        """Begin to watch."""
        command = [TOOLCRIB, "approvals", "watch", "--json"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env=self._env, cwd=self._cwd, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet
        )
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def approver(self, path: str) -> str:
        """Return who said yes to the call with this path; empty when nobody did."""
        rows: list[Row] = json.loads(printed([TOOLCRIB, "approvals", "list", "--all", "--json"], self._env, self._cwd))
        mine = [row for row in rows if json.loads(row["arguments"])["path"] == path and row["verdict"] == "yes"]
        return str(mine[0]["by"]) if mine else ""

    def _watch(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        while part := os.read(self._process.stdout.fileno(), 65536):
            text = (text + part.decode()).lstrip()
            with suppress(json.JSONDecodeError):  # the rest of a question has not come yet
                while text:
                    row, end = decoder.raw_decode(text)
                    text = text[end:].lstrip()
                    self._note(row)

    def _note(self, row: dict[str, Any]) -> None:
        path = str(json.loads(row["arguments"])["path"])
        self._rows[path] = row
        if row["state"] == "pending" and path.startswith(UNATTENDED):
            threading.Thread(target=self._approve, args=(path,), daemon=True).start()

    def _approve(self, path: str) -> None:
        time.sleep(_GRACE_SECONDS)
        row = self._rows[path]
        if row["state"] == "pending":
            command = [TOOLCRIB, "approvals", "yes", str(row["id"])]
            # It fails where the client was quicker: the row says who won.
            subprocess.run(command, env=self._env, cwd=self._cwd, capture_output=True, timeout=PATIENCE, check=False)


@dataclass(frozen=True, kw_only=True)
class World:
    """What a client finds when it is started."""

    transport: str
    home: Path
    env: Mapping[str, str]
    url: str
    """Of the gateway; empty where clients start it themselves."""
    artifact: str
    """The identity of the ledger's long result."""
    chat: ChatModel
    responses: ResponsesModel
    watcher: ApprovalWatcher

    @property
    def project(self) -> Path:
        """The folder that clients are started in."""
        return self.home / "project"

    def servers(self) -> dict[str, Any]:
        """Return the gateway as `mcpServers`, the form that most clients read."""
        if self.url:
            return {"mcpServers": {"toolcrib": {"type": "http", "url": self.url}}}
        return {"mcpServers": {"toolcrib": {"command": TOOLCRIB, "args": ["serve"]}}}


Script = Callable[[str, str], Iterable[Conversation]]
"""Given the transport and the identity of the long result: what the models of the chat API, or of Codex, will do."""


@contextmanager
def world(transport: str, home: Path, chats: Script, codex: Script) -> Generator[World]:
    """Set a world up, and leave nothing of it running."""
    env = _home(home)
    with ExitStack() as stack:
        stack.callback(reap, home)
        flood = json.loads(printed([TOOLCRIB, "call", "ledger__flood", "--json"], env, home / "project"))
        artifact = str(flood["_meta"]["artifact"])
        url = stack.enter_context((_held if transport == "stdio" else _served)(home, env))
        yield World(
            transport=transport,
            home=home,
            env=env,
            url=url,
            artifact=artifact,
            chat=stack.enter_context(chat_model(home / "model", chats(transport, artifact))),
            responses=stack.enter_context(responses_model(codex(transport, artifact))),
            watcher=stack.enter_context(ApprovalWatcher(env, home / "project")),
        )


def _home(home: Path) -> dict[str, str]:
    """Make a home with the gateway's configuration, and return the environment of whoever lives there.

    No XDG variable and no TMPDIR is set: some clients give servers that they start only a few variables, and where a
    daemon is met must not hang on the others.
    """
    (home / "project").mkdir(parents=True)
    folder = home / ".config" / "toolcrib"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(config(home)))
    kept = {name: value for name, value in node_env().items() if not name.startswith(_PRIVATE)}
    return {**kept, "HOME": str(home)}


@contextmanager
def _served(home: Path, env: Mapping[str, str]) -> Generator[str]:
    port = free_port()
    command = [TOOLCRIB, "serve", "--http", "--port", str(port)]
    with serving(command, port=port, log=home / "gateway.log", env=env):
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def _held(home: Path, env: Mapping[str, str]) -> Generator[str]:
    """Connect the clients and keep the daemon that they share up between them, as a client that stays open does.

    They are guarded: the tour has approvals in it.
    """
    printed(
        [TOOLCRIB, "connect", *CONNECTED, "--profile", "adaptive", "--guard", "--command", TOOLCRIB],
        dict(env),
        home / "project",
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [TOOLCRIB, "serve"], env=dict(env), cwd=home / "project", stdin=pipe, stdout=pipe, stderr=pipe
    ) as client:
        try:
            Hearing(client.stderr).until(b"local daemon")
            yield ""
        finally:
            client.kill()


def reap(home: Path) -> None:
    """Kill what was started in this home and outlived its client: daemons that clients and we ourselves leave.

    Also what has its sockets in a folder `run` of it.
    """
    marks = {f"HOME={home}".encode(), f"XDG_RUNTIME_DIR={home}/run".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile, or somebody else's
            if marks.intersection((folder / "environ").read_bytes().split(b"\0")):
                os.kill(int(folder.name), signal.SIGKILL)
