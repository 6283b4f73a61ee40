"""Settings of the HTTP way in: bearer tokens, and what instances may register while everything runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from ..core.settings import Flag, Section, Text, Texts, expected, setting
from ..errors import UsageError
from ..net.guard import host_rule

__all__ = ["RegistrationSettings", "Scope", "TokenSpec", "Tokens"]

Scope = Literal["call", "admin"]
"""`call`: tools. `admin`: tools, and what instances have registered."""


class TokenSpec(Section):
    """One bearer token, and the rights of its sender."""

    token: Text = setting(secret=True)
    """The token itself."""
    scope: Scope = "call"
    """`call` or `admin`."""
    principal: Text = ""
    """Name of the sender in rules, budgets and records; without it a name made of the token's hash."""
    instances: Texts = ()
    """Instances that the sender may work as; `*` is every one."""


def _list(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise expected("a list of tokens")
    return value


Tokens = Annotated[tuple[TokenSpec, ...], BeforeValidator(_list)]


def _host(text: str) -> str:
    try:
        host_rule(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


class RegistrationSettings(Section):
    """The key `registration`: limits of the REST registration."""

    replaced_whole = True

    accept: Flag = False
    """Whether a registered tool may be called before somebody has accepted it."""
    commands: Flag = False
    """Whether a registered tool may run a program."""
    private_hosts: tuple[Annotated[Text, AfterValidator(_host)], ...] = ()
    """`host:port` of this network that registered tools may reach."""
