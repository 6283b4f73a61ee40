"""`toolcrib secret`: the secrets that a configuration names with `${keyring:NAME}` or `${input:ID}`."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from ..config.loading import here
from ..config.secrets import remove_secret, secret_names, write_secret
from ..config.validation import did_you_mean
from ..errors import UsageError
from .actions import action_group
from .options import AsJson
from .output import emit_json, escape, out

__all__ = ["list_secrets", "remove", "secret", "set_secret"]

secret = action_group(
    "List the secrets that your configuration names with `${keyring:NAME}` or `${input:ID}`; set or remove one. "
    "Values are never shown.\n\n"
    "They are kept in the system's keyring (extra `keyring`), else in a file that only you can read.",
    default="list",
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a secret.")]


@secret.command("list")
def list_secrets(as_json: AsJson = False) -> None:
    """List the names of the secrets that are kept."""
    names = secret_names(here().environ)
    if as_json:
        emit_json(names)
    else:
        out("\n".join(map(escape, names)) or "no secrets are kept")


@secret.command("set")
def set_secret(name: _Name, as_json: AsJson = False) -> None:
    """Ask for the value of a secret and keep it. The value is read from standard input where that is no terminal."""
    place = write_secret(name, _value(name), here().environ)
    if as_json:
        emit_json({"secret": name, "action": "set", "kept": str(place)})
    else:
        out(escape(f"{name} is kept in {place}"))


@secret.command("remove")
def remove(name: _Name, as_json: AsJson = False) -> None:
    """Remove a secret."""
    environ = here().environ
    if not remove_secret(name, environ):
        raise UsageError(f"there is no secret {name!r}{did_you_mean(name, secret_names(environ))}")
    if as_json:
        emit_json({"secret": name, "action": "remove"})
    else:
        out(escape(f"removed {name}"))


def _value(name: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ")
    return sys.stdin.read().rstrip("\r\n")
