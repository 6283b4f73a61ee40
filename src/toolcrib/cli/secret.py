"""`toolcrib secret`: the secrets that a configuration names with `${keyring:NAME}` or `${input:ID}`."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Final

import typer

from ..config.keyring import remove_secret, secret_names, write_secret
from ..config.loading import here
from ..config.validation import did_you_mean
from ..errors import UsageError
from .open_crib import AsJson
from .output import emit_json, escape, out

__all__ = ["secret"]

_ACTIONS: Final = ("list", "set", "remove")


def secret(
    action: Annotated[str, typer.Argument(help=f"{', '.join(_ACTIONS)}.")] = "list",
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which one.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the names of the secrets that are kept for your configuration; set or remove one. Values are never shown.

    `set` asks for the value, or reads it from its input where that is not a terminal. It is kept in the system's
    keyring (extra `keyring`), else in a file that only you can read.
    """
    if action not in _ACTIONS:
        raise UsageError(f"there is no {action!r}, only {', '.join(_ACTIONS)}")
    if action != "list" and not name:
        raise UsageError(f"which one? toolcrib secret {action} NAME; `toolcrib secret` lists them")
    environ = here().environ
    names = secret_names(environ)
    if action == "list":
        if as_json:
            emit_json(names)
        else:
            out("\n".join(map(escape, names)) or "no secrets are kept")
        return
    if action == "remove":
        if not remove_secret(name, environ):
            raise UsageError(f"there is no secret {name!r}{did_you_mean(name, names)}")
        told = f"removed {name}"
    else:
        told = f"{name} is kept in {write_secret(name, _value(name), environ)}"
    if as_json:
        emit_json({"secret": name, "action": action})
    else:
        out(escape(told))


def _value(name: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ")
    return sys.stdin.read().rstrip("\r\n")
