"""Secrets among configured values: recognised by the names of their keys, collected so that redaction can mask them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["MIN_LENGTH", "is_secret_name", "masked_url", "secret_values"]

MIN_LENGTH = 6
"""Characters; a shorter value would mask ordinary words all over the output."""

_SECRET_NAME: Final = re.compile(
    r"(?:^|[^a-z])(?:pat|pwd|key|auth|sid|dsn|jwt)(?:$|[^a-z])"
    r"|token|secret|passw|passphrase|credential|api.?key|access.?key|private.?key|authorization|cookie|bearer",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(r"(?:basic|bearer|token|digest|apikey)\s+(.+)", re.IGNORECASE)
_OPTION: Final = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)


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


def masked_url(url: str) -> str:
    """Return `url` for people: without user, password, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


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
