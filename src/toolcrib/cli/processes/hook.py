"""`toolcrib hook claude`, as Claude Code starts it before every use of a tool: hands the event to the local daemon.

Nothing is loaded here but configuration and sockets: a use that a rule allows must not wait. Without a daemon that
answers, this process decides. Every other failure is a deny that says what to do about it; Claude Code would take a
hook that breaks for one that has nothing to say.

The answer may wait for a person. Two clocks run meanwhile: every 5 s the daemon is asked whether it still answers at
all, and after 590 s the answer is a deny, before Claude Code gives up on the hook and goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ...claude_code.hook_messages import EVENTS, HookRequest, Unanswered, hook_answer
from ...config.directories import answering_for, here
from ...errors import ToolcribError, UsageError
from .serve_options import read_words

if TYPE_CHECKING:  # POSIX only
    from ...daemon.shim import Shim

SECONDS: Final = 590.0
"""How long the answer may take before it is a deny: less than Claude Code gives a hook (600 s), which then goes on
without it."""
_VALUES: Final = {
    "--config": "config",
    "--mode": "mode",
    "--seconds": "seconds",
    "--unanswered": "unanswered",
    "-c": "config",
}
_LOOK_SECONDS: Final = 5.0
"""Without an answer for so long, the daemon is asked whether it answers at all, and has as long for that."""
_CHUNK: Final = 64 * 1024
_ANSWER_BYTES: Final = 16 * 1024 * 1024


class HookOptions(NamedTuple):
    """Options of `toolcrib hook claude`."""

    files: tuple[str, ...] = ()
    mode: str = ""
    unanswered: Unanswered = "deny"
    seconds: float = SECONDS


def quick(arguments: Sequence[str]) -> bool:
    """Answer the event on standard input, if these arguments are understood here; else the command line reads them."""
    options = _read(arguments)
    if options is None:
        return False
    answer(options)
    return True


def answer(options: HookOptions) -> None:
    """Read the event on standard input and print what Claude Code is to read, or nothing. Never raises for a failure.

    An event that cannot be read ends the process with status 2, which Claude Code takes for a deny.
    """
    try:
        event = json.loads(sys.stdin.buffer.read())
        name = cast("dict[str, Any]", event)["hook_event_name"]
    except (ValueError, TypeError, KeyError, RecursionError):
        sys.stderr.write("toolcrib: no event of Claude Code on standard input\n")
        raise SystemExit(2) from None
    if name not in EVENTS:
        return
    try:
        output = _decided(event, options)
    except Exception as error:  # noqa: BLE001 - Claude Code would go on without a hook that breaks
        reason = str(error) if isinstance(error, ToolcribError) else f"{type(error).__name__}: {error}"
        output = hook_answer(name, "deny", f"Toolcrib cannot decide: {reason}. `toolcrib doctor` tells more")
    if output:
        sys.stdout.write(output + "\n")
        sys.stdout.flush()


def _decided(event: Mapping[str, Any], options: HookOptions) -> str:
    until = time.monotonic() + options.seconds
    overrides = {"mode": options.mode or None, "guard": "on"}  # an allow here replaces Claude Code's own dialog
    files = [str(Path(file).absolute()) for file in options.files]
    environ = here().environ
    project = Path(environ.get("CLAUDE_PROJECT_DIR") or Path.cwd())
    request = HookRequest(event=event, project=str(project), unanswered=options.unanswered)
    with answering_for(environ, project):
        try:
            if (shim := _shim(files, overrides)) is not None:
                return _asked(shim, request._replace(mode=shim.hello.mode), until)
        except (UsageError, OSError) as error:
            sys.stderr.write(f"toolcrib: {error}: deciding in this process\n")
        return _decide_here(files, overrides, request, until)


def _shim(files: Sequence[str], overrides: Mapping[str, Any]) -> Shim | None:
    """Return the shim that joins the local daemon; None if there can be none. Raises `ConfigError`."""
    if sys.platform == "win32":
        return None
    from .stdio_server import JoinOptions, NoDaemon, shim_of  # POSIX only

    found = shim_of(files, overrides, JoinOptions(way="hook"))
    return None if isinstance(found, NoDaemon) else found


def _decide_here(files: Sequence[str], overrides: Mapping[str, Any], request: HookRequest, until: float) -> str:
    """Decide in this process: the question is in the store as always, lasting answers are not stored.

    Raises `UsageError` when there is no answer in time.
    """
    # The whole library: only without a daemon, which answers in a fraction of the time.
    import dataclasses

    import anyio

    from ...claude_code.gate import gate_of
    from ...claude_code.hook import answer_hook
    from ...config.loader import load_gateway
    from ...crib import Toolcrib
    from ...sources.settings import SourceSettings
    from ..options import run

    settings = load_gateway(files, overrides)
    settings = dataclasses.replace(settings, sources=SourceSettings.model_construct(builtins=False))

    async def main() -> str:
        with anyio.move_on_after(until - time.monotonic()):
            async with Toolcrib(settings) as crib:
                return await answer_hook(gate_of(crib), request)
        raise UsageError("no answer in time")

    return run(main)


def _asked(shim: Shim, request: HookRequest, until: float) -> str:
    """Return the daemon's answer. Raises `UsageError` or `OSError` when there is none, or no daemon that answers."""
    from ...daemon.control import status_of  # POSIX only

    link, _ = shim.join()
    with link:
        link.settimeout(_LOOK_SECONDS)
        link.sendall(request.encode())
        parts: list[bytes] = []
        while not parts or not parts[-1].endswith(b"\n"):
            link.settimeout(max(0.1, min(_LOOK_SECONDS, until - time.monotonic())))
            try:
                part = link.recv(_CHUNK)
            except TimeoutError:
                if time.monotonic() > until:
                    raise UsageError("no answer in time") from None
                status_of(shim.endpoint, _LOOK_SECONDS)  # it asks a person, or hangs
                continue
            if not part or sum(map(len, parts)) > _ANSWER_BYTES:
                raise UsageError("the local daemon ended before it answered")
            parts.append(part)
    return b"".join(parts).decode().strip()


def _read(arguments: Sequence[str]) -> HookOptions | None:
    words = read_words(arguments, _VALUES, {})
    if words is None:
        return None
    files, values = words
    unanswered, seconds = values.get("unanswered", "deny"), values.get("seconds", str(SECONDS))
    if unanswered not in ("deny", "ask") or not seconds.replace(".", "", 1).isdecimal():
        return None
    return HookOptions(files, values.get("mode", ""), unanswered, float(seconds))
