"""Settings of commands: sandbox, reachable hosts and resource limits."""

from __future__ import annotations

from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, model_validator
from pydantic_core import PydanticCustomError

from ..core.settings import Count, Flag, Section, Text, a_list_of, expected
from ..errors import UsageError
from ..net.guard import host_pattern, private_host

__all__ = ["ShellSpec"]


def _pattern(text: str) -> str:
    try:
        host_pattern(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


def _private(text: str) -> str:
    try:
        private_host(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


def _network(value: Any) -> Any:
    if not isinstance(value, bool | list | tuple):
        raise expected("true, false or a list of hosts")
    return cast("Any", value)


_Patterns = tuple[Annotated[Text, AfterValidator(_pattern)], ...]
_Network = Annotated[
    Annotated[bool, Tag("flag")] | Annotated[_Patterns, Tag("hosts")],
    Discriminator(lambda value: "flag" if isinstance(value, bool) else "hosts"),
    BeforeValidator(_network),
]


class ShellSpec(Section):
    """The key `shell`."""

    replaced_whole = True

    unsandboxed: Flag = False
    """Whether commands may run where the sandbox is missing; each of them asks for approval then."""
    network: _Network = False
    """`true` gives commands in the sandbox the whole network, services of this machine included; a list gives them
    these hosts, by name and at public addresses."""
    private_hosts: Annotated[
        tuple[Annotated[Text, AfterValidator(_private)], ...], a_list_of("hosts with their ports")
    ] = ()
    """`host:port` that commands reach at any address."""
    memory_mb: Count = 2048
    """MiB of all processes of a command together, and of its `/tmp`."""
    file_mb: Count = 1024
    """MiB of one file."""
    processes: Count = 512
    """Processes at a time."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.network is True and self.private_hosts:
            what = {"key": "private_hosts", "what": "nothing (`network: true` reaches every host)"}
            raise PydanticCustomError("expected", "{what}", what)
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that commands reach by name; none where the whole network is open or closed."""
        return () if isinstance(self.network, bool) else self.network
