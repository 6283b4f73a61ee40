"""Who may call over HTTP and do what, and what may be registered while everything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from ..errors import ConfigError, UsageError
from ..net.guard import host_rule
from .value import Value

__all__ = ["RegistrationSettings", "Scope", "TokenSpec", "registration_key", "secrets_of", "tokens_key"]

Scope = Literal["call", "admin"]
"""`call`: tools. `admin`: tools, and what instances have registered."""

_TOKEN: Final = ("token", "scope", "principal", "instances")
_FLAGS: Final = ("accept", "commands")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpec:
    """One bearer token, and what whoever sends it may do."""

    token: str = field(repr=False)
    scope: Scope = "call"
    principal: str = ""
    """What they are called in rules, budgets and records; empty is a name made of the token's hash."""
    instances: tuple[str, ...] = ()
    """The instances they may work as; `*` is every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationSettings:
    """What the operator lets be registered over REST."""

    accept: bool = False
    """Whether what is registered may be called without somebody having accepted it."""
    commands: bool = False
    """Whether a registered tool may run a program."""
    private_hosts: tuple[str, ...] = ()
    """`host:port` of this network that registered tools may reach."""


def tokens_key(value: Value) -> dict[str, Any]:
    """Read the list `tokens`. Raises `ConfigError`."""
    items: Any = value.value
    if not isinstance(items, list | tuple):
        raise value.wrong("a list of tokens")
    return {"tokens": tuple(_token(value.inner(place, item)) for place, item in enumerate(cast("list[Any]", items)))}


def _token(value: Value) -> TokenSpec:
    said: dict[str, Any] = {}
    for key, inner in value.members(_TOKEN):
        if inner.value is None:
            continue
        said[key] = inner.texts() if key == "instances" else inner.text()
        if key == "scope" and said[key] not in get_args(Scope):
            raise inner.wrong(f"one of {', '.join(get_args(Scope))}")
    if "token" not in said:
        raise value.wrong("a mapping with `token`")
    return TokenSpec(**said)


def registration_key(value: Value) -> dict[str, Any]:
    """Read `registration`. Raises `ConfigError`."""
    said: dict[str, Any] = {}
    for key, inner in value.members((*_FLAGS, "private_hosts")):
        if inner.value is None:
            continue
        if key in _FLAGS and not isinstance(inner.value, bool):
            raise inner.wrong("true or false")
        said[key] = inner.value if key in _FLAGS else _hosts(inner)
    return {"registration": RegistrationSettings(**said)}


def _hosts(value: Value) -> tuple[str, ...]:
    hosts = value.texts()
    for place, host in enumerate(hosts):
        try:
            host_rule(host)
        except UsageError as error:
            inner = value.inner(place, host)
            raise ConfigError(str(error), file=inner.where(inner.path), key=inner.key) from None
    return hosts


def secrets_of(values: Mapping[str, Any]) -> list[str]:
    """Return the tokens among checked values, to mask them wherever they turn up."""
    specs = cast("tuple[TokenSpec, ...]", values.get("tokens", ()))
    return [token for token in (values.get("token", ""), values.get("admin_token", "")) if token] + [
        spec.token for spec in specs
    ]
