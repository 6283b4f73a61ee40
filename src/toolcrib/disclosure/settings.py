"""Settings of disclosure: how tools are presented to a model, ranked and pinned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..core.settings import INSTRUCTIONS, Section, Text, setting

__all__ = ["SEED_PROFILES", "DisclosureSettings", "GivenProfile", "RankingSettings"]

SEED_PROFILES: Final = frozenset({"flat", "gateway", "introspection", "selection", "tiered"})
"""Built-in profiles that present tools as a seed system did, its own tools among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenProfile:
    """The configuration of one profile: the keys of its YAML file, not yet checked."""

    name: str
    values: Mapping[str, Any]
    file: str = field(default="", compare=False)
    """Where it stands, with the line if it is known."""


class RankingSettings(Section):
    """The key `ranking`."""

    embedder: Text = ""
    """Source of vectors for ranking by meaning: `minilm`, an entry point or a model's folder; empty ranks by words."""


class DisclosureSettings(Section):
    """The keys of a file that decide how tools are presented."""

    profile: Text = setting("adaptive", changed_by="tool")
    """How tools are shown to sessions that name no profile."""
    profiles: tuple[GivenProfile, ...] = setting((), why=INSTRUCTIONS, names_only=True)
    """Changes to the built-in profiles, and profiles of the user."""
    versions: Mapping[str, Text] = setting({}, changed_by="tool")
    """Versions that sessions pin unless they say otherwise, by the tool's name."""
    ranking: RankingSettings = setting(RankingSettings.model_construct(), why="it loads a model or a program")
    """Ranking of search results."""
