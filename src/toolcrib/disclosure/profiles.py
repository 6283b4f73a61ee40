"""Profiles from YAML: the built-in ones and the user's own.

A profile with an unknown key or value is refused when it is loaded, with the nearest names; nothing is guessed. One may
`extend` another: its values replace the other's, key by key, and name by name inside mappings.

Names in a profile without a tool, and ops that two tools claim, are reported while the profile is in use.

    build(values of a file, file=…)   reads, merges what it extends, checks everything, raises all errors at once
    load(name)                        a built-in one, read once in a process
    gaps, op_problems                 what a catalog lacks for a profile; reported, never an error
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import yaml
from msgspec import Struct
from msgspec.structs import replace

from ..catalog.catalog import BUILTIN_SOURCES, Catalog
from ..catalog.names import MAX_NAME, shortened
from ..core.budget import NO_LOOPS, Loops
from ..core.events import Problem
from ..core.exceptions import ErrorList
from ..core.patterns import regex
from ..core.similar import unknown_name
from ..errors import ConfigError
from ..policy.rules import check_rules
from ..results.excerpts import ExcerptStyle
from . import meta_tools, strategies
from .aliases import ToolAliases
from .base import GROUPED_KEYS, GROUPS, OnMiss, Profile, Strategy, Verb
from .envelopes import ENVELOPES
from .ops import OpMap
from .renames import Rename
from .settings import BUILT_IN, BY_CATALOG

__all__ = [
    "BUILT_IN",
    "STRATEGIES",
    "VERBS",
    "Gaps",
    "build",
    "envelope_of",
    "gaps",
    "load",
    "op_problems",
    "strategy_name",
    "strategy_of",
]

STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {name: strategy for name, strategy in vars(strategies).items() if isinstance(strategy, Strategy)}
)
"""Every strategy by its name (`strategies`)."""

_AGENT_LIMITS: Final = ("depth", "max_turns", "requests")

VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {**meta_tools.VERBS, **{name: verb for strategy in STRATEGIES.values() for name, verb in strategy.verbs.items()}}
)
"""Every meta-tool (verb) that a profile may have."""

_INTERNAL: Final = ("inherited", "ours")
"""Fields that are not keys of the file."""
_KEYS: Final = tuple(
    name
    for name in (*(name for name in Profile.__struct_fields__ if name not in GROUPS), *GROUPED_KEYS)
    if name not in _INTERNAL
)
_NAME: Final = regex(r"[A-Za-z0-9_.-]{1,64}")
_VERBS_NEEDED: Final = {"batch": ("exec", "help")}
"""Verb → the meta-tools that it works through."""
_NAME_KEYS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("tool", "description", "given"), str),
    **dict.fromkeys(("args", "values", "fixed", "defaults", "at_most", "unused", "when"), dict),
    **dict.fromkeys(("instead", "required"), list),
}
"""Keys of an entry of `names`, with their types."""
_TYPE_NAMES: Final = {str: "text", dict: "mapping", list: "list"}
_MERGED_KEYS: Final = ("categories", "loops", "names", "options", "placed", "results", "verbs")
"""Mappings of which a profile may replace single entries of the one that it extends."""

_GENERATED_CATEGORIES: Final = frozenset({"MCP", "uncategorized"})
"""Categories that a strategy makes itself, of tools that name none; there may be none of those just now."""


def load(name: str, *, others: Iterable[str] = ()) -> Profile:
    """Return the built-in profile `name`; raises `ConfigError` with the nearest names, `others` too, for another."""
    if name == BY_CATALOG:
        return Profile(name=name, strategy="flat", verbs={"read": "read_artifact"})
    if name not in BUILT_IN:
        raise ConfigError(unknown_name("profile", name, (*BUILT_IN, *others)))
    return _load_built_in(name)


def strategy_of(profile: Profile) -> Strategy:
    """Return the strategy of this profile, with the whole view where the profile is not progressive.

    Every caller goes through this, so that `progressive: false` has an effect everywhere.
    """
    strategy = STRATEGIES[profile.strategy]
    if profile.progressive:
        return strategy
    return replace(strategy, view=strategy.whole or STRATEGIES["flat"].view, read=None)


def strategy_name(profile: Profile) -> str:
    """Return the name of that strategy: `flat` where the profile's own is switched off."""
    return profile.strategy if profile.progressive else "flat"


def envelope_of(profile: Profile) -> str:
    """Return the envelope of this profile: the one of `gateway` refers to ops, and is off with them."""
    return profile.envelope if profile.progressive or profile.envelope != "gateway" else "mcp"


def build(given: Mapping[str, Any], *, file: str, others: Mapping[str, Mapping[str, Any]] | None = None) -> Profile:
    """Return the profile that `given` describes, as read from `file`. Raises `ConfigError`.

    It may extend a built-in profile or one of `others`; one that has a built-in's name and no strategy extends that.
    """
    errors = ErrorList()
    values = {key: value for key, value in given.items() if key != "extends"}
    with errors.part():
        values = _extend(given, file, others or {})
        if "name" not in values or ("name" not in given and "extends" in given):
            raise ConfigError("a profile needs a name of its own", file=file, key="name")
        if "strategy" not in values:
            raise ConfigError("a profile needs a strategy, or another one that it `extends`", file=file, key="strategy")
    with errors.part():
        _check_word("strategy", values.get("strategy", "flat"), STRATEGIES, file)
    with errors.part():
        _check_word("envelope", values.get("envelope", "mcp"), ENVELOPES, file)
    with errors.part():
        values["results"] = _read_style(values.get("results", {}), file)
    with errors.part():
        values["loops"] = _read_loops(values.get("loops", {}), file)
    _check_types(values, file, errors)
    _raise_in_order(errors, given)
    _check_names_of_verbs(values, file, errors)
    _check_options(values, file, errors)
    _check_texts(values, file, errors)
    _check_verbs(values, file, errors)
    _check_rules(values, file, errors)
    names: dict[str, Rename] = {}
    for name, entry in values.get("names", {}).items():
        with errors.part():
            names[name] = _read_rename(name, entry, file)
    _raise_in_order(errors, given)
    values["core"] = tuple(values.get("core", ()))
    values |= {key: tuple(values.get(key, ())) for key in ("exclude", "include", "treat_as_write")}
    values["names"] = names
    ours = {name for name, one in names.items() if one in _built_in_names().get(name, ())}
    inherited = _inherited_names(values, given)
    if values["strategy"] == "gateway" and not values.get("progressive", True):  # an API does not take an op as a name
        tools = {op: tool for tool, op in reversed(values.get("options", {}).get("ops", {}).items())}
        values["names"] = {tools.get(name, name): one for name, one in names.items()}
        ours, inherited = ({tools.get(name, name) for name in group} for group in (ours, inherited))
    return Profile.of({**values, "ours": frozenset(ours), "inherited": frozenset(inherited)})


def _raise_in_order(errors: ErrorList, given: Mapping[str, Any]) -> None:
    """Raise the errors in the order of the profile's keys."""
    places = {str(key): place for place, key in enumerate(given)}
    errors.found.sort(key=lambda error: places.get(error.key.partition(".")[0], len(places)))
    errors.raise_all()


@cache
def _load_built_in(name: str) -> Profile:
    return build(_read_built_in(name), file=f"{name}.yaml")


@cache
def _read_built_in(name: str) -> dict[str, Any]:
    """Return the content of a file of the package: read once in a process, so callers that change it take a copy."""
    text = resources.files("toolcrib.disclosure").joinpath(name, "profile.yaml").read_text("utf-8")
    return cast("dict[str, Any]", yaml.load(text, yaml.CSafeLoader))  # all of them: 5 ms, by `safe_load` 35


@cache
def _built_in_names() -> Mapping[str, list[Rename]]:
    """Return the meanings of each name in the built-in profiles.

    A name that a profile takes over unchanged from a built-in one means built-in tools alone (`Naming.ours`): a
    server's tool of that name must not get the arguments meant for ours.
    """
    found: dict[str, list[Rename]] = {}
    for profile in BUILT_IN:
        for name, entry in _read_built_in(profile).get("names", {}).items():
            found.setdefault(name, []).append(_read_rename(name, entry, f"{profile}.yaml"))
    return found


def _extend(given: Mapping[str, Any], file: str, others: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return `given` on top of the profile that it extends; `null` takes an entry of a mapping away.

    Mappings in `_MERGED_KEYS` are merged entry by entry; every other value replaces the inherited one whole.
    """
    base = given.get("extends")
    own = {key: value for key, value in given.items() if key != "extends"}
    if base is None and "strategy" not in own and own.get("name") in BUILT_IN:
        base = own["name"]
    if base is None:
        return own
    values = _base_values(str(base), file, others)
    for key, value in own.items():
        if key in _MERGED_KEYS and isinstance(value, dict) and isinstance(values.get(key), dict):
            merged = {**values[key], **cast("dict[str, Any]", value)}
            value = {name: entry for name, entry in merged.items() if entry is not None}
        values[key] = value
    return values


def _inherited_names(values: Mapping[str, Any], given: Mapping[str, Any]) -> frozenset[str]:
    """Return the entries in lists and mappings of a profile that its own file does not set."""
    keys = ("core", "names", "categories")
    return frozenset(name for key in keys for name in values.get(key, ()) if name not in (given.get(key) or ()))


def _base_values(base: str, file: str, others: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return all values of the profile `base`.

    A profile that extends itself, through any number of others, is an error.
    """
    if base in others:
        left = {name: one for name, one in others.items() if name != base}
        return _extend(others[base], file, left)
    if base not in BUILT_IN:
        raise ConfigError(unknown_name("profile", base, (*BUILT_IN, *others)), file=file, key="extends")
    return deepcopy(_read_built_in(base))


def _check_word(key: str, word: Any, known: Iterable[str], file: str, what: str = "") -> None:
    if str(word) not in known:
        raise ConfigError(unknown_name(what or key, str(word), known), file=file, key=key)


@cache
def _types_of_keys() -> Mapping[str, Any]:
    return {key: hint for kind in (Profile, *GROUPS.values()) for key, hint in get_type_hints(kind).items()}


def _check_types(values: Mapping[str, Any], file: str, errors: ErrorList) -> None:
    reported = {error.key for error in errors.found}
    for key, value in values.items():
        if key not in reported:
            with errors.part():
                _check_type(key, value, file)


def _check_type(key: str, value: Any, file: str) -> None:
    if key not in _KEYS:
        raise ConfigError(unknown_name("key", str(key), _KEYS), file=file, key=str(key))
    wanted = _types_of_keys()[key]
    if get_origin(wanted) is Literal or wanted is OnMiss:
        _check_word(key, value, get_args(wanted), file)
    else:
        kind: Any = {tuple: list}.get(get_origin(wanted), wanted)
        kind = dict if get_origin(wanted) not in (None, tuple) else kind
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ConfigError(f"takes {kind.__name__}, not {value!r}", file=file, key=key)
        if kind is int and value < 0:
            raise ConfigError(f"takes a number that is not negative, not {value}", file=file, key=key)
        for name in cast("dict[Any, Any]", value) if isinstance(value, dict) else ():
            if not isinstance(name, str):  # YAML reads `on:` and `no:` as true and false
                raise ConfigError(f"takes names as keys; write {name!r} in quotes", file=file, key=f"{key}.{name}")


def _check_names_of_verbs(values: Mapping[str, Any], file: str, errors: ErrorList) -> None:
    for verb, shown in values.get("verbs", {}).items():
        with errors.part():
            _check_word(f"verbs.{verb}", verb, VERBS, file, what="verb")
            if not isinstance(shown, str) or shortened(shown, "", shown) != shown:
                message = (
                    f"takes a name that every API accepts, 1 to {MAX_NAME} letters, digits, _ and -, not {shown!r}"
                )
                raise ConfigError(message, file=file, key=f"verbs.{verb}")


def _check_texts(values: Mapping[str, Any], file: str, errors: ErrorList) -> None:
    """Check constraints beyond the types of the keys: names and descriptions are texts, templates have known fields."""
    if not _NAME.fullmatch(values["name"]):
        message = f"takes 1 to 64 letters, digits, . _ and -, for it is part of addresses; not {values['name']!r}"
        errors.found.append(ConfigError(message, file=file, key="name"))
    listed = ((key, enumerate(values.get(key, ()))) for key in ("core", "exclude", "include", "treat_as_write"))
    for name, value in values.get("shell", {}).items():
        if name != "keep" or not isinstance(value, bool):
            message = f"takes `keep: true` or `keep: false`, not {name}: {value!r}"
            errors.found.append(ConfigError(message, file=file, key=f"shell.{name}"))
    for name, value in values.get("agents", {}).items():
        if name not in _AGENT_LIMITS or isinstance(value, bool) or not isinstance(value, int) or value < 1:
            message = f"takes {', '.join(_AGENT_LIMITS)} with a whole number from 1 on, not {name}: {value!r}"
            errors.found.append(ConfigError(message, file=file, key=f"agents.{name}"))
    mapped = ((key, values.get(key, {}).items()) for key in ("categories", "placed"))
    for key, entries in (*listed, *mapped):
        for place, inner in entries:
            if not isinstance(inner, str):
                errors.found.append(ConfigError(f"takes a text, not {inner!r}", file=file, key=f"{key}.{place}"))
    try:
        values.get("mcp_names", "").format(server="", tool="")
    except (ValueError, LookupError, AttributeError):
        message = f"is a name made of {{server}} and {{tool}}, not {values['mcp_names']!r}"
        errors.found.append(ConfigError(message, file=file, key="mcp_names"))


def _check_verbs(values: Mapping[str, Any], file: str, errors: ErrorList) -> None:
    """Check that every name has one meaning, and that each meta-tool has those that it works through."""
    seen: dict[str, str] = {}
    for verb, shown in values.get("verbs", {}).items():
        key, name = f"verbs.{verb}", str(shown)
        messages = [f"{name!r} is the name of {seen[name]} already"] if name in seen else []
        needed = (other for other in _VERBS_NEEDED.get(verb, ()) if other not in values["verbs"])
        messages += [f"works through the meta-tool {other}, which has no name" for other in needed]
        errors.found += [ConfigError(message, file=file, key=key) for message in messages]
        if name in values.get("names", {}):
            message = f"{name!r} is already the name of the meta-tool {verb}"
            errors.found.append(ConfigError(message, file=file, key=f"names.{name}"))
        seen.setdefault(name, verb)
    listed = values.get("options", {}).get("fixed_list", ())
    for place, verb in enumerate(cast("list[Any]", listed) if isinstance(listed, list | tuple) else ()):
        with errors.part():
            _check_word(f"options.fixed_list.{place}", verb, VERBS, file, what="verb")


def _check_rules(values: Mapping[str, Any], file: str, errors: ErrorList) -> None:
    try:
        check_rules(values.get("rules", {}))
    except ConfigError as error:
        errors.found += [ConfigError(str(one), file=file, key="rules") for one in error.each]


def _check_options(values: Mapping[str, Any], file: str, errors: ErrorList) -> None:
    known = STRATEGIES[values["strategy"]].options
    for key, value in values.get("options", {}).items():
        with errors.part():
            _check_word(f"options.{key}", key, known, file, what="option")
            kinds = known[key]
            if isinstance(kinds, frozenset):
                _check_word(f"options.{key}", value, kinds, file)
            elif not isinstance(value, kinds):
                raise ConfigError(f"takes {_type_names(kinds)}, not {value!r}", file=file, key=f"options.{key}")


def _read_style(given: Any, file: str) -> ExcerptStyle:
    """Return the style of the results; raises `ConfigError` with the key."""
    if not isinstance(given, dict):
        raise ConfigError(f"takes a mapping, not {given!r}", file=file, key="results")
    try:
        return ExcerptStyle.of(cast("dict[str, Any]", given))
    except ValueError as error:
        raise ConfigError(str(error), file=file, key="results") from None


def _read_loops(given: Any, file: str) -> Loops:
    """Return when turns go in circles; raises `ConfigError` with the key."""
    if not isinstance(given, dict):
        raise ConfigError(f"takes a mapping, not {given!r}", file=file, key="loops")
    try:
        loops = Loops.of(cast("dict[str, Any]", given))
    except ValueError as error:
        raise ConfigError(str(error), file=file, key="loops") from None
    return NO_LOOPS if loops == NO_LOOPS else loops


def _type_names(kinds: type | tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


def _read_rename(name: str, entry: Any, file: str) -> Rename:
    """Return an entry of `names`; raises `ConfigError` with the key."""
    if isinstance(entry, str):
        return Rename(tool=entry)
    given = _check_entry(name, entry, file)
    listed = enumerate(given.pop("instead", ()))
    others = tuple(_read_rename(f"{name}.instead.{place}", other, file) for place, other in listed)
    for place, other in enumerate(others):
        if not (other.when or other.given) or other.instead:
            message = "takes `when` or `given`, which select it, and not an `instead` of its own"
            raise ConfigError(message, file=file, key=f"names.{name}.instead.{place}")
    return Rename(instead=others, **given)


def _check_entry(name: str, entry: Any, file: str) -> dict[str, Any]:
    """Return a copy of an entry in which every part has the type that it must have."""
    key = f"names.{name}"
    if not isinstance(entry, dict) or not isinstance(cast("dict[str, Any]", entry).get("tool"), str):
        raise ConfigError("takes the name of a tool, or a mapping with `tool`", file=file, key=key)
    given = dict(cast("dict[str, Any]", entry))
    for part, value in given.items():
        _check_word(f"{key}.{part}", part, _NAME_KEYS, file, what="key")
        wanted = _NAME_KEYS[part]
        if not isinstance(value, wanted):
            raise ConfigError(f"takes a {_TYPE_NAMES[wanted]}, not {value!r}", file=file, key=f"{key}.{part}")
    inside = (
        ("args", str, "the tool's own name of the argument"),
        ("unused", str, "the reason"),
        ("at_most", int | float, "a number"),
        ("values", dict, "a mapping"),
    )
    for part, wanted, expected in inside:
        for inner, value in given.get(part, {}).items():
            if not isinstance(value, wanted):
                raise ConfigError(f"takes {expected}, not {value!r}", file=file, key=f"{key}.{part}.{inner}")
    return given


class Gaps(Struct, frozen=True, kw_only=True):
    """Entries of one profile that mean nothing in one catalog; everything else of it works."""

    core: tuple[str, ...] = ()
    """Core tools that no source provides."""
    names: tuple[str, ...] = ()
    """Names of the profile behind which no source provides the tool."""
    categories: tuple[str, ...] = ()
    """Categories that no tool is in."""

    def problem(self, profile: Profile) -> Problem | None:
        """Return the problem to report while the profile is in use; None when every tool exists.

        The built-in profiles name all built-in tools, including those that a crib leaves out.
        """
        missing = self.core if profile.name in BUILT_IN else tuple(dict.fromkeys((*self.core, *self.names)))
        if not missing:
            return None
        message = f"the profile {profile.name} names tools that no source provides, and goes without: "
        return Problem(
            source=profile.name,
            code="not_provided",
            message=message + ", ".join(missing),
            hint=f"`toolcrib profile check {profile.name}` shows which key names them",
        )


def gaps(profile: Profile, catalog: Catalog, held: Mapping[str, str] = MappingProxyType({})) -> Gaps:
    """Return the names in `profile` that `catalog` does not have. Inherited ones are not reported.

    `held` has the category of each tool that appears as soon as a session meets its requirements.
    """

    def is_there(tool: str) -> bool:
        return tool in held or catalog.find(tool) is not None

    def own(name: str) -> bool:
        return name not in profile.inherited

    shown = frozenset(profile.verbs.values())
    known = (name in shown or is_there(_tool_named(profile, name)) for name in profile.core)
    if profile.strategy == "gateway":
        there = _groups(profile, catalog)
    else:
        placed = profile.naming.placed
        later = (word for name, category in held.items() for word in _categories_of_tool(name, category, placed))
        there = _categories(catalog, placed).union(later)
    return Gaps(
        core=tuple(name for name, is_known in zip(profile.core, known, strict=True) if not is_known and own(name)),
        names=tuple(name for name, rename in profile.naming.names.items() if own(name) and not is_there(rename.tool)),
        categories=tuple(name for name in profile.naming.categories if own(name) and name not in there),
    )


def op_problems(ops: OpMap) -> Iterator[Problem]:
    """Yield a problem for each op that a tool claims and does not have."""
    for lost in ops.lost:
        if lost.winner is not None and {lost.tool.source, lost.winner.source} <= BUILTIN_SOURCES:
            continue  # between built-in tools, a profile decides
        winner = (
            f"belongs to {lost.winner.name} of {lost.winner.source}" if lost.winner else "is claimed by several servers"
        )
        yield Problem(
            source=lost.tool.source,
            tool=lost.tool.local_name,
            code="op_taken",
            message=f"the op {lost.op} {winner}; {lost.tool.name} has the op {ops.of(lost.tool)}",
            hint="declare another `op` for one of them, or set option `ops` of the profile",
        )


def _categories(catalog: Catalog, placed: Mapping[str, str]) -> frozenset[str]:
    tools = catalog.tools.values()
    return _GENERATED_CATEGORIES.union(
        word for tool in tools for word in (*_categories_of_tool(tool.name, tool.category, placed), tool.source)
    )


def _categories_of_tool(name: str, category: str, placed: Mapping[str, str]) -> tuple[str, str]:
    return category, placed.get(name) or placed.get(category, "")


def _groups(profile: Profile, catalog: Catalog) -> frozenset[str]:
    """Return the category descriptions of `gateway` that match no tool: op prefixes, and the group of other tools."""
    ops = ToolAliases(catalog, profile.naming, profile.options.get("ops")).ops
    return frozenset({"x", *(ops.of(tool).partition(".")[0] for tool in catalog.tools.values())})


def _tool_named(profile: Profile, name: str) -> str:
    rename = profile.naming.names.get(name)
    return rename.tool if rename else name
