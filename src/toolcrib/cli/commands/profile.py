"""`toolcrib profile`: which profiles there are, what one says, and whether a file is one that works here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml
from msgspec import Struct

from ...config.directories import here
from ...config.profiles import read_profile
from ...core.json import dumps, fields_of, loads
from ...crib import Toolcrib
from ...crib.agents import toolsets
from ...crib.needs import held
from ...disclosure.base import GROUPS, Profile
from ...disclosure.profiles import Gaps, gaps
from ...disclosure.settings import GivenProfile
from ...errors import CODES
from ...telemetry.tokens import Tokenizer, definition_tokens, tokenizer
from ..actions import action_group
from ..open_crib import opened, report
from ..options import AsJson, ConfigFiles, Wait, run, settings_of
from ..output import Column, emit_json, escape, out, table

_COLUMNS: Final[tuple[Column, ...]] = (
    ("PROFILE", "<"),
    ("STRATEGY", "<"),
    ("TOOLS", ">"),
    ("TOKENS", ">"),
    ("VERBS", "<"),
)

_Target = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A profile, or a file with one.")]


class Listed(Struct, frozen=True, kw_only=True):
    """One profile as the list shows it, for the tools that there are."""

    name: str
    description: str
    strategy: str
    progressive: bool
    verbs: tuple[str, ...]
    """As the model sees them."""
    tools: int
    """Definitions that a session sees at first."""
    tokens: int
    """Tokens of these definitions, instructions included."""

    @classmethod
    def of(cls, crib: Toolcrib, known: Profile, counter: Tokenizer) -> Listed:
        """Open a session under `known`, and count what it sees."""
        session = crib.session(profile=known.name)
        tokens = sum(definition_tokens(tool, counter) for tool in session.tools)
        return cls(
            name=known.name,
            description=known.description,
            strategy=known.strategy,
            progressive=known.progressive,
            verbs=tuple(known.verbs.values()),
            tools=len(session.tools),
            tokens=tokens + counter.count(session.instructions),
        )


profile = action_group("List the profiles, show one, or check one against the tools of the configuration.")


@profile.command("list")
def list_profiles(config: ConfigFiles = None, as_json: AsJson = False, wait: Wait = 10.0) -> None:
    """List the profiles with the tools and tokens that a session sees at first."""
    listed = run(lambda: _listed(config, wait))
    if as_json:
        emit_json([fields_of(one) | {"tokenizer": tokenizer().name} for one in listed])
        return
    counter = tokenizer()
    table(
        _COLUMNS,
        ((one.name, one.strategy, str(one.tools), counter.shown(one.tokens), ", ".join(one.verbs)) for one in listed),
    )
    out(f"\ntools and tokens ({counter.name}) that a session sees at first, instructions included")


@profile.command("show")
def show_profile(target: _Target, config: ConfigFiles = None, as_json: AsJson = False, wait: Wait = 10.0) -> None:
    """Print a profile as a file that `check` takes, to start your own from."""
    _show(*run(lambda: _looked_up(target, config, wait)), as_json=as_json)


@profile.command("check")
def check_profile(target: _Target, config: ConfigFiles = None, as_json: AsJson = False, wait: Wait = 10.0) -> None:
    """Check that a profile can be read, and that the tools and categories it names exist.

    Ends with status 2 for a file that is not a profile, and with status 3 when it names tools or categories that no
    source of the configuration provides.
    """
    _check(*run(lambda: _looked_up(target, config, wait)), as_json=as_json)


async def _listed(config: list[Path] | None, wait: float) -> list[Listed]:
    async with opened(settings_of(config), wait=wait) as crib:
        report(crib)
        counter = tokenizer()
        return [Listed.of(crib, known, counter) for known in crib.profiles.values()]


async def _looked_up(target: str, config: list[Path] | None, wait: float) -> tuple[Profile, Gaps]:
    """Return the profile and what it names in vain. Raises `ConfigError` for anything but a profile."""
    given = _given(target)
    async with opened(settings_of(config), wait=wait) as crib:
        if given is not None:
            crib.profiles.add(given)
        known = crib.session(profile=given.name if given else target).visible.profile
        report(crib)
        return known, gaps(known, crib.catalog, _later(crib))


def _later(crib: Toolcrib) -> Mapping[str, str]:
    """Return the category of each tool that a session gets with a workspace, a person, a model or the like."""
    settings = crib.parts.settings
    runs_agents = toolsets() if settings.sources.builtins is True and not settings.chat.model else ()
    agents = {name: category for toolset in runs_agents for name, category in toolset.categories.items()}
    return {**agents, **held(crib.parts.inventory.sources.values())}


def _given(target: str) -> GivenProfile | None:
    """Return the profile in a file; None for what can only be a name."""
    path = here().project / Path(target).expanduser()
    return read_profile(path) if path.suffix or path.name != target or path.is_file() else None


def _show(known: Profile, missing: Gaps, *, as_json: bool) -> None:
    """Print the profile; as text it is a file that `check` takes, to start an own one from."""
    shown, lacking = _fields_with_values(known), _fields_with_values(missing)
    if as_json:
        emit_json(shown | ({"not_provided": lacking} if lacking else {}))
        return
    shown["results"] = {key: value for key, value in shown["results"].items() if value not in (None, [])}
    written = yaml.dump(shown, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)
    out(escape(written.rstrip("\n"), lines=True), verbatim=True)
    for key, entries in lacking.items():
        out(escape(f"# {key} that no source provides: {', '.join(entries)}"))


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(_: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _check(known: Profile, missing: Gaps, *, as_json: bool) -> None:
    found = _fields_with_values(missing)
    if as_json:
        emit_json({"profile": known.name, "ok": not found, "not_provided": found})
    for key, entries in found.items() if not as_json else ():
        for entry in entries:
            out(escape(f"{known.name}: {key}: no source provides {entry!r}"))
    if found:
        raise typer.Exit(CODES["not_found"].exit)
    if not as_json:
        out(escape(f"{known.name}: every tool and category that it names is there"))


def _fields_with_values(value: Profile | Gaps) -> dict[str, Any]:
    """Return the fields that say something, as JSON."""
    document: dict[str, Any] = loads(dumps(fields_of(value)))
    if isinstance(value, Profile):
        for group in GROUPS:  # their keys stand beside the others
            document |= document.pop(group)
        del document["ours"]
        document["names"] = {name: _spoken(label) for name, label in document["names"].items()}
    return _spoken(document)


def _spoken(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without what says nothing, and the same of the mappings in its `instead`."""
    document = {key: inner for key, inner in given.items() if inner not in ([], {}, "", None)}
    return document | ({"instead": [_spoken(one) for one in document["instead"]]} if "instead" in document else {})
