"""Variables in configured text.

    ${VAR}           the environment variable; an error when it is not set
    ${VAR:-default}  the default when it is not set or empty; `${VAR:-}` is empty
    ${keyring:NAME}  a secret that `toolcrib secret set NAME` keeps
    ${input:ID}      a value that VS Code asks a person for: the environment variable ID in capitals, else the secret ID
    ${file:PATH}     the content of a file, without the line break at its end
    $${VAR}          the text `${VAR}`

The first two are Claude Code's (measured on 2.1.329), which passes an unset variable on literally: a server then gets
`${TOKEN}` for a password. Here that is an error, and so is every other form of another program (`${env:VAR}`,
`${command:…}`, `${user_config.key}`); importing translates those that have a counterpart. `$VAR` is literal text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from ..errors import ConfigError
from .keyring import is_secret_key, read_secret
from .secrets import MIN_LENGTH, is_secret_name

__all__ = ["expand", "input_variable", "kept_secrets"]

_FORM: Final = re.compile(
    r"(?P<escape>\$\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{(?P<scheme>[A-Za-z][\w-]*):"
    r"(?P<rest>[A-Za-z_/~.][^}]*|(?:(?<=\{keyring:)|(?<=\{input:))(?!\d+(?::\d+)?\})\d[^}]*)\}"
    r"|(?P<other>\$\{(?:\{[^}]*\}|/|[A-Za-z_]\w*(?:\.[\w-]+)+)\})"
)
"""Other forms, such as bash's `${x:0:3}` and `${x%.*}`, stay as they are written."""
_KEPT: Final = re.compile(r"(?<!\$)\$\{(keyring|input):([^}]+)\}")
_LARGEST: Final = 64 << 10
"""Bytes of a file that `${file:…}` takes."""


def expand(
    text: str,
    environ: Mapping[str, str],
    *,
    file: str = "",
    key: str = "",
    inputs: Mapping[str, str] | None = None,
) -> str:
    """Return `text` with its variables replaced; the values are not expanded again.

    `inputs` describes the values that a person is asked for, by id. Raises `ConfigError` with `file` and `key` for a
    variable that has no value, and for a form that is not known here.
    """

    def value(match: re.Match[str]) -> str:
        try:
            return _value(match, environ, inputs or {})
        except ConfigError as error:
            raise ConfigError(str(error), file=file, key=key) from error

    return _FORM.sub(value, text) if "${" in text else text


def input_variable(name: str) -> str:
    """Return the environment variable that gives the value of `${input:name}`."""
    return re.sub(r"\W+", "_", name).upper()


def kept_secrets(value: Any, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets that `${keyring:…}` and `${input:…}` stand for anywhere in `value`: to mask them.

    An input that the environment answers counts by its name: a region is public, an API key is secret.
    """
    found: dict[str, None] = {}
    for text in _texts(value):
        for scheme, name in _KEPT.findall(text):
            given = environ.get(input_variable(name)) if scheme == "input" else None
            if given:
                found |= {given: None} if is_secret_name(name) else {}
            else:
                found[(read_secret(name, environ) if is_secret_key(name) else None) or ""] = None
    return tuple(secret for secret in found if len(secret) >= MIN_LENGTH)


def _value(match: re.Match[str], environ: Mapping[str, str], inputs: Mapping[str, str]) -> str:
    if match["escape"]:
        return "${"
    if name := match["name"]:
        found = environ.get(name)
        if match["default"] is not None:
            return found or match["default"]
        if found is None:
            raise ConfigError(f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}")
        return found
    if match["scheme"] == "keyring":
        return _kept(match["rest"], environ)
    if match["scheme"] == "input":
        return _input(match["rest"], environ, inputs)
    if match["scheme"] == "file":
        return _content(match["rest"], environ)
    write = f"${{{match['rest']}}}" if match["scheme"] == "env" else f"${match[0]} for this text itself"
    raise ConfigError(f"{match[0]} is not a variable here: write {write}")


def _kept(name: str, environ: Mapping[str, str]) -> str:
    found = read_secret(name, environ) if is_secret_key(name) else None
    if found is None:
        raise ConfigError(f"no secret {name!r} is kept here: `toolcrib secret set {name}` asks for it")
    return found


def _input(name: str, environ: Mapping[str, str], inputs: Mapping[str, str]) -> str:
    variable = input_variable(name)
    found = environ.get(variable) or (read_secret(name, environ) if is_secret_key(name) else None)
    if found is None:
        described = f" ({inputs[name]})" if inputs.get(name) else ""
        how = f"`toolcrib secret set {name}` asks for it once, or set the environment variable {variable}"
        raise ConfigError(f"the input {name!r}{described} has no value: {how}")
    return found


def _content(path: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    place = Path(f"{home}{path[1:]}" if path.startswith("~/") and home else path)
    if not place.is_absolute():
        raise ConfigError(f"${{file:{path}}}: the path of the file must be absolute, or begin with ~/")
    try:
        with place.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ConfigError(f"${{file:{path}}}: the file is larger than {_LARGEST >> 10} KiB")
        return content.decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"${{file:{path}}}: the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"${{file:{path}}}: the file is not UTF-8 text") from error


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[str, Any]", value).values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)
