"""One entry of `sources.openapi` becomes an `OpenApiSpec`: credentials, variables, relative paths; and is written back.

    sources:
      openapi:
        github:
          spec: api.github.com.json          # a path (relative: to this file) or a URL
          base_url: https://api.github.com
          auth: {type: bearer, token: "${GITHUB_TOKEN}"}
          include: [issues, "pulls/*", "GET /repos/*"]

An entry that cannot be taken is a problem; the others are. `auth` is one mapping or a list of them, of type `bearer`
(token), `basic` (username, password), `api_key` (value, name, in) or `oauth2` (client_id, client_secret, token_url,
scopes, client_auth).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import SplitResult, urlsplit

from ..core.document_tree import MAX_BYTES, Node
from ..core.events import Problem
from ..core.yaml_document import parse_yaml
from ..errors import ConfigError
from ..sources.openapi.spec import ApiKey, ApiSettings, Auth, Basic, Bearer, ClientCredentials, OpenApiSpec
from . import files
from .edit_yaml import insert_yaml, remove_yaml
from .expand import expand
from .secrets import MIN_LENGTH, is_secret_name
from .servers import Entry, annotations_of, did_you_mean, timeout_of

__all__ = ["KEY", "add_api", "api_entries", "api_secrets", "apis_of", "read_apis", "remove_api"]

KEY: Final = "sources"
"""The key of our file that this module reads."""
_PATH: Final = (KEY, "openapi")
_KEYS: Final = "spec base_url auth headers include exclude allow_private timeout annotations enabled disabled".split()
_WRITTEN: Final = ("spec", "base_url", "auth", "headers")
"""What is taken as it is written: a token of digits stays one."""
_PLACES: Final = ("header", "query", "cookie")


def api_entries(root: Node, path: Path | None, base: str) -> tuple[Entry, ...]:
    """Return the entries of a document, unchecked; relative paths count from `base`. `path` is None for keywords.

    Raises `ConfigError` unless they are a mapping.
    """
    found: list[Entry] = []
    around = root.find((KEY,))
    for member in _members(around, path, KEY):
        if member.key != _PATH[1]:
            where = _place(path, member.line)
            known = did_you_mean(member.key, _PATH[1:])
            raise ConfigError(f"unknown key{known}", file=where, key=f"{KEY}.{member.key}")
        for one in _members(member.node, path, ".".join(_PATH)):
            value = one.node.plain()
            for name in _WRITTEN:
                if (written := one.node.find((name,))) is not None:
                    value[name] = written.strings()
            place = _place(path, one.line)
            found.append(Entry(name=one.key, value=value, file=place, key=".".join(_PATH), base=base))
    return tuple(found)


def apis_of(entries: Iterable[Entry], environ: Mapping[str, str]) -> tuple[list[OpenApiSpec], list[Problem]]:
    """Return the APIs that can be taken, and a problem for each that cannot. Switched-off ones are left out."""
    specs: list[OpenApiSpec] = []
    problems: list[Problem] = []
    for entry in entries:
        try:
            spec = _Reader(entry, environ).spec()
        except ConfigError as error:
            problems.append(Problem(source=entry.name, code="bad_config", message=str(error)))
        else:
            specs += [spec] if spec else []
    return specs, problems


def api_secrets(spec: OpenApiSpec) -> list[str]:
    """Return the values of `spec` that must never be shown."""
    found = [value for name, value in spec.settings.headers.items() if is_secret_name(name)]
    for auth in spec.settings.auth:
        if isinstance(auth, Bearer):
            found.append(auth.token)
        elif isinstance(auth, Basic):
            found.append(auth.password)
        elif isinstance(auth, ApiKey):
            found.append(auth.value)
        else:
            found.append(auth.client_secret)
    return [value for value in found if len(value) >= MIN_LENGTH]


def read_apis(path: Path) -> Mapping[str, Any]:
    """Return the APIs that `path` has, unexpanded; none when there is no such file."""
    if not path.is_file():
        return {}
    found = parse_yaml(files.decode(files.read(path), str(path)), str(path)).find(_PATH)
    return found.plain() if found is not None and found.kind == "mapping" else {}


def add_api(path: Path, name: str, value: Mapping[str, Any]) -> bytes:
    """Write an API into `path`, which is made when it is missing; return what it says now.

    Raises `ConfigError` when it is there already, or the file cannot be changed as text.
    """
    text = files.decode(files.read(path), str(path)) if path.is_file() else ""
    return _write(path, insert_yaml(text, _PATH, name, dict(value), str(path)))


def remove_api(path: Path, name: str) -> bytes:
    """Take the API `name` out of `path`; return what it says now. Raises `ConfigError` when it is not there."""
    return _write(path, remove_yaml(files.decode(files.read(path), str(path)), _PATH, name, str(path)))


def _write(path: Path, text: str) -> bytes:
    content = text.encode()
    if len(content) > MAX_BYTES:
        raise ConfigError(f"would be larger than {MAX_BYTES >> 10} KiB", file=str(path))
    files.write(path, content)
    return content


def _members(node: Node | None, path: Path | None, key: str) -> Sequence[Any]:
    if node is None or (node.kind == "scalar" and node.value is None):
        return ()
    if node.kind != "mapping":
        raise ConfigError("a mapping was expected", file=_place(path, node.line), key=key)
    return node.members


def _place(path: Path | None, line: int) -> str:
    return f"{path}:{line}" if path else ""


@dataclass(frozen=True, slots=True)
class _Reader:
    """One entry, checked and expanded."""

    entry: Entry
    environ: Mapping[str, str]

    def spec(self) -> OpenApiSpec | None:
        """Return the specification, or None when it is switched off. Raises `ConfigError`."""
        given = self.entry.value
        if not isinstance(given, Mapping):
            raise self.entry.error("a mapping with `spec` was expected")
        value = cast("Mapping[str, Any]", given)
        self._known(value, _KEYS)
        if self._flag(value, "disabled", False) or not self._flag(value, "enabled", True):
            return None
        settings = ApiSettings(
            base_url=self._url(value, "base_url"),
            auth=tuple(self._auth(value.get("auth"))),
            headers=self._headers(value.get("headers")),
            include=self._texts(value, "include"),
            exclude=self._texts(value, "exclude"),
            allow_private=self._flag(value, "allow_private", False),
            timeout=timeout_of(self.entry, value.get("timeout")),
            annotations=annotations_of(self.entry, value.get("annotations")),
        )
        return OpenApiSpec(name=self.entry.name, spec=self._where(value), settings=settings)

    def _where(self, value: Mapping[str, Any]) -> str:
        where = self._text(value.get("spec"), "spec")
        if not where:
            raise self.entry.error("say where the description is: a path or a URL", "spec")
        if where.lower().startswith(("http://", "https://")):
            self._parts(where, "spec")
            return where
        return str(Path(self.entry.base, os.path.expanduser(where)))

    def _url(self, value: Mapping[str, Any], *keys: str) -> str:
        url = self._text(value.get(keys[-1]), *keys)
        parts = self._parts(url, *keys)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
            raise self.entry.error("an http:// or https:// URL without a password in it was expected", *keys)
        if parts.query or parts.fragment:
            raise self.entry.error("a URL without `?` and `#` was expected", *keys)
        return url

    def _parts(self, url: str, *keys: str) -> SplitResult:
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises for an invalid one
        except ValueError as error:
            raise self.entry.error(f"not a URL: {error}", *keys) from None
        return parts

    def _auth(self, given: object) -> Iterable[Auth]:
        if given is None:
            return
        several = cast("list[Any]", given) if isinstance(given, list) else [given]
        for place, one in enumerate(several):
            keys = ("auth", str(place)) if isinstance(given, list) else ("auth",)
            if not isinstance(one, Mapping):
                raise self.entry.error("a mapping with `type` was expected", *keys)
            value = cast("Mapping[str, Any]", one)
            kind = str(value.get("type", ""))
            made = _AUTH.get(kind)
            if made is None:
                known = f"{', '.join(_AUTH)}{did_you_mean(kind, _AUTH)}"
                raise self.entry.error(f"{kind!r} is not one of {known}", *keys, "type")
            yield made(self, value, keys)

    def bearer(self, value: Mapping[str, Any], keys: tuple[str, ...]) -> Auth:
        self._known(value, ("type", "token"), *keys)
        return Bearer(token=self._needed(value, "token", keys))

    def basic(self, value: Mapping[str, Any], keys: tuple[str, ...]) -> Auth:
        self._known(value, ("type", "username", "password"), *keys)
        return Basic(
            username=self._needed(value, "username", keys),
            password=self._text(value.get("password"), *keys, "password"),
        )

    def api_key(self, value: Mapping[str, Any], keys: tuple[str, ...]) -> Auth:
        self._known(value, ("type", "value", "name", "in"), *keys)
        place = self._text(value.get("in"), *keys, "in")
        if place not in ("", *_PLACES):
            raise self.entry.error(f"{place!r} is not one of {', '.join(_PLACES)}", *keys, "in")
        return ApiKey(
            value=self._needed(value, "value", keys),
            name=self._text(value.get("name"), *keys, "name"),
            place=place,
        )

    def oauth2(self, value: Mapping[str, Any], keys: tuple[str, ...]) -> Auth:
        self._known(value, ("type", "client_id", "client_secret", "token_url", "scopes", "client_auth"), *keys)
        client_auth = self._text(value.get("client_auth"), *keys, "client_auth") or "header"
        if client_auth not in ("header", "body"):
            raise self.entry.error(f"{client_auth!r} is neither header nor body", *keys, "client_auth")
        return ClientCredentials(
            client_id=self._needed(value, "client_id", keys),
            client_secret=self._needed(value, "client_secret", keys),
            token_url=self._url(value, *keys, "token_url"),
            scopes=self._texts(value, *keys, "scopes"),
            in_body=client_auth == "body",
        )

    def _headers(self, given: object) -> dict[str, str]:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise self.entry.error("a mapping of strings was expected", "headers")
        named = cast("Mapping[str, Any]", given).items()
        headers = {name: self._text(item, "headers", name) for name, item in named}
        for name, text in headers.items():
            if not text.isascii() or not text.isprintable() or not name.isascii() or not name.isprintable():
                raise self.entry.error("can only hold printable ASCII", "headers", name)
        return headers

    def _known(self, value: Mapping[str, Any], known: Sequence[str], *keys: str) -> None:
        for key in value:
            if key not in known:
                raise self.entry.error(f"unknown key{did_you_mean(key, known)}", *keys, key)

    def _needed(self, value: Mapping[str, Any], key: str, keys: tuple[str, ...]) -> str:
        text = self._text(value.get(key), *keys, key)
        if not text or not text.isprintable():
            raise self.entry.error("is missing or empty" if not text else "has invisible characters", *keys, key)
        return text

    def _text(self, item: object, *keys: str) -> str:
        if item is None:
            return ""
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise self.entry.error("a string was expected", *keys)
        where = ".".join((self.entry.key, self.entry.name, *keys))
        return expand(str(item), self.environ, file=self.entry.file, key=where)

    def _texts(self, value: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
        given = value.get(keys[-1])
        if given is None:
            return ()
        items = cast("list[Any]", given) if isinstance(given, list | tuple) else [given]
        return tuple(filter(None, (self._text(item, *keys) for item in items)))

    def _flag(self, value: Mapping[str, Any], key: str, default: bool) -> bool:
        given = value.get(key, default)
        if not isinstance(given, bool):
            raise self.entry.error("true or false was expected", key)
        return given


_AUTH: Final[Mapping[str, Callable[[_Reader, Mapping[str, Any], tuple[str, ...]], Auth]]] = {
    "bearer": _Reader.bearer,
    "basic": _Reader.basic,
    "api_key": _Reader.api_key,
    "oauth2": _Reader.oauth2,
}
