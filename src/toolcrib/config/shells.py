"""What our own file says of commands: whether they need a sandbox, what they may reach, how much they may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from .value import Value

__all__ = ["ShellSpec", "shell_key"]

_FLAGS: Final = ("unsandboxed", "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSpec:
    """The key `shell`."""

    unsandboxed: bool = False
    """Commands may run where there is no sandbox, and then each is asked for."""
    network: bool = False
    """Commands in the sandbox have the network, this machine's own services included."""
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
    for name, inner in value.members(tuple(ShellSpec.__dataclass_fields__)):
        if name not in _FLAGS:
            said[name] = int(inner.number(whole=True))
        elif isinstance(inner.value, bool):
            said[name] = inner.value
        else:
            raise inner.wrong("true or false")
    return {"shell": ShellSpec(**said)}
