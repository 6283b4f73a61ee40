"""Settings of the HTTP entrance: address, bearer tokens, and what instances may register while everything runs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from ..core.settings import CLIENTS, Flag, Port, Section, Text, Texts, a_list_of, setting
from ..errors import UsageError
from ..net.guard import host_rule

__all__ = ["DEFAULT_PORT", "HttpSettings", "RegistrationSettings", "Scope", "TokenSpec", "Tokens"]

DEFAULT_PORT: Final = 8737
"""Default port of `serve --http`."""

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


class HttpSettings(Section):
    """The keys of a file that decide who reaches this program over HTTP."""

    host: Text = setting("127.0.0.1", why=CLIENTS)
    """Address that `serve --http` listens on."""
    port: Port = setting(DEFAULT_PORT, why=CLIENTS)
    """Port that `serve --http` listens on; 0 is any free one."""
    token: Text = setting("", secret=True)
    """Bearer token of HTTP clients; without it only loopback is served."""
    admin_token: Text = setting("", secret=True)
    """Bearer token of admin scope; without it, and without one in `tokens`, HTTP has no administration."""
    tokens: Tokens = setting((), secret=True)
    """Further bearer tokens, each with its scope, its principal and the instances it may work as."""
    registration: RegistrationSettings = setting(RegistrationSettings.model_construct(), secret=True)
    """What instances may register over REST."""
