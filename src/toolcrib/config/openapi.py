"""Entries under `sources` of the configuration: APIs read as `OpenApiSpec`, and sources of the listed kinds.

An entry with errors is left out, with a `Problem` for each of them; the others are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import AfterValidator, BeforeValidator

from ..core.document_tree import Member, Node
from ..core.settings import Flag, Scalar, expected, secret_texts
from ..errors import ConfigError, ConfigErrors
from ..sources.configuration import ConfiguredSource
from ..sources.openapi.spec import ApiSettings, OpenApiSpec, url_parts
from ..sources.settings import KINDS
from .secrets import MIN_LENGTH, is_secret_name
from .servers import Entry, file_line
from .validation import did_you_mean, read_setting

__all__ = ["KEY", "PATH", "ApiEntry", "api_secrets", "api_spec", "configured_source", "is_api", "source_entries"]

KEY: Final = "sources"
"""The key of our file that this module reads."""
PATH: Final = (KEY, "openapi")
"""Path of the mapping from an API's name to its entry."""
_WRITTEN: Final = ("spec", "base_url", "auth", "headers")
"""Keys whose values are taken as they are written: a token of digits stays one."""
_SWITCHES: Final = ("disabled", "enabled")
"""Keys that every entry may have (`Entry.is_off`)."""


def is_api(entry: Entry) -> bool:
    """Whether the entry is an API, not a source of another kind."""
    return entry.key == ".".join(PATH)


def _is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _description(text: str) -> str:
    if not text:
        raise expected("a path or a URL of the description")
    if _is_url(text):
        url_parts(text)
    return text


class ApiEntry(ApiSettings):
    """One entry of `sources.openapi`, as a file has it."""

    spec: Annotated[Scalar, AfterValidator(_description)]
    """Path or URL of the description."""
    enabled: Flag = True
    """`false` leaves the API out."""
    disabled: Flag = False
    """`true` leaves the API out."""


def _mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise expected("a mapping with `spec`")
    return cast("Any", value)


_Entry = Annotated[ApiEntry, BeforeValidator(_mapping)]


def source_entries(root: Node, path: Path | None, base: str) -> tuple[Entry, ...]:
    """Return the entries of a document, unchecked; relative paths count from `base`. `path` is None for keywords.

    Raises `ConfigError` unless they are mappings below keys of known kinds.
    """
    found: list[Entry] = []
    errors: list[ConfigError] = []
    around = root.find((KEY,))
    for member in _members(around, path, KEY):
        key = f"{KEY}.{member.key}"
        if member.key != PATH[1] and member.key not in KINDS:
            where = file_line(path, member.line)
            known = did_you_mean(member.key, (PATH[1], *KINDS))
            errors.append(ConfigError(f"unknown key{known}", file=where, key=key))
            continue
        try:
            members = _members(member.node, path, key)
        except ConfigError as error:
            errors.append(error)
            continue
        written = _WRITTEN if member.key == PATH[1] else ()
        found += [Entry.of(one, root, path, key=key, base=base, written=written) for one in members]
    if errors:
        raise ConfigErrors.of(errors)
    return tuple(found)


def api_spec(entry: Entry, environ: Mapping[str, str]) -> OpenApiSpec:
    """Return the specification of `entry`. Raises `ConfigError` with all of its errors."""
    read = cast("ApiEntry", read_setting(_Entry, entry.value, entry.place(environ)))
    spec = read.spec if _is_url(read.spec) else str(Path(entry.base, os.path.expanduser(read.spec)))
    given = {name: getattr(read, name) for name in ApiSettings.model_fields}
    return OpenApiSpec(name=entry.name, spec=spec, settings=ApiSettings.model_construct(None, **given))


def configured_source(entry: Entry, environ: Mapping[str, str]) -> ConfiguredSource:
    """Return the source that `entry`, of a listed kind, describes. Raises `ConfigError` with all of its errors."""
    kind = entry.key.removeprefix(f"{KEY}.")
    value: Any = entry.value
    if isinstance(value, Mapping):
        value = {name: inner for name, inner in cast("Mapping[str, Any]", value).items() if name not in _SWITCHES}
    read = read_setting(KINDS[kind].settings, value, entry.place(environ))
    return ConfiguredSource.model_construct(None, kind=kind, name=entry.name, settings=read, folder=Path(entry.base))


def api_secrets(spec: OpenApiSpec) -> list[str]:
    """Return the values of `spec` to mask wherever they turn up."""
    found = [value for name, value in spec.settings.headers.items() if is_secret_name(name)]
    return [value for value in (*found, *secret_texts(spec.settings)) if len(value) >= MIN_LENGTH]


def _members(node: Node | None, path: Path | None, key: str) -> Sequence[Member]:
    if node is None or (node.kind == "scalar" and node.value is None):
        return ()
    if node.kind != "mapping":
        raise ConfigError("a mapping was expected", file=file_line(path, node.line), key=key)
    return node.members
