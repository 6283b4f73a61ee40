"""The options of `toolcrib serve` as a client's configuration gives them, read without the command line's machinery.

typer takes five times as long to load as the shim (it brings pydantic), and clients wait for it at the start of every
session. What is not understood here is left to it: help, mistakes, and everything rare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...errors import UsageError

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_FLAGS: Final = {"--accept": "accept", "--desk": "desk", "--http": "http", "--no-prefix": "no_prefix"}
_VALUES: Final = {
    "--config": "config",
    "--daemon-idle": "idle",
    "--guard": "guard",
    "--host": "host",
    "--log-level": "log_level",
    "--mode": "mode",
    "--port": "port",
    "--profile": "profile",
    "--token": "token",
    "-c": "config",
}
_ONLY_HTTP: Final = frozenset({"host", "port", "token"})

_TOKEN: Final = "TOOLCRIB_TOKEN"
_MAX_TOKEN: Final = 64 * 1024


class Options(NamedTuple):
    """Options of `toolcrib serve`."""

    files: tuple[str, ...] = ()
    overrides: dict[str, Any] = {}  # noqa: RUF012 - a tuple's default, never changed
    """Options that change what is served, by their names in the configuration file."""
    http: bool = False
    log_level: str = "info"
    idle_seconds: float | None = None
    """See `daemon.rendezvous.Order`."""
    desk: bool = False


def read_options(arguments: Sequence[str]) -> Options | None:
    """Return the options of `toolcrib serve`, None when they are better read by the whole command line."""
    words = read_words(arguments, _VALUES, _FLAGS)
    return None if words is None else _options(*words)


def read_words(
    arguments: Sequence[str], values: Mapping[str, str], flags: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, Any]] | None:
    """Return the files of `--config` and the other options by name; None for words that are not understood here.

    `values` and `flags` map an option with a value, and one without, to its name.
    """
    files: list[str] = []
    named: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option in flags and not equals:
            named[flags[option]] = True
            continue
        if not equals and rest:
            value = rest.pop(0)
        if option not in values or not value or value.startswith("-"):
            return None
        if values[option] == "config":
            files.append(value)
        else:
            named[values[option]] = value
    return tuple(files), named


def _options(files: tuple[str, ...], values: dict[str, Any]) -> Options | None:
    http, log_level = values.pop("http", False), values.pop("log_level", "info")
    idle = values.pop("idle", None)
    desk = values.pop("desk", False)
    port = values.get("port", "0")
    is_number = port.isdecimal() and int(port) <= 65535 and (idle is None or idle.replace(".", "", 1).isdecimal())
    if log_level not in LOG_LEVELS or not is_number or (desk and http) or (not http and _ONLY_HTTP & values.keys()):
        return None
    if "port" in values:
        values["port"] = int(port)
    return Options(files, values, http, log_level, None if idle is None else float(idle), desk)


def http_token(token: str | None, file: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the bearer token of `serve --http`: the option, the content of a file, or `TOOLCRIB_TOKEN`.

    Other users of the machine see the arguments of a process; a file and the environment they do not. Raises
    `UsageError` for two tokens, a file that cannot be read and an empty one.
    """
    if file is None:
        return token or environ.get(_TOKEN) or None
    if token is not None:
        raise UsageError("--token and --token-file are two tokens: use only one")
    try:
        with open(file, encoding="utf-8") as stream:
            found = stream.read(_MAX_TOKEN).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not found or not found.isprintable() or " " in found:
        raise UsageError(f"--token-file {file} holds no token: one line of visible characters is expected")
    return found


def desk_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides of `serve --desk`: guarded, for a client that asks Toolcrib does not ask its user as well.

    Raises `UsageError` for `--guard off`.
    """
    if overrides.get("guard") == "off":
        raise UsageError("--desk asks in place of the client, --guard off leaves asking to the client: use only one")
    return {**overrides, "guard": "on"}
