"""What our own file says of commands: whether they need a sandbox, what they may reach, how much they may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..errors import ConfigError, UsageError
from ..net.egress_hosts import host_pattern, private_host
from .value import Value

__all__ = ["ShellSpec", "shell_key"]

_LISTS: Final = {"network": host_pattern, "private_hosts": private_host}


_KEYS: Final = ("unsandboxed", "network", "private_hosts", "memory_mb", "file_mb", "processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSpec:
    """The key `shell`."""

    unsandboxed: bool = False
    """Commands may run where there is no sandbox, and then each is asked for."""
    network: bool = False
    """Commands in the sandbox have the whole network, this machine's own services included."""
    hosts: tuple[str, ...] = ()
    """What they reach instead, by name and at public addresses: the key `network`, where it is a list."""
    private_hosts: tuple[str, ...] = ()
    """`host:port` that they reach wherever they are."""
    memory_mb: int = 2048
    """MiB of all processes of a command together, and of its `/tmp`."""
    file_mb: int = 1024
    """MiB of one file."""
    processes: int = 512
    """At a time."""

    def key(self) -> Mapping[str, Any]:
        """Return what tells two apart, as JSON."""
        return asdict(self)


def shell_key(value: Value) -> dict[str, Any]:
    """Read the key. Raises `ConfigError` naming what is wrong in it."""
    said: dict[str, Any] = {}
    for name, inner in value.members(_KEYS):
        if name in _LISTS and isinstance(inner.value, list):
            said["hosts" if name == "network" else name] = _hosts(inner, _LISTS[name])
        elif name in ("unsandboxed", "network"):
            if not isinstance(inner.value, bool):
                raise inner.wrong("true or false" if name == "unsandboxed" else "true, false or a list of hosts")
            said[name] = inner.value
        elif name == "private_hosts":
            raise inner.wrong("a list of hosts with their ports")
        else:
            said[name] = int(inner.number(whole=True))
    if said.get("network") and said.get("private_hosts"):
        raise value.inner("private_hosts", None).wrong("nothing (`network: true` reaches every host)")
    return {"shell": ShellSpec(**said)}


def _hosts(value: Value, read: Callable[[str], object]) -> tuple[str, ...]:
    found: list[str] = []
    for index, text in enumerate(value.texts()):
        try:
            read(text)
        except UsageError as error:
            where = value.inner(index, text)
            raise ConfigError(str(error), file=where.where(where.path), key=where.key) from error
        found.append(text)
    return tuple(found)
