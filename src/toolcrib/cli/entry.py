"""The console script `toolcrib`: the whole command line, with a short way to what clients start.

`toolcrib serve` is started at the beginning of every session of every client, so it goes straight to serving, over
stdio to the shim. Everything else, and every option that the short way does not know, goes to `toolcrib.cli.main`.
Each way imports its own modules: a hook, a shim and a server have little in common, and a client waits for each.
"""

from __future__ import annotations

import codecs
import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn, cast

from ..core.exceptions import innermost
from ..errors import CODES, ToolcribError, ToolFailure
from ..system.memory import without_collection
from .processes.serve_options import Options, http_token, read_options

_UNWRITTEN = "standard output cannot be written"


def main() -> None:
    """Run the command line."""
    if not os.environ.get("HOME"):  # else `~` is the root of the disk
        os.environ.pop("HOME", None)
    # One query is embedded at a time: more threads only wait for each other (100 times as long on two busy cores).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if sys.argv[1:3] == ["hook", "claude"]:
        gc.disable()  # it lives for a moment, and Claude Code waits for it at every use of a tool
        from .processes.hook import quick

        if quick(sys.argv[3:]):
            os._exit(0)
    _prepare_streams()
    options = read_options(sys.argv[2:]) if sys.argv[1:2] == ["serve"] else None
    if options is None or (sys.platform == "win32" and not options.http):
        status: object = None
        try:
            _run(sys.argv[1:])
        except SystemExit as end:
            status = end.code
        except KeyboardInterrupt:  # while it is loaded: later the command line itself knows what to do
            status = 130
        except BrokenPipeError:  # its reader has read enough
            status = 1
        except OSError as error:  # of a help, or of what a daemon has sent; a command reports its own
            if error.filename is not None:
                raise
            sys.stderr.write(f"toolcrib: {_UNWRITTEN}: {error.strerror}\n")
            status = CODES["storage"].exit
        _end_output(status)
    else:
        _serve(options)


def _prepare_streams() -> None:
    """Let every text be written: a closed stream is an empty one, what the encoding of one lacks is an escape.

    An open descriptor also keeps the numbers of standard streams from files that are opened later.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it is open to the end
        elif mode == "w" and stream.encoding != "utf-8":
            codecs.register_error("toolcrib.escape", _escape_unknown)
            stream.reconfigure(errors="toolcrib.escape")


def _escape_unknown(error: UnicodeError) -> tuple[str, int]:
    """Return an escape that strings of JSON may hold too, for what an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)), error.end


def _end_output(status: object) -> NoReturn:
    """Write out what was printed, and end with `status`, or with another one where it cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes again
        if isinstance(error, BrokenPipeError):  # its reader has read enough
            status = status or 1
        elif not status:
            sys.stderr.write(f"toolcrib: {_UNWRITTEN}: {error.strerror}\n")
            status = CODES["storage"].exit
    sys.exit(cast("int | None", status))


def _run(words: list[str]) -> None:
    """Run a command, in a daemon where one runs and may carry it out."""
    if sys.platform != "win32":
        with without_collection():
            from .processes.daemon_requests import is_answered, run_answered
        try:
            status = run_answered(words) if is_answered(words) else None
        except ToolcribError:  # of the environment, which the command itself reports
            status = None
        if status is not None:
            sys.exit(status)
    with without_collection():
        from .main import main as run_command
    run_command()


def _serve(options: Options) -> NoReturn:
    try:
        status = _serve_http(options) if options.http else _join(options)
    except (ToolcribError, BaseExceptionGroup) as raised:
        error = innermost(cast("BaseException", raised))
        if not isinstance(error, ToolcribError):
            raise
        from ..core.own_commands import file_options, with_files  # a client that starts waits for each import

        text = f"{error.code}: {error.whole}" if isinstance(error, ToolFailure) else str(error)
        text = with_files(text, file_options(options.files))
        shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
        with suppress(OSError):
            sys.stderr.write(f"toolcrib: {shown}\n")
        status = CODES[error.code].exit if isinstance(error, ToolFailure) else 2
    except KeyboardInterrupt:
        status = 130
    with suppress(OSError):
        sys.stderr.flush()
    # A relay's other thread may still wait for the client, and nothing here is worth waiting for it.
    os._exit(status)


def _join(options: Options) -> int:
    with without_collection():
        from .processes.stdio_server import join
    return join(
        options.files,
        options.overrides,
        idle_seconds=options.idle_seconds,
        log_level=options.log_level,
        desk=options.desk,
    )


def _serve_http(options: Options) -> int:
    with without_collection():
        from ..config.loader import load_gateway
        from .processes.server import over_http
    overrides = {**options.overrides, "token": http_token(options.overrides.get("token"), None, os.environ)}
    over_http(load_gateway(options.files, overrides, is_local=False), options.log_level)
    return 0
