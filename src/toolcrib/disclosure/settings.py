"""Settings of disclosure: how tools are presented to a model, ranked and pinned."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final, cast

import yaml

from ..core.settings import INSTRUCTIONS, Section, Text, setting

BUILT_IN: Final = ("adaptive", "flat", "gateway", "introspection", "selection", "tiered")
"""The profiles that are shipped."""

BY_CATALOG: Final = "(catalog)"
"""Profile of callers other than models (commands, REST, guests): every tool under its catalog name, results as they
are. No list shows it, and no profile of a user can have its name."""


@cache
def seed_tools(profile: str) -> tuple[str, ...]:
    """Return the built-in tools of the seed that a built-in profile presents, as `builtins` names them.

    Empty for a profile of another origin.
    """
    text = resources.files("toolcrib.disclosure").joinpath("seed_tools.yaml").read_text("utf-8")
    return tuple(cast("dict[str, list[str]]", yaml.load(text, yaml.CSafeLoader)).get(profile, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenProfile:
    """The configuration of one profile: the keys of its YAML file, not yet checked."""

    name: str
    values: Mapping[str, Any]
    file: str = field(default="", compare=False)
    """Position in the configuration, with the line if it is known."""


class RankingSettings(Section):
    """The key `ranking`."""

    embedder: Text = ""
    """Source of vectors for ranking by meaning: `minilm`, an entry point or a model's folder; empty ranks by words."""


class DisclosureSettings(Section):
    """The keys of a file that decide how tools are presented."""

    profile: Text = setting("adaptive", changed_by="tool")
    """Profile of sessions that name none: the presentation of their tools."""
    profiles: tuple[GivenProfile, ...] = setting((), why=INSTRUCTIONS, names_only=True)
    """Changes to the built-in profiles, and profiles of the user."""
    versions: Mapping[str, Text] = setting({}, changed_by="tool")
    """Versions that sessions pin unless they say otherwise, by the tool's name."""
    ranking: RankingSettings = setting(RankingSettings.model_construct(), why="it loads a model or a program")
    """Ranking of search results."""
