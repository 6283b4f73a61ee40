"""Variables in configured text, and the secrets that they stand for.

    ${VAR}           the environment variable; an error when it is not set
    ${VAR:-default}  the default when it is not set or empty; `${VAR:-}` is empty
    ${keyring:NAME}  a secret that `toolcrib secret set NAME` keeps
    ${input:ID}      a value that VS Code asks a person for: the environment variable ID in capitals, else the secret ID
    ${file:PATH}     the content of a file, without the line break at its end
    $${VAR}          the text `${VAR}`

The first two are Claude Code's (measured on 2.1.329), which passes an unset variable on literally: a server then gets
`${TOKEN}` for a password. Here that is an error, and so is every other form of another program (`${env:VAR}`,
`${command:…}`, `${user_config.key}`); importing translates those that have a counterpart. `$VAR` is literal text.

A kept secret has a file in the data directory that only its user may read: with its value, or with the mark that the
system's keyring has it. A secret that another program put into the keyring (service `toolcrib`, user NAME) counts too.

Secrets among configured values are recognised by the names of their keys, so that redaction can mask them.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.json import as_mapping, dumps, loads, texts_in
from ..core.patterns import regex
from ..errors import ConfigError
from ..system.private_files import replace_private
from .directories import Directories

SECRETS: Final = "secrets"
"""The folder in the data directory."""
_SERVICE: Final = "toolcrib"
_KEY_NAME: Final = regex(r"[A-Za-z0-9_][\w.@/ -]{0,99}", re.ASCII)

_logger = logging.getLogger(__name__)

MIN_LENGTH = 6
"""Characters; a shorter value would mask ordinary words all over the output."""

_SECRET_NAME: Final = regex(
    r"(?:^|[^a-z])(?:pat|pwd|key|auth|sid|dsn|jwt)(?:$|[^a-z])"
    r"|token|secret|passw|passphrase|credential|api.?key|access.?key|private.?key|authorization|cookie|bearer",
    re.IGNORECASE,
)
_SCHEME: Final = regex(r"(?:basic|bearer|token|digest|apikey)\s+(.+)", re.IGNORECASE)
_OPTION: Final = regex(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)

_FORM: Final = regex(
    r"(?P<escape>\$\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{(?P<scheme>[A-Za-z][\w-]*):"
    r"(?P<rest>[A-Za-z_/~.][^}]*|(?:(?<=\{keyring:)|(?<=\{input:))(?!\d+(?::\d+)?\})\d[^}]*)\}"
    r"|(?P<other>\$\{(?:\{[^}]*\}|/|[A-Za-z_]\w*(?:\.[\w-]+)+)\})"
)
"""Other forms, such as bash's `${x:0:3}` and `${x%.*}`, stay as they are written."""
_KEPT_FORM: Final = regex(r"(?<!\$)\$\{(keyring|input):([^}]+)\}")
_LARGEST: Final = 64 << 10
"""Bytes of a file that `${file:…}` takes."""


def is_secret_key(name: str) -> bool:
    """Whether a secret can have this name."""
    return _KEY_NAME.fullmatch(name) is not None


def read_secret(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the secret, or None when it is missing or unreadable."""
    kept = _read_kept(_kept_path(name, environ))
    if isinstance(kept.get("value"), str):
        return kept["value"]
    try:
        ring = _keyring()
        return ring.get_password(_SERVICE, name) if ring is not None else None
    except Exception as error:  # noqa: BLE001 - keyring backends raise exceptions of their system
        _logger.warning("the keyring gives no secret %s (%s)", name, type(error).__name__)
        return None


def write_secret(name: str, value: str, environ: Mapping[str, str]) -> str:
    """Keep a secret and return where, for people. Raises `ConfigError`."""
    if not is_secret_key(name):
        raise ConfigError(f"{name!r} is not a name: 1 to 100 ASCII letters, digits, spaces and . _ - @ / were expected")
    if not value:
        raise ConfigError("the secret is empty")
    path, in_ring = _kept_path(name, environ), False
    try:
        ring = _keyring()
        if ring is not None:
            ring.set_password(_SERVICE, name, value)
            in_ring = True
    except Exception as error:  # noqa: BLE001 - likewise; the file is there
        _logger.warning("the keyring takes no secret (%s): it is kept in a file", type(error).__name__)
    content = {"name": name, "kept": "keyring"} if in_ring else {"name": name, "value": value}
    try:
        replace_private(path, dumps(content))
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error
    return "the system's keyring" if in_ring else str(path)


def remove_secret(name: str, environ: Mapping[str, str]) -> bool:
    """Forget a secret; return whether there was one. Raises `ConfigError` where the keyring does not forget it."""
    path = _kept_path(name, environ)
    found = read_secret(name, environ) is not None
    try:
        ring = _keyring()
        if ring is not None and ring.get_password(_SERVICE, name) is not None:
            ring.delete_password(_SERVICE, name)
    except Exception as error:
        message = f"the secret {name} is still in the system's keyring, which does not forget it"
        raise ConfigError(f"{message} ({type(error).__name__}); unlock the keyring, and try again") from error
    path.unlink(missing_ok=True)
    return found


def secret_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the secrets that `write_secret` kept."""
    folder = Directories.of(environ).data / SECRETS
    kept = [_read_kept(path) for path in folder.glob("*.json")] if folder.is_dir() else []
    return sorted(str(entry["name"]) for entry in kept if "name" in entry)


def _read_kept(path: Path) -> Mapping[str, Any]:
    try:
        kept: Any = loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return as_mapping(kept)


def _kept_path(name: str, environ: Mapping[str, str]) -> Path:
    return Directories.of(environ).data / SECRETS / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _keyring() -> Any:
    from ..mcp.auth.login_store import system_keyring

    return system_keyring()


def is_secret_name(name: str) -> bool:
    """Whether a variable, header, option or query parameter of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_values(
    *, named: Iterable[Mapping[str, str]] = (), arguments: Iterable[str] = (), url: str = ""
) -> tuple[str, ...]:
    """Return the secret ones among named values (environment, headers), command arguments and the parts of a URL."""
    found: dict[str, None] = {}
    for values in named:
        for name, value in values.items():
            if is_secret_name(name):
                found.update(dict.fromkeys(_forms(value)))
    found.update(dict.fromkeys(_in_arguments(arguments)))
    found.update(dict.fromkeys(_in_url(url)))
    return tuple(value for value in found if len(value) >= MIN_LENGTH)


def _forms(value: str) -> Iterator[str]:
    yield value
    if scheme := _SCHEME.fullmatch(value):
        yield scheme.group(1)


def _in_arguments(arguments: Iterable[str]) -> Iterator[str]:
    expected = False
    for argument in arguments:
        option = _OPTION.fullmatch(argument)
        if option is None:
            if expected:
                yield from _forms(argument)
            if "://" in argument:
                yield from _in_url(argument)
            expected = False
            continue
        name, value = option.groups()
        secret = is_secret_name(name)
        if value is not None and secret:
            yield from _forms(value)
        expected = secret and value is None


def _in_url(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    for secret in (password or (user if not parts.hostname else ""), *_query(parts.query)):
        yield secret
        yield unquote(secret)


def _query(query: str) -> Iterator[str]:
    return (value for name, value in parse_qsl(query) if is_secret_name(name))


def expand(
    text: str,
    environ: Mapping[str, str],
    *,
    inputs: Mapping[str, str] | None = None,
    has_default: bool = True,
) -> str:
    """Return `text` with its variables replaced; the values are not expanded again.

    `inputs` describes the values that a person is asked for, by id. `has_default`: the author of the text can write a
    default into it, so that the error of an unset variable proposes one. Raises `ConfigError` for a variable that has
    no value, and for a form that is not known here.
    """
    if "${" not in text:
        return text
    return _FORM.sub(lambda match: _value_of(match, environ, inputs or {}, has_default=has_default), text)


def input_variable(name: str) -> str:
    """Return the environment variable that gives the value of `${input:name}`."""
    return re.sub(r"\W+", "_", name).upper()


def kept_secrets(value: Any, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets that `${keyring:…}` and `${input:…}` stand for anywhere in `value`: to mask them.

    An input that the environment answers counts by its name: a region is public, an API key is secret.
    """
    found: dict[str, None] = {}
    for text in texts_in(value):
        for scheme, name in _KEPT_FORM.findall(text):
            given = environ.get(input_variable(name)) if scheme == "input" else None
            if given:
                found |= {given: None} if is_secret_name(name) else {}
            else:
                found[(read_secret(name, environ) if is_secret_key(name) else None) or ""] = None
    return tuple(secret for secret in found if len(secret) >= MIN_LENGTH)


def _value_of(match: re.Match[str], environ: Mapping[str, str], inputs: Mapping[str, str], *, has_default: bool) -> str:
    if match["escape"]:
        return "${"
    if name := match["name"]:
        found = environ.get(name)
        if match["default"] is not None:
            return found or match["default"]
        if found is None:
            other = f", or write ${{{name}:-default}}" if has_default else ""
            raise ConfigError(f"the environment variable {name} is not set: set it{other}")
        return found
    if match["scheme"] == "keyring":
        return _kept_value(match["rest"], environ)
    if match["scheme"] == "input":
        return _input_value(match["rest"], environ, inputs)
    if match["scheme"] == "file":
        return _file_content(match["rest"], environ)
    write = f"${{{match['rest']}}}" if match["scheme"] == "env" else f"${match[0]} for this text itself"
    raise ConfigError(f"{match[0]} is not a variable here: write {write}")


def _kept_value(name: str, environ: Mapping[str, str]) -> str:
    found = read_secret(name, environ) if is_secret_key(name) else None
    if found is None:
        raise ConfigError(f"no secret {name!r} is kept here: `toolcrib secret set {name}` asks for it")
    return found


def _input_value(name: str, environ: Mapping[str, str], inputs: Mapping[str, str]) -> str:
    variable = input_variable(name)
    found = environ.get(variable) or (read_secret(name, environ) if is_secret_key(name) else None)
    if found is None:
        described = f" ({inputs[name]})" if inputs.get(name) else ""
        how = f"`toolcrib secret set {name}` asks for it once, or set the environment variable {variable}"
        raise ConfigError(f"the input {name!r}{described} has no value: {how}")
    return found


def _file_content(path: str, environ: Mapping[str, str]) -> str:
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
