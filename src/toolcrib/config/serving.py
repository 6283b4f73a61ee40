"""Settings of the HTTP way in: bearer tokens, and what instances may register while everything runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from ..core.settings import Flag, Section, Text, Texts, a_list_of, setting
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


Tokens = Annotated[tuple[TokenSpec, ...], a_list_of("tokens")]


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
    """Whether a registered tool may be called before its definition was accepted."""
    commands: Flag = False
    """Whether a registered tool may run a program."""
    private_hosts: tuple[Annotated[Text, AfterValidator(_host)], ...] = ()
    """`host:port` of this network that registered tools may reach."""
