"""`${VAR}` in a configured server: two forms, everything else stays as it is written.

`${VAR}` is the value of the variable and an error when it is not set; `${VAR:-default}` is the default when it is not
set or empty, `${VAR:-}` nothing. That is what Claude Code does (measured on 2.1.329), but for the unset variable,
which it passes on literally: a server then gets `${TOKEN}` for a password. `$VAR` and `${env:VAR}` are literal text;
VS Code and Cursor write the latter, so it counts in a file of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..errors import ConfigError

__all__ = ["expand", "variables"]

_VARIABLE: Final = re.compile(r"\$\{(env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand(text: str, environ: Mapping[str, str], *, file: str = "", key: str = "", env_prefix: bool = False) -> str:
    """Return `text` with its variables replaced; what comes out is not looked at again.

    `env_prefix` also takes `${env:VAR}`. Raises `ConfigError` with `file` and `key` for a variable that is not set.
    """

    def value(match: re.Match[str]) -> str:
        prefix, name, default = match.groups()
        if prefix and not env_prefix:
            return match.group()
        found = environ.get(name)
        if default is not None:
            return found or default
        if found is None:
            hint = f"set it, or write ${{{name}:-default}}"
            raise ConfigError(f"the environment variable {name} is not set: {hint}", file=file, key=key)
        return found

    return _VARIABLE.sub(value, text) if "${" in text else text


def variables(text: str) -> tuple[str, ...]:
    """Return the names of the variables that `text` uses, in order."""
    return tuple(match.group(2) for match in _VARIABLE.finditer(text))
