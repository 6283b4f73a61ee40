"""Keys of our configuration file besides the servers: their types, the merge of several files, and access by tools.

The section `tools` holds settings of built-in tools. The address of a channel is as good as a password there: anyone
with `discord://…` can write to it. So it is masked whole, and so are its parts, as libraries quote them.

Three tables of keys that a tool may show and change, derived from the settings models: `CHANGEABLE`
(`changed_by="tool"`; a person approves each change), `FIXED` (displayed, changed by hand alone: the default of a new
key), `SECRET` (not displayed).
"""

import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, cast

from msgspec import Struct
from pydantic import BeforeValidator, model_validator

from ..core.documents.tree import Path
from ..core.exceptions import ErrorList
from ..core.json import as_mapping, named_texts
from ..core.permission import Effect
from ..core.settings import Flag, Section, Text, Texts, a_list_of, expected, info_of, keys_of
from ..core.similar import did_you_mean
from ..disclosure.settings import GivenProfile
from ..errors import ConfigError
from ..policy.modes import ModeSettings
from ..policy.rules import RuleTexts, Written, broken_rules
from ..policy.settings import Identity, RuleSettings
from ..sources.settings import GivenWorkflow
from .profiles import together
from .secrets import secret_values
from .settings import FILE_KEYS, Settings
from .validation import SettingPlace, read_setting

TOOL_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("*",),
    "api.*": ("headers", "url"),
    "background_after": ("*",),
    "calendar": ("accounts", "refresh_seconds", "timezone"),
    "calendar.accounts": ("*",),
    "calendar.accounts.*": ("auth", "password", "principal", "url", "user"),
    "git": ("ca_file", "known_hosts", "private_hosts", "ssh_key", "tokens"),
    "lsp": ("servers",),
    "lsp.servers": ("*",),
    "lsp.servers.*": ("command", "environment", "files", "options", "readable", "seconds", "settings", "writes"),
    "messaging": ("channels", "default"),
    "notebook": ("python",),
    "references": ("folders", "sources"),
    "services": ("credentials",),
    "services.credentials": ("*",),
    "services.credentials.*": ("secret", "url", "username"),
    "settings": ("backends",),
    "templates": ("index",),
    "web": ("private_hosts", "robots", "search"),
    "web.search": ("brave_key", "brave_url", "searxng_url", "tavily_key", "tavily_url"),
}
"""The keys that built-in tools read below `tools`; `*` is a name of the user's. Other categories are for plugins."""

_OTHER_FILES: Final = {
    "capabilities": ": this file is a catalog, which a configuration names under `catalogs`",
    "openapi": ": this file describes an API; `toolcrib add openapi FILE` adds it",
    "swagger": ": this file describes an API; `toolcrib add openapi FILE` adds it",
}
"""First keys of other kinds of files, and the place where those belong."""

_MESSAGING: Final = "messaging"
_TOKEN_LENGTH: Final = 12
"""Characters of a part of an address that is a token rather than a name."""

_ADDED: Final = ("catalogs", "redact")
"""Lists that add up over files, first file first."""
_ONE_BY_ONE: Final = ("identities", "modes", "tool_permissions", "tools", "versions", "workflows")
"""Mappings of which a later file replaces single entries."""
_LITERAL: Final = ("profiles", "workflows")
"""Keys whose texts are taken as they are: `${…}` has another meaning there, or none."""

_Free = Mapping[str, Any]
"""A mapping that the code of a feature checks."""

MODEL: Final = "chat.model"
"""Key that `switch_backend` changes, to a value that the operator has listed."""

FIXED: Final[Mapping[str, str]] = {name: key.info.why for name, key in FILE_KEYS.items() if key.info.why}
"""Reasons why only the user may change a key, in addition to `CHANGEABLE`."""

SECRET: Final = frozenset({"mcpServers", "redact", *(name for name, key in FILE_KEYS.items() if key.info.secret)})
"""Hold keys, passwords or tokens, or may."""


def tool_secrets(tools: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets in the section `tools`."""
    found: dict[str, None] = {}
    for category, given in tools.items():
        for name, text in named_texts(given, category):
            found.update(dict.fromkeys(secret_values(named=({name: text},), url=text if "://" in text else "")))
            if category == _MESSAGING and "://" in text:
                found[text] = None
                found.update(dict.fromkeys(part for part in re.split(r"[/?&=:@]+", text) if len(part) >= _TOKEN_LENGTH))
    return tuple(found)


def known_settings(path: Sequence[str]) -> tuple[str, ...] | None:
    """Return the keys that the mapping at `path` below `tools` may have; None where any is right."""
    patterns = (key for key in TOOL_KEYS if len(key.split(".")) == len(path))
    fits = (key for key in patterns if all(one in ("*", step) for one, step in zip(key.split("."), path, strict=True)))
    known = TOOL_KEYS.get(next(fits, ""), ("*",))
    return None if known == ("*",) else known


def _code(value: Any) -> Any:
    if not isinstance(value, bool | list | tuple):
        raise expected("true, false or a list of folders")
    return cast("Any", value)


class CatalogEntry(Section):
    """One entry of `catalogs`: a file, or a mapping."""

    file: Text
    """Path of the catalog."""
    name: Text = ""
    """Empty takes one from the file's name."""
    code: Annotated[bool | Texts, BeforeValidator(_code)] = True
    """Whether its modules may be loaded: from its own folder (true), from these folders too, or not at all (false)."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"file": value} if isinstance(value, str) else value


class SkillSettings(Section):
    """The key `skills`: true, a list of folders, or a mapping."""

    project: Flag = False
    """Whether skills of the project are used."""
    user: Flag = False
    """Whether skills of the user are used."""
    shipped: Flag = False
    """Whether the skills of installed packages are used, ours included."""
    paths: Texts = ()
    """Further folders of skills."""
    groups: Text = ""
    """A YAML file with `skill_groups`."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {"project": value, "user": value}
        return {"paths": cast("Any", value)} if isinstance(value, list | tuple) else value


KEYS: Final[Mapping[str, Any]] = {
    **{name: key.annotation for name, key in FILE_KEYS.items() if name not in ("servers", "openapi")},
    "catalogs": Annotated[tuple[CatalogEntry, ...], a_list_of("files")],
    "modes": Mapping[str, ModeSettings],
    "profiles": Mapping[str, _Free],
    "redact": Texts,
    "skills": SkillSettings,
    "tools": Mapping[str, _Free],
    "workflows": _Free,
}
"""Every key of our file besides `servers` (or `mcpServers`) and `sources`, and the type of its value there."""


def check(
    values: Mapping[str, Any],
    environ: Mapping[str, str],
    errors: ErrorList,
    where: Callable[[Path], str] = lambda path: "",
) -> dict[str, Any]:
    """Return `values` of our keys validated, with their variables replaced; wrong ones are left out.

    `errors` gets every error of the file in its order.
    """
    checked: dict[str, Any] = {}
    for key, value in values.items():
        place = SettingPlace(path=(key,), where=where, environ=environ)
        if key not in KEYS:
            meant = _OTHER_FILES.get(key) or did_you_mean(key, (*KEYS, "servers", "mcpServers", "sources"))
            if not meant and as_mapping(value).keys() & {"command", "url"}:
                meant = ": an MCP server stands below `servers`, indented"
            errors.found.append(place.error(f"unknown key{meant}"))
        elif value is not None:
            with errors.part():
                read = read_setting(KEYS[key], value, place, literal=key in _LITERAL, check=_CHECKS.get(key))
                checked[key] = _FINISHED[key](read, place) if key in _FINISHED else read
    return checked


def merge(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Put checked values together: later ones win, sections key by key and profiles one by one; rules add up.

    Rules add up because their section is one whose lists do (`Section.lists_add_up`); one with `replaced_whole` comes
    from a single file.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key in _ADDED:
                merged[key] = (*merged.get(key, ()), *value)
            elif key == "profiles":
                merged[key] = together(merged.get(key, {}), value)
            elif isinstance(value, Section):
                merged[key] = value.over(merged.get(key))
            elif key in _ONE_BY_ONE:
                merged[key] = {**merged.get(key, {}), **value}
            else:
                merged[key] = value
    return merged


def _check_tools(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the keys below `tools` that no built-in tool reads. Its own code checks the values."""
    if not isinstance(value, Mapping):
        return
    known = known_settings([str(step) for step in path]) if path else None
    for name, inner in cast("Mapping[str, Any]", value).items():
        here = (*path, name)
        if not path and name not in TOOL_KEYS and (near := did_you_mean(name, TOOL_KEYS)):
            yield here, f"unknown category{near}"
        elif known is not None and name not in known:
            yield here, f"unknown key{did_you_mean(name, known)}"
        else:
            yield from _check_tools(inner, here)


def _rules(texts: RuleTexts, place: SettingPlace) -> tuple[dict[Effect, tuple[str, ...]], tuple[str, ...]]:
    """Return the rules that can be read, each with where it stands, and the errors of the others."""
    home = place.environ.get("HOME", "")
    written: dict[Effect, list[str]] = {
        effect: [Written.at(text, place.where((*place.path, effect, number))) for number, text in enumerate(rules)]
        for effect, rules in texts.items()
    }
    broken = {(effect, number): str(error) for effect, number, error in broken_rules(written, home=home)}
    good: dict[Effect, tuple[str, ...]] = {
        effect: tuple(text for number, text in enumerate(rules) if (effect, number) not in broken)
        for effect, rules in written.items()
    }
    return good, tuple(broken.values())


def _finish_rules(read: RuleSettings, place: SettingPlace) -> RuleSettings:
    rules, broken = _rules({"deny": read.deny, "ask": read.ask, "allow": read.allow}, place)
    return RuleSettings.model_construct(None, **rules, broken=broken)  # every key given: the lists of all files count


def _finish_identities(read: Mapping[str, Identity], place: SettingPlace) -> Mapping[str, Identity]:
    done: dict[str, Identity] = {}
    for name, identity in read.items():
        rules, broken = _rules(identity.rules, place.at(name, "rules"))
        where = place.where((*place.path, name, "mode"))
        done[name] = identity.model_copy(update={"rules": rules, "broken": broken, "file": where})
    return done


def _finish_modes(read: Mapping[str, ModeSettings], place: SettingPlace) -> Mapping[str, ModeSettings]:
    return {name: one.model_copy(update={"file": place.where((*place.path, name))}) for name, one in read.items()}


def _finish_profiles(read: Mapping[str, _Free], place: SettingPlace) -> Mapping[str, GivenProfile]:
    return {
        name: GivenProfile(name=name, values=values, file=place.where((*place.path, name)))
        for name, values in read.items()
    }


def _finish_workflows(read: _Free, place: SettingPlace) -> Mapping[str, GivenWorkflow]:
    return {
        name: GivenWorkflow(name=name, values=values, file=place.where((*place.path, name)))
        for name, values in read.items()
    }


_CHECKS: Final[Mapping[str, Callable[[Any], Iterable[tuple[Path, str]]]]] = {"tools": _check_tools}
"""Further checks of the document, by key."""

_FINISHED: Final[Mapping[str, Callable[[Any, SettingPlace], Any]]] = {
    "identities": _finish_identities,
    "modes": _finish_modes,
    "profiles": _finish_profiles,
    "rules": _finish_rules,
    "workflows": _finish_workflows,
}
"""Conversion of validated values that keep their position: rules, and entries that later code checks."""


def _changeable() -> Iterator[str]:
    yield from (name for name, key in FILE_KEYS.items() if key.info.changed_by == "tool" and name != "versions")
    yield "versions.*"
    for name, key in FILE_KEYS.items():
        if isinstance(key.annotation, type) and issubclass(key.annotation, Section):
            yield from (f"{name}.{path}" for path, info in keys_of(key.annotation) if info.changed_by == "tool")


CHANGEABLE: Final = tuple(sorted(_changeable()))
"""Single values, by key or pattern. None of them widens what is allowed, or who may do it."""


def shown() -> tuple[str, ...]:
    """Return the keys that may be shown, in their order."""
    return tuple(sorted({*FIXED, *(key.partition(".")[0] for key in CHANGEABLE)}))


def steps_of(key: str) -> tuple[str, ...]:
    """Return the way to a dotted key; what follows `versions.` is one name of a tool, dots or not."""
    return tuple(key.split(".", 1) if key.startswith("versions.") else key.split("."))


def fixed_by(key: str) -> str:
    """Return why a tool may not change a key; empty where it may. Raises `ConfigError` for an unknown key."""
    top = _known(key)
    if top in SECRET:
        return "it holds secrets"
    if any(fnmatchcase(key, pattern) for pattern in CHANGEABLE):
        return ""
    return FIXED.get(top, "it holds several values: name one of them")


def value_of(settings: Settings, key: str) -> Any:
    """Return the configured value of a key, as JSON, defaults included; a part that may be secret is left out.

    Raises `ConfigError` for an unknown key, and for one that is not shown.
    """
    top = _known(key)
    if top in SECRET:
        raise ConfigError("holds secrets, and is not shown", key=key)
    value = _configured(settings, top)
    steps = steps_of(key)
    for place, step in enumerate(steps[1:], 1):
        members = as_mapping(value)
        if top == "versions" and step not in members:
            return None
        if step not in members:
            key = _spelt(".".join(steps[: place + 1]))
            raise ConfigError(f"there is no such key{did_you_mean(step, members)}", key=key)
        value = members[step]
    return value


def _known(key: str) -> str:
    top = key.partition(".")[0]
    if top not in SECRET and top not in shown():
        raise ConfigError(f"there is no such key{did_you_mean(top, shown())}", key=_spelt(key))
    return top


def _spelt(key: str) -> str:
    """Return a key for display: invisible characters and terminal controls are escaped."""
    return key if key.isprintable() else ascii(key)


def _configured(settings: Settings, top: str) -> Any:
    value = settings.value(top)
    if FILE_KEYS[top].info.names_only:
        return sorted(as_mapping(value)) if isinstance(value, Mapping) else sorted(one.name for one in value)
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        given = ((name, info_of(field)) for name, field in type(value).model_fields.items())
        return {name: _plain(getattr(value, name)) for name, info in given if not (info.hidden or info.in_code)}
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in as_mapping(value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in cast("list[Any]", value)]
    return str(value) if isinstance(value, pathlib.Path) else value
